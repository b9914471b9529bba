"""`stdiod replay` and `invoke --record`: with real modules, and with files that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from protocol.transcript import read_transcript
from tests.cli.conftest import Run
from tests.factories import ACTOR, PYTHON, document

ROOT = Path(__file__).parents[2]
CONFORMANCE = ROOT / "tests" / "conformance" / "transcripts"
COUNTER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    op = asked["operation"]
    answer = {"ok": True, "result": {"pid": os.getpid(), "n": EXTRA}}
    if op == "health":
        answer = {"status": "ok"}
    if op == "describe":
        answer = {"name": "m", "version": None, "kind": "tool", "capabilities": [],
                  "inputs": {}, "outputs": {}}
    print(json.dumps({**answer, "requestId": asked["requestId"]}), flush=True)
"""


def descriptor(folder: Path, command: list[str], **fields: Any) -> str:
    path = folder / "m.json"
    path.write_text(json.dumps(document(command, **fields)), encoding="utf-8")
    return str(path)


def without_tails(text: str) -> str:
    """Return a text with request ids without the tails that were drawn for them."""
    return re.sub(r"\b(r\d+)-[0-9a-f]{6}\b", r"\1", text)


def counter(folder: Path, extra: object) -> str:
    return descriptor(folder, [*PYTHON, "-c", COUNTER.replace("EXTRA", repr(extra))])


@pytest.fixture
def recorded(run: Run, tmp_path: Path) -> str:
    """Record an invocation of the counter."""
    path = str(tmp_path / "t.jsonl")
    made = counter(tmp_path, 1)
    ended = run("invoke", "m", "count", "--descriptor", made, "--record", path)
    assert ended.exit_code == 0, ended.stderr
    return path


def test_what_was_recorded_replays_through_its_dialect(run: Run, recorded: str) -> None:
    ended = run("replay", recorded)
    assert ended.exit_code == 0
    assert without_tails(ended.stdout).splitlines() == [
        "m#1 r2: m.health ok",
        "m#1 r3: m.describe ok",
        "m#1 r1: m.count ok",
        "m#1 exited with code 0",
        "3 of 3 outcomes as recorded",
    ]
    assert ended.stderr == ""


def test_json_says_the_same(run: Run, recorded: str) -> None:
    said = json.loads(run("replay", recorded, "--dialect", "--json").stdout)
    assert (said["form"], said["same"], said["compared"]) == ("dialect", True, 3)
    assert said["differences"] == said["flaws"] == []


