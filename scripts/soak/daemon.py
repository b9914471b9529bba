"""The daemon of a soak: started, suspended, killed, ended, and looked at from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import trio

from scripts.checkout import STDIOD, started, wait_gone
from scripts.soak.client import Report

WITHIN_S: Final = 60.0
"""For a start, an end, and the end of its processes, on a machine with much else to do."""
OPEN_FILES: Final = 1024
"""What it may have open, and so few that a crowd gets to the end of them."""
KEPT_READY: Final = 4
"""Sockets and pidfds of the spawner and its next process, from the first lone call of a tool on."""


class Daemon:
    """One daemon at a time, in one folder. All its processes inherit a TMPDIR of their own."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.modules, self.socket = folder / "modules", folder / "socket"
        self.data_dir, self.scratch = folder / "data", folder / "tmp"
        self._report = report
        self._log = folder / "log"
        self._files_at_start = 0
        self._process: subprocess.Popen[bytes]

    async def start(self) -> None:
        """Start it; returns when clients can connect."""
        limited = ["sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh"]
        where = ["--socket", str(self.socket), "--data-dir", str(self.data_dir), "--http", "sock"]
        command = [*limited, *STDIOD, "run", str(self.modules), *where, "--log-format", "json"]
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        starting = partial(started, command, self._log, environment)
        self._process = await trio.to_thread.run_sync(starting)
        self._report.daemons += 1
        self._files_at_start = len(self._open_files())

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
        await self._ended("kill -9 of the daemon")

    async def end(self) -> None:
        """End it in order, and read what it logged."""
        self._process.send_signal(signal.SIGTERM)
        status = await self._ended("the daemon's end")
        if status != 0:
            self._report.errors.append(f"the daemon ended with {status}")
        for line in self._log.read_text(errors="replace").splitlines():
            if '"level": "error"' in line or not line.startswith("{"):
                self._report.errors.append(line[:500])

    def peak_bytes(self) -> int:
        """Return its greatest memory so far (VmHWM)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    async def compare_files(self) -> None:
        """Note the descriptors that it has without a module and a client, and did not begin with.

        What it keeps ready is none of them; the others have a moment to be closed.
        """
        most, ends_at = self._files_at_start + KEPT_READY, time.monotonic() + WITHIN_S
        while len(found := self._open_files()) > most and time.monotonic() < ends_at:  # noqa: ASYNC110
            await trio.sleep(0.05)
        self._report.files_left += found[most:]

    def _open_files(self) -> list[str]:
        """Return its descriptors, but for the logs that it happens to write."""
        found = []
        for link in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if not (target := link.readlink()).is_relative_to(self.data_dir):
                    found.append(f"{link.name} {target}")
        return sorted(found, key=lambda one: int(one.split()[0]))

    async def _ended(self, after: str) -> int:
        """Wait for its end, and for that of its processes; note those that stay, and kill them."""
        try:
            await trio.to_thread.run_sync(self._process.wait, WITHIN_S)
        except subprocess.TimeoutExpired:
            self._report.errors.append("the daemon did not end, and was killed")
            self._process.kill()
        for process in await trio.to_thread.run_sync(wait_gone, self.scratch, WITHIN_S):
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())[-120:]
                self._report.processes_left.append(f"{process.pid} after {after}: {words}")
                process.kill()
        return self._process.wait()
