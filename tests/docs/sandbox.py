"""A newcomer's machine: an empty home with the sample modules in it, a shell, and `stdiod` in PATH.

The folder has odd names; what the shell prints is shown as if it were `/home/ada`, and its runtime
directory as if it were `/run/user/1000`. At the end every daemon that was started is told to go,
and whatever process still has its working folder in the home is a fault.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import supervisor
from tests import journals
from tests.docs.markdown import ROOT
from tests.modules.samples import take_time

PATIENCE_S = 120.0
"""No command of a document takes longer, on the slowest machine; a watchdog ends it then."""

HOME = "/home/ada"
RUNTIME = "/run/user/1000"
_MARK = "-- the end of the step, status "


class Sandbox:
    """A shell in a home of its own."""

    def __init__(self) -> None:
        self._temporary = Path(tempfile.mkdtemp(prefix="ada-")).resolve()
        self.home = self._temporary / "home"
        self._runtime = self._temporary / "run"
        programs = self._temporary / "bin"
        for folder in (self.home, self._runtime, programs):
            folder.mkdir(mode=0o700)
        _write_command(programs / "stdiod")
        shutil.copytree(
            ROOT / "modules", self.home / "modules", ignore=shutil.ignore_patterns("__pycache__")
        )
        take_time(self.home / "modules")
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STDIOD_", "XDG_", "PYTHON", "COVERAGE"))
        } | {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self._runtime),
            "PATH": os.pathsep.join(
                [
                    str(programs),
                    str(Path(sys.executable).parent),
                    os.environ.get("PATH", os.defpath),
                ]
            ),
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "TERM": "dumb",
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.home,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._status = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left = self._clean_up()
        assert error is not None or not left, f"processes were left behind: {left}"

    def run(self, command: str) -> list[str]:
        """Run a command in the shell and return the lines it printed."""
        step = self._temporary / "step.sh"
        step.write_text(command + "\n", encoding="utf-8")
        line = f"(exit {self._status}); . {shlex.quote(str(step))} </dev/null\n"
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(line.encode() + f"echo '{_MARK}'$?\n".encode())
        self._shell.stdin.flush()
        watchdog = threading.Timer(PATIENCE_S, self._kill_shell)
        watchdog.start()
        printed: list[str] = []
        try:
            for raw in self._shell.stdout:
                text = raw.decode().rstrip("\n")
                before, mark, status = text.partition(_MARK)
                if mark:
                    self._status = int(status)
                    return [*printed, *([self._shown(before)] if before else [])]
                printed.append(self._shown(text))
        finally:
            watchdog.cancel()
        message = f"the shell ended or was ended in {command!r}, after {printed}"
        raise AssertionError(message)

    def save(self, path: str, text: str) -> None:
        """Save a file below the home, as a reader does with an editor."""
        target = self.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def _shown(self, text: str) -> str:
        return text.replace(str(self.home), HOME).replace(str(self._runtime), RUNTIME)

    def _kill_shell(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)

    def _clean_up(self) -> list[str]:
        for lock in self._temporary.rglob("*.sock.lock"):
            subprocess.run(
                ["stdiod", "--socket", str(lock.with_suffix("")), "down"],
                env=self._environment,
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
        self._shell.communicate()
        left = [f"{pid} {_command_line(pid)}" for pid in self._inhabitants()]
        for pid in self._inhabitants():
            os.kill(pid, signal.SIGKILL)
        journals.check_all(self._temporary)
        shutil.rmtree(self._temporary, ignore_errors=True)
        return left

    def _inhabitants(self) -> list[int]:
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "cwd").readlink().is_relative_to(self._temporary):
                        found.append(int(entry.name))
                except OSError:
                    continue  # it is gone, or somebody else's
        return found


def _write_command(path: Path) -> None:
    # Whatever was imported for these tests is what the command runs: the checkout, or a wheel.
    packages = Path(str(supervisor.__file__)).parents[1]
    path.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(packages))} "
        f'exec {shlex.quote(sys.executable)} -P -m supervisor.cli "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").replace("\0", " ")
    except OSError:
        return ""
