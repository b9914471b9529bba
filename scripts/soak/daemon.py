"""The daemon of a soak: started, suspended, killed, ended, measured."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import trio
from prometheus_client.parser import text_string_to_metric_families

from scripts.checkout import started, with_tmpdir
from scripts.soak.report import Report

WITHIN_S: Final = 60.0
"""For a start, an end, and the end of its processes, on a machine with much else to do."""
OPEN_FILES: Final = 1024
"""What it may have open, and so few that a crowd gets to the end of them."""
KEPT_READY: Final = 4
"""Sockets and pidfds of the spawner and its next process, from the first lone call of a tool on."""

SCRAPE: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
OF_MODULE: Final = {
    "stdiod_module_late_lines_total": ("counters", "late_lines"),
    "stdiod_module_quarantined_lines_total": ("counters", "quarantined_lines"),
    "stdiod_module_left_out_log_lines_total": ("counters", "left_out_log_lines"),
    "stdiod_module_restarts_total": ("restarts",),
    "stdiod_module_in_flight": ("in_flight",),
    "stdiod_module_queued": ("queued",),
    "stdiod_invocations_total": ("counters", "invocations"),
    "failures": ("counters", "failures"),
    "stdiod_invocation_duration_seconds_count": ("latency_ms", "count"),
}
"""What is compared of each module, all other labels added up; and where it is in `status`."""
OF_DAEMON: Final = {
    "stdiod_reloads_total": ("reloads",),
    "stdiod_suspensions_total": ("suspensions", "count"),
    "stdiod_dropped_log_bytes_total": ("dropped_log_bytes",),
    "stdiod_journal_dropped_total": ("journal", "dropped"),
}


class Daemon:
    """One daemon at a time, in one folder. All its processes inherit a TMPDIR of their own."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.modules, self.socket = folder / "modules", folder / "socket"
        self.data_dir = folder / "data"
        self.scratch = folder / "tmp"
        self.scratch.mkdir()
        self._report = report
        self._log = folder / "log"
        self._files_at_start = 0
        self._process: subprocess.Popen[bytes]

    async def start(self) -> None:
        """Start it; returns when clients can connect."""
        limited = ["sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh"]
        where = ["--socket", str(self.socket), "--data-dir", str(self.data_dir), "--http", "sock"]
        stdiod = [sys.executable, "-m", "scripts.soak.stalling", "run", str(self.modules)]
        command = [*limited, *stdiod, *where, "--log-format", "json"]
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        starting = partial(started, command, self._log, environment)
        self._process = await trio.to_thread.run_sync(starting)
        self._report.daemons += 1
        self._files_at_start = len(self._open_files())

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

    async def compare_metrics(self, status: dict[str, Any]) -> None:
        """Hold `/metrics` of an idle daemon to its status, as a Prometheus server would read it."""
        received = b""
        async with await trio.open_unix_socket(self.socket.with_name("http.sock")) as stream:
            await stream.send_all(SCRAPE)
            async for data in stream:
                received += data
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            self._report.metrics.append(head.decode()[:200])
            return
        self._report.metrics += differences(body.decode(), status)
        self._report.series = sum(not line.startswith(b"#") for line in body.splitlines())

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
        ends_at = time.monotonic() + WITHIN_S
        while self._process.poll() is None and time.monotonic() < ends_at:  # noqa: ASYNC110
            await trio.sleep(0.02)
        if self._process.poll() is None:
            self._report.errors.append("the daemon did not end, and was killed")
            self._process.kill()
        status = self._process.wait()
        ends_at = time.monotonic() + WITHIN_S
        while (left := with_tmpdir(self.scratch)) and time.monotonic() < ends_at:  # noqa: ASYNC110
            await trio.sleep(0.05)
        for process in left:
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())[-120:]
                self._report.processes_left.append(f"{process.pid} after {after}: {words}")
                process.kill()
        return status


def differences(text: str, status: dict[str, Any]) -> list[str]:
    """Return in words where the metrics of an idle daemon are not what its `status` says."""
    figures: defaultdict[tuple[str, str], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            module = one.labels.get("module", "")
            figures[one.name, module] += one.value
            if one.name == "stdiod_invocations_total" and one.labels["outcome"] != "ok":
                figures["failures", module] += one.value
    compared = [(name, "", status["daemon"], path) for name, path in OF_DAEMON.items()]
    for module in status["modules"]:
        compared += [(name, module["name"], module, path) for name, path in OF_MODULE.items()]
    found = []
    for name, module, said, path in compared:
        for key in path:
            said = said[key]  # noqa: PLW2901 - deeper and deeper
        if figures[name, module] != float(said):
            whose = module or "the daemon"
            found.append(f"{name} of {whose} is {figures[name, module]:g}, status says {said}")
    there = {module for name, module in figures if name == "stdiod_module_info"}
    if there != {module["name"] for module in status["modules"]}:
        found.append(f"/metrics has the modules {sorted(there)}, and status others")
    return found
