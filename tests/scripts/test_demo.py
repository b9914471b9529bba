from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.scripts.checkout import CHECKOUT, MODULES, WITHIN_S, documents, environment, run

pytestmark = pytest.mark.bound(WITHIN_S)

FEW = ("torch", "dice", "textstats")
"""Two that every machine with bash and Python can run, one of each lifecycle, and one more."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Where the demo puts its own folder; a path of pytest's would be too long for a socket.
    folder = Path("/tmp", f"demo-test-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def nothing_left(own_folder: Path) -> Iterator[None]:
    yield
    left = list(own_folder.iterdir())
    shutil.rmtree(own_folder)
    assert left == []
    assert processes(own_folder) == []


def processes(folder: Path) -> list[str]:
    """Find what was started with a TMPDIR in the folder: the mark of all that the demo starts."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get("TMPDIR", "").startswith(f"{folder}/")
            if marked:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.fixture
def few(tmp_path: Path) -> Path:
    for name in FEW:
        shutil.copytree(MODULES / name, tmp_path / "modules" / name)
    return tmp_path / "modules"


def test_the_demo_goes_as_it_should() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "$ stdiod up modules" in done.stdout
    verdict, _, following = done.stdout.partition("What to type next")
    assert "steps went as they should" in verdict.splitlines()[-2]
    assert "stdiod up modules  " in following


def change(program: Path, before: str, after: str) -> None:
    source = program.read_text()
    assert before in source
    program.write_text(source.replace(before, after))


def test_each_step_that_a_module_fails_is_named_with_what_was_found(few: Path) -> None:
    change(few / "dice" / "dice.py", "sum(rolls)", "1 + sum(rolls)")
    change(few / "torch" / "torch.sh", "Torch lit.", "Torch lost.")
    change(few / "textstats" / "module.json", '"perl"', '"no-such-language"')
    done = run("demo", "--modules", str(few))
    assert done.returncode == 1, done.stdout + done.stderr
    (torch,) = (line for line in done.stdout.splitlines() if "torch light: " in line)
    assert "expected ok     Torch lit., found " in torch
    assert "Torch lost." in torch
    assert "textstats: skipped, there is no no-such-language here" in done.stdout
    assert "textstats stats: skipped, there is no no-such-language here" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(
        "not as it should be: torch light, dice roll, the torch lit in it"
    )


def test_modules_that_cannot_start_fail_their_steps_and_leave_nothing(few: Path) -> None:
    (few / "dice" / "dice.py").write_text("raise SystemExit('out of order')\n")
    (few / "textstats" / "module.json").write_text("{")
    done = run("demo", "--json", "--modules", str(few))
    assert done.returncode == 1
    failed = {step["step"] for step in documents(done.stdout) if not step["ok"]}
    assert {"validate", "up", "status", "dice roll"} <= failed
    assert not {"torch light", "down", "no process is left"} & failed


def test_an_interrupted_demo_cleans_up(few: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.demo", "--json", "--modules", str(few)],
        cwd=CHECKOUT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        steps: list[dict[str, Any]] = []
        for line in demo.stdout:
            steps.append(json.loads(line))
            if steps[-1]["step"] == "status":  # the daemon is up
                demo.send_signal(signal.SIGTERM)
        assert demo.wait(WITHIN_S) == 130
    assert steps[-1]["step"] != "no process is left"
