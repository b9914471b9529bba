"""The daemon of a soak: started through the `stdiod` command, killed, ended, measured.

All its processes inherit a TMPDIR of their own; by that mark they are found wherever they went.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil
import trio

from scripts.soak.tally import Tally

READY_WITHIN_S: Final = 60.0
ENDS_WITHIN_S: Final = 60.0
GONE_WITHIN_S: Final = 60.0
"""How long a process may be found after its daemon's end, on a machine with much else to do."""

OPEN_FILES: Final = 1024
"""What it may have open, and so few that a crowd gets to the end of them."""

KEPT_READY = 4
"""Sockets and pidfds of the spawner and its next process, from the first lone call of a tool on."""


class Daemon:
    """One daemon at a time, in one folder."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        self.modules = folder / "modules"
        self.socket = folder / "socket"
        self.http = folder / "http.sock"
        self.data_dir = folder / "data"
        self._log = folder / "log"
        self._mark = folder / "tmp"
        self._mark.mkdir()
        self._tally = tally
        self._files: set[int] = set()
        self._process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    async def start(self) -> None:
        """Start it; returns when clients can connect."""
        reading = self._spawn()
        try:
            with trio.fail_after(READY_WITHIN_S):
                await trio.lowlevel.wait_readable(reading)
            if not os.read(reading, 16):
                words = f"the daemon did not start: {self._log.read_text()[-2000:]}"
                raise RuntimeError(words)
        finally:
            os.close(reading)
        self._tally.daemons += 1
        self._files = set(self.open_files())

    def _spawn(self) -> int:
        """Run it; returns the end of a pipe from which it says that it is ready."""
        limited = ["sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh"]
        stdiod = [*limited, sys.executable, "-m", "scripts.soak.stalling"]
        where = ["--socket", str(self.socket), "--data-dir", str(self.data_dir), "--http", "sock"]
        reading, writing = os.pipe()
        ready = ["--log-format", "json", "--ready-fd", str(writing)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*stdiod, "run", str(self.modules), *where, *ready],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self._mark)},
                pass_fds=[writing],
                start_new_session=True,  # a Ctrl-C is for us
            )
        os.close(writing)
        return reading

    def stall(self) -> None:
        """Have its event loop wait for once (`stalling.BLOCKED_S`)."""
        self._process.send_signal(signal.SIGUSR1)

    async def suspend(self, seconds: float) -> None:
        """Stop it for a while, as a snapshot of the machine would."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            await trio.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it as nothing can be killed more, and see that its modules go with it."""
        self._process.kill()
        await self._ended()
        await self.expect_none_left("kill -9 of the daemon")

    async def end(self) -> None:
        """End it in order."""
        self._process.send_signal(signal.SIGTERM)
        status = await self._ended()
        if status != 0:
            self._tally.errors.append(f"the daemon ended with {status}")
        await self.expect_none_left("the daemon's end")
        for line in self._log.read_text(errors="replace").splitlines():
            if '"level": "error"' in line or not line.startswith("{"):
                self._tally.errors.append(line[:500])

    def peak_bytes(self) -> int:
        """Return its greatest memory so far (VmHWM)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(self.pid)

    def open_files(self) -> dict[int, str]:
        """Return its descriptors, but for the logs that it happens to write."""
        found: dict[int, str] = {}
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = link.readlink()
                if not target.is_relative_to(self.data_dir):
                    found[int(link.name)] = str(target)
        return found

    def has_more_files(self) -> bool:
        """Whether it has more descriptors than it began with, and than it keeps ready."""
        return len(self.open_files()) > len(self._files) + KEPT_READY

    def compare_files(self) -> None:
        """Note the descriptors that it has now, with no module and no client, and had not then."""
        now = self.open_files()
        extra = len(now) - len(self._files) - KEPT_READY
        if extra > 0:
            self._tally.files_left += [f"{number} {name}" for number, name in now.items()][-extra:]

    def marked(self) -> list[psutil.Process]:
        """Return all its processes that there are, itself included."""
        return [process for process in psutil.process_iter() if self.is_ours(process)]

    def is_ours(self, process: psutil.Process) -> bool:
        """Whether a process was started by it, or by what it started."""
        try:
            return process.environ().get("TMPDIR") == str(self._mark)
        except (psutil.Error, OSError):
            return False  # a zombie has no environment any more, and holds nothing

    async def expect_none_left(self, after: str) -> None:
        """Give what is left a moment to be gone; what is not is noted, and killed."""
        ends_at = time.monotonic() + GONE_WITHIN_S
        while (left := self.marked()) and time.monotonic() < ends_at:  # noqa: ASYNC110
            await trio.sleep(0.05)
        for process in left:
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())[-120:]
                self._tally.processes_left.append(f"{process.pid} after {after}: {words}")
                process.kill()

    async def _ended(self) -> int | None:
        with trio.move_on_after(ENDS_WITHIN_S):
            while self._process.poll() is None:  # noqa: ASYNC110 - a process sets no event
                await trio.sleep(0.02)
        if self._process.poll() is None:
            self._tally.errors.append("the daemon did not end, and was killed")
            self._process.kill()
            self._process.wait()
        return self._process.returncode
