"""This checkout: where it is, its `stdiod` command, its daemons, and the processes of a script."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
INSTALLED: Final = Path(sys.executable).with_name("stdiod")
STDIOD: Final = (
    [str(INSTALLED)] if INSTALLED.exists() else [sys.executable, "-P", "-m", "supervisor.cli"]
)
"""The command, installed or not."""
READY_WITHIN_S: Final = 60.0
COMMAND_WITHIN_S: Final = 300.0
"""No command takes so long; one that hangs is not to hang for ever."""


class Stdiod:
    """The command with a daemon of its own, whose socket and data are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "socket"
        paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        self.environment = {
            **os.environ,
            "STDIOD_SOCKET": str(self.socket),
            "STDIOD_DATA_DIR": str(folder / "data"),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        # An installed package has its bytecode; without it each command compiles all it imports.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the daemon, if it runs."""
        self._run("down")

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Run a verb and return what it printed; raises `RuntimeError` with what it said."""
        done = self._run(*arguments, stdin=stdin)
        if done.returncode:
            verb = shlex.join(("stdiod", *arguments))
            raise RuntimeError(f"`{verb}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return what `status --json` prints."""
        return dict(json.loads(self.run("status", "--json")))

    def _run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*STDIOD, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_WITHIN_S,
        )


def copy_known_files(target: Path) -> None:
    """Copy what git tracks, or would track."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).exists():  # a deletion may not be staged yet
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; none if it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def with_tmpdir(folder: Path) -> list[psutil.Process]:
    """Return all processes that have inherited a TMPDIR, whoever started them."""
    found = []
    for process in psutil.process_iter():
        # A zombie has no environment any more, and holds nothing.
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process)
    return found


def wait_gone(folder: Path, within_s: float, *, kill: bool = False) -> list[psutil.Process]:
    """Wait until no process has inherited a TMPDIR; return those that stay, none if all is well."""
    ends_at = time.monotonic() + within_s
    while (left := with_tmpdir(folder)) and time.monotonic() < ends_at:
        for process in left if kill else ():
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)
    return left


def between(text: str, begin: str, inserted: str, end: str) -> str:
    """Return a document with other text between two of its lines."""
    head, found, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the document needs the lines {begin!r} and {end!r}")
    return f"{head}{begin}\n{inserted}\n{end}{tail}"
