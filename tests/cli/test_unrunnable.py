"""What keeps a program from running is seen without running it; what may run is let run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.factories import document

FILES = {
    "crlf": "#!/usr/bin/env python3\r\n",
    "gone": "#!/no/such/thing\n",
    "env_gone": "#!/usr/bin/env nosuchthing\n",
    "env_two": "#!/usr/bin/env sh -u\n",
    "env_split": "#!/usr/bin/env -S A=1 sh -u\n",
    "env_plain": "#!/usr/bin/env sh\n",
    "dos.sh": "echo one\r\necho two\r\n",
    "good.sh": "echo one\n",
    "server.js": "",
}


def said(run: Run, folder: Path, command: list[str]) -> str:
    """Return what `stdiod validate` says of a descriptor with this command."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = folder / "m.json"
    path.write_text(json.dumps(document(command)))
    return run("validate", str(path)).stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["./nothing"], "nothing is not there"),
        (["nosuchthing"], "no program 'nosuchthing' in its PATH"),
        (["./crlf"], "ends in a carriage return"),
        (["./gone"], "names /no/such/thing"),
        (["./env_gone"], "runs env, and there is no program 'nosuchthing' in its PATH"),
        (["./env_two"], "as one word: write `env -S sh -u`"),
        (["/usr/bin/env", "-u", "A", "B=2", "nosuchthing"], "no program 'nosuchthing'"),
        (["env", "--unset", "sh", "nosuchthing"], "no program 'nosuchthing'"),
        (["env", "-i", "nosuchthing", "sh"], "no program 'nosuchthing'"),
        (["env", "-S", "-i A=1 nosuchthing", "sh"], "no program 'nosuchthing'"),
        (["env", "-Snosuchthing sh"], "no program 'nosuchthing'"),
        (["env", "sh -u"], "as one word: write `env -S sh -u`"),
        (["env", "nosuchthing -u"], "no program 'nosuchthing -u'"),
        (["python3", "nothing.py"], "nothing.py, which is not there"),
        (["python3", "x" * 300], "x, which is not there"),
        (["./" + "x" * 300], "File name too long"),
        (["sh", "nothing.sh"], "nothing.sh, which is not there"),
        (["sh", "dos.sh"], "dos.sh end in a carriage return"),
    ],
)
def test_what_is_in_the_way_is_said(
    run: Run, tmp_path: Path, command: list[str], words: str
) -> None:
    assert words in said(run, tmp_path, command)


@pytest.mark.parametrize(
    "command",
    [
        ["./env_plain"],
        ["./env_split"],
        ["env", "-i", "sh"],
        ["env", "-S", "sh -u"],
        ["env", "-Ssh -u"],
        ["env", "-S", "-u A sh"],
        ["env", "-S"],
        ["env", "A=1"],
        ["env", "A=/nosuchthing", "sh"],
        ["env", "-u", "nosuchthing", "sh"],
        ["env", "-i", "-S", "nosuchthing"],
        ["env", "--split-string=nosuchthing"],
        ["env", "$nosuchthing"],
        ["sh", "good.sh"],
        ["sh", "true"],  # a shell looks in PATH, too
        ["python3", "-m", "nosuchmodule"],
        ["python3", "."],
        ["sh", "-c", "exit 1\r\n"],
    ],
)
def test_what_may_run_is_let_run(run: Run, tmp_path: Path, command: list[str]) -> None:
    assert said(run, tmp_path, command) == "1 descriptor is valid\n"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("Bearer ${NO_SUCH_TOKEN}", "transport.headers.authorization uses ${NO_SUCH_TOKEN}, which"),
        ("${PATH}", ""),
        ("plain", ""),
    ],
)
def test_a_service_needs_the_variables_of_its_headers_and_no_program(
    run: Run, tmp_path: Path, header: str, words: str
) -> None:
    service = {"type": "http", "url": "http://127.0.0.1:1/m", "headers": {"authorization": header}}
    path = tmp_path / "m.json"
    path.write_text(json.dumps({**document([]), "transport": service}))
    found = run("validate", str(path)).stdout
    assert words in found
    assert ("uses" in found, "program" in found) == (bool(words), False)
