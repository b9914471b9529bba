"""The stage of the demo: a temporary folder, the `stdiod` command in it, and checked steps.

Every process of the demo inherits a TMPDIR of its own. By that mark all of them are found at the
end, whoever started them and wherever they went.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import pty
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from scripts.demo.likeness import difference
from scripts.demo.terminal import Screen, Step

COMMAND_WITHIN_S: Final = 90.0
"""The longest of them compiles a module."""

GONE_WITHIN_S: Final = 30.0
ALL: Final = 1000
"""As many lines as no command here prints."""


class MismatchError(Exception):
    """Something did not go as it should; says what was expected and what was found."""


class Stage:
    """Where the demo runs."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        self.folder = folder
        self.screen = screen
        self.steps: list[Step] = []
        self.socket = folder / "socket"
        self.scratch = folder / "tmp"
        self.scratch.mkdir()
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("STDIOD_") and name != "NOTES_FILE"
        }
        self._environment = kept | {
            "STDIOD_SOCKET": str(self.socket),
            "TMPDIR": str(self.scratch),
            "COLUMNS": str(max(40, screen.columns - 8)),
        }
        installed = Path(sys.executable).with_name("stdiod")
        self._stdiod = (
            [str(installed)]
            if installed.exists()
            else [sys.executable, "-P", "-m", "supervisor.cli"]
        )

    # Steps.

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Do one thing; a mismatch ends it, and the story goes on."""
        step = Step(name)
        self.steps.append(step)
        try:
            yield
        except MismatchError as mismatch:
            step.fault = str(mismatch)
        except (OSError, ValueError, LookupError, TypeError) as error:
            # What was printed or answered has not even the form that was expected.
            step.fault = f"{type(error).__name__}: {error}"
        except BaseException:
            step.fault = "interrupted"
            raise
        finally:
            self.screen.ended(step)

    def skip(self, name: str, why: str) -> None:
        """Leave a step out, with a word."""
        step = Step(name, skipped=why)
        self.steps.append(step)
        self.screen.ended(step)

    def expect(self, what: str, expected: Any, found: Any) -> None:
        """Check a document; `what` is said when it is as expected."""
        words = difference(expected, found)
        if words is not None:
            raise MismatchError(f"{what}: {words}")
        self.steps[-1].checks.append(what)

    @property
    def failed(self) -> list[str]:
        """The names of the steps that did not go as they should."""
        return [step.name for step in self.steps if step.fault is not None]

    # Commands.

    def show(self, *arguments: str, status: int = 0, lines: int = ALL) -> str:
        """Run a verb for people to see, check its exit status, return what it printed."""
        self.screen.command(f"stdiod {shlex.join(arguments)}")
        output = self.screen.output(limit=lines)
        ended = self._watch([*self._stdiod, *arguments], output)
        output.finish()
        # People have just seen what it said.
        self._note(arguments, ended, status, output.text if self.screen.as_json else "")
        return output.text

    def ask(self, *arguments: str, status: int = 0, shown: bool = False) -> list[Any]:
        """Run a verb with `--json`, check its exit status, return its documents."""
        arguments = (*arguments, "--json")
        try:
            done = subprocess.run(
                [*self._stdiod, *arguments],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            words = f"`stdiod {shlex.join(arguments)}` did not end in {error.timeout:g} s"
            raise MismatchError(words) from None
        if shown:
            self.screen.command(f"stdiod {shlex.join(arguments)}")
            self.screen.output(limit=ALL).write(done.stdout)
        self._note(arguments, done.returncode, status, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def end(self) -> None:
        """Stop the daemon if it still runs; quietly."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*self._stdiod, "down"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_WITHIN_S,
                check=False,
            )

    # Processes.

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the demo that there are."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def wait_gone(self) -> list[str]:
        """Give what is left a moment to be gone; return what is not."""
        ends_at = time.monotonic() + GONE_WITHIN_S
        while (left := self.processes()) and time.monotonic() < ends_at:
            time.sleep(0.02)
        return [_described(process) for process in left]

    def kill_rest(self) -> None:
        """Kill whatever is left; again, for what was started meanwhile."""
        ends_at = time.monotonic() + GONE_WITHIN_S
        while (left := self.processes()) and time.monotonic() < ends_at:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            # A zombie has no environment any more, and holds nothing.
            return process.environ().get("TMPDIR") == str(self.scratch)
        except (psutil.Error, OSError):
            return False

    def _watch(self, command: list[str], output: Any) -> int:
        """Run a command and hand its output on as it comes; on a terminal it has colours."""
        if self.screen.coloured:
            reading, writing = pty.openpty()
        else:
            reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        watchdog = threading.Timer(COMMAND_WITHIN_S, process.kill)
        watchdog.daemon = True  # an interrupt may come before the cancel below can be reached
        try:
            watchdog.start()
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            while data := _read(reading):
                output.write(decoder.decode(data).replace("\r\n", "\n"))
            return process.wait()
        finally:
            watchdog.cancel()
            os.close(reading)
            if process.poll() is None:
                process.kill()  # what it leaves is found at the end
                process.wait()

    def _note(self, arguments: tuple[str, ...], ended: int, status: int, said: str = "") -> None:
        line = shlex.join(("stdiod", *arguments))
        self.steps[-1].commands.append({"command": line, "exit_status": ended})
        if ended != status:
            words = f"`{line}`: expected exit status {status}, found {ended}"
            raise MismatchError(f"{words}; it said: {said.strip()}" if said.strip() else words)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""  # how a pseudo-terminal says that nobody writes to it any more
        raise


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {shlex.join(process.cmdline())}"
    except psutil.Error:
        return f"{process.pid}"