def test_an_outcome_that_differs_is_shown_as_a_diff(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    path = Path(recorded)
    text = path.read_text(encoding="utf-8").replace('"outcome":{"ok":true', '"outcome":{"ok":false')
    path.write_text(text, encoding="utf-8")
    ended = run("replay", recorded)
    assert ended.exit_code == 1
    assert "m#1 r1: m.count differs" in without_tails(ended.stdout)
    assert "\n- {" in ended.stdout
    assert "\n+ {" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "0 of 3 outcomes as recorded"


def test_a_module_is_run_again_and_says_the_same_but_for_what_is_ignored(
    run: Run, recorded: str
) -> None:
    ended = run("replay", recorded, "--module", "--ignore", "/result/pid")
    assert (ended.exit_code, ended.stdout) == (0, "m#1: 3 lines as recorded\n")
    assert ended.stderr.startswith("stdiod: runs what the transcript names: ")


def test_what_another_module_says_is_shown_as_a_diff(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    made = counter(tmp_path / "new", 2)
    ended = run("replay", recorded, "--module", made, "--ignore", "/result/pid")
    assert ended.exit_code == 1
    assert ended.stdout.splitlines()[0] == "m#1: differs"
    assert ended.stdout.splitlines()[-2:] == [
        '- {"ok":true,"result":{"n":1}}',
        '+ {"ok":true,"result":{"n":2}}',
    ]
    document = json.loads(
        run("replay", recorded, "--module", made, "--ignore", "/result/pid", "--json").stdout
    )
    assert document["same"] is False
    assert document["processes"][0]["diff"][-1] == '+ {"ok":true,"result":{"n":2}}'


def test_a_module_that_dies_before_it_has_answered_is_told(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    made = descriptor(tmp_path / "new", ["sh", "-c", "exit 4"])
    ended = run("replay", recorded, "--module", made)
    assert ended.exit_code == 1
    assert "! 2 recorded lines were not sent: no answer before them came" in ended.stdout
    assert "! it exited with code 4, and exited with code 0 when it was recorded" in ended.stdout


def test_a_module_that_never_answers_is_stopped_when_the_time_is_over(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    made = descriptor(tmp_path / "new", ["sh", "-c", "while read line; do :; done"])
    ended = run("replay", recorded, "--module", made, "--timeout", "0.2")
    assert ended.exit_code == 1
    assert "! it was stopped when the time was over" in ended.stdout


@pytest.mark.parametrize("given", [(), ("module.json",)], ids=["its own", "given"])
def test_a_test_that_was_generated_runs_from_any_folder(
    run: Run, tmp_path: Path, given: tuple[str, ...]
) -> None:
    assert run("new", "m", "--lang", "python", "--into", str(tmp_path)).exit_code == 0
    chosen = [str(tmp_path / "m" / one) for one in given]
    ended = run("replay", str(tmp_path / "m" / "test.jsonl"), "--module", *chosen)
    assert (ended.exit_code, ended.stdout) == (0, "m#1: 4 lines as recorded\n")


def test_a_transcript_without_outcomes_says_that_nothing_was_compared(
    run: Run, tmp_path: Path
) -> None:
    run("new", "m", "--lang", "python", "--into", str(tmp_path))
    path = tmp_path / "m" / "test.jsonl"
    ended = run("replay", str(path))
    assert ended.exit_code == 0
    words = f"nothing was compared: {path} records no outcome; "
    words += f"`stdiod replay {path} --module` runs the module"
    assert ended.stdout.splitlines()[-1] == words


def test_what_a_module_said_on_stderr_is_shown_if_it_did_not_answer_as_recorded(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    made = descriptor(tmp_path / "new", ["sh", "-c", "echo 'no such file' >&2; exit 4"])
    ended = run("replay", recorded, "--module", made)
    assert ended.exit_code == 1
    assert "! stderr: no such file" in ended.stdout


@pytest.mark.parametrize("name", ["torch", "tool_truncated_line"])
def test_a_tool_runs_again_in_step(run: Run, tmp_path: Path, name: str) -> None:
    scripts = {
        "torch": ["bash", str(ROOT / "modules" / "torch" / "torch.sh")],
        "tool_truncated_line": [
            "sh", "-c", 'read line; printf \'{"version":"0","type":"done","ok":tr\'',
        ],
    }  # fmt: skip
    named = {"torch": "torch", "tool_truncated_line": "half"}[name]
    made = descriptor(tmp_path, scripts[name], name=named, transport={"protocol": "narratoria"})
    ended = run("replay", str(CONFORMANCE / f"{name}.jsonl"), "--module", made)
    assert (ended.exit_code, ended.stderr) == (0, "")


def test_a_crash_is_a_crash_again(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    never = {"backoff": {"initial_s": 1000, "max_s": 1000}, "restart": "temporary"}
    made = descriptor(tmp_path, [*PYTHON, ACTOR, "m"], supervision=never)
    arguments = ("--descriptor", made, "--record", path, "--args", '{"code":3}')
    assert run("invoke", "m", "exit", *arguments).exit_code == 1
    ended = run("replay", path, "--module")
    assert (ended.exit_code, ended.stdout) == (0, "m#1: 2 lines as recorded\n")


def test_a_record_needs_a_descriptor(run: Run, tmp_path: Path) -> None:
    ended = run("invoke", "m", "count", "--record", str(tmp_path / "t"))
    assert ended.exit_code == 2
    assert "`stdiod record MODULE`" in ended.stderr


def test_a_record_says_that_it_replaces_a_file_and_a_folder_is_a_descriptor(
    run: Run, tmp_path: Path
) -> None:
    run("new", "m", "--lang", "python", "--into", str(tmp_path))
    path, folder = tmp_path / "t.jsonl", str(tmp_path / "m")
    said = []
    for _ in range(2):
        called = ("greet", "name=Ada", "--descriptor", folder, "--record", str(path))
        ended = run("invoke", "m", *called)
        assert ended.exit_code == 0, ended.stderr
        said.append(f"stdiod: {path} (" in ended.stderr and "is replaced" in ended.stderr)
    assert said == [False, True]
    ended = run("replay", str(path), "--module", folder)
    assert (ended.exit_code, ended.stdout) == (0, "m#1: 3 lines as recorded\n")


def test_a_record_that_cannot_be_written_starts_nothing(run: Run, tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["sh", "-c", f"touch {tmp_path}/started"])
    path = str(tmp_path / "none" / "t.jsonl")
    ended = run("invoke", "m", "count", "--descriptor", made, "--record", path)
    assert ended.exit_code == 1
    assert "t.jsonl cannot be written: No such file or directory" in ended.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "line 1: "),
        ("hello\n", "line 1: is not JSON"),
        ('{"id":"e1","ts":1.0,"event":"session:start"}\n', "a transcript begins with"),
        (None, "line 2: "),
    ],
)
def test_a_file_that_is_no_transcript_ends_with_2(
    run: Run, tmp_path: Path, content: str | None, words: str
) -> None:
    if content is None:
        header = (CONFORMANCE / "good.jsonl").read_text(encoding="utf-8").splitlines()[0]
        content = header + '\n{"at_s":0,"from":"nobody"}\n'
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    ended = run("replay", str(path))
    assert ended.exit_code == 2
    assert words in ended.stderr
    assert str(path) in ended.stderr


def test_a_transcript_that_is_not_whole_says_so(run: Run, tmp_path: Path) -> None:
    lines = (CONFORMANCE / "good.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:-1]))
    assert read_transcript(lines[:-1], "t").flaws
    ended = run("replay", str(path))
    assert ended.exit_code == 0
    assert ended.stderr == f"stdiod: {path}: it has no end: the recorder went away\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ignore", "result", "--module"), "is not a JSON pointer"),
        (("--dialect", "--module"), "give one of them"),
    ],
)
def test_options_that_cannot_be_are_refused(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    ended = run("replay", str(CONFORMANCE / "good.jsonl"), *arguments)
    assert ended.exit_code == 2
    assert words in ended.stderr
