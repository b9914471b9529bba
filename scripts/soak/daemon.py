"""The daemon of a soak, looked at from outside: its process, and clients of its control socket.

The client is stricter than the product's own: a line for a request that is not open is a fault,
and a request that is taken back still has to have its one answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import trio

from scripts.checkout import STDIOD, started, wait_gone
from scripts.soak.report import Report

WITHIN_S: Final = 60.0
"""For a start, an end, the end of its processes and any answer, on a machine with much to do."""
OPEN_FILES: Final = 1024
"""What it may have open, and so few that a crowd gets to the end of them."""
NAMELESS: Final = ""
"""Stands for the id of a request that has none."""


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

    def peak_bytes(self) -> int:
        """Return its greatest memory so far (VmHWM)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    async def compare_files(self) -> None:
        """Note the descriptors that it has without a module and a client, and did not begin with.

        They have a moment to be closed.
        """
        most, ends_at = self._files_at_start, time.monotonic() + WITHIN_S
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


@dataclass
class Request:
    words: str
    done: trio.Event = field(default_factory=trio.Event)
    answer: dict[str, Any] | None = None

    async def ended(self) -> dict[str, Any] | None:
        """Return its answer; None if it has none in time, or can have none any more."""
        with trio.move_on_after(WITHIN_S):
            await self.done.wait()
        return self.answer


class Client:
    """One connection; the requests on it overlap."""

    def __init__(self, stream: trio.SocketStream, report: Report) -> None:
        self.open: dict[str, Request] = {}
        self.gate = trio.Event()
        """A slow client reads nothing until this is set."""
        self.gate.set()
        self.ends_by = ""
        """The count of the report that what is open belongs to once the connection has ended."""
        self._stream, self._report = stream, report
        self._numbers = itertools.count(1)
        self._sending = trio.Lock()

    async def send(self, tool: str, op: str, args: Any, timeout_s: float = 5) -> Request:
        content = {"op": op, "args": args}
        if tool != "supervisor":
            content["timeout_s"] = timeout_s
        request = {"tool": tool, "operation": "invoke", "input": content}
        return await self.send_rest(json.dumps(request)[1:-1].encode())

    async def send_rest(self, rest: bytes, number: str | None = None) -> Request:
        """Write a request of which all but its id is given as it is to stand there.

        An answer without an id is to the request that has the number `NAMELESS`: one at a time.
        """
        number = f"s{next(self._numbers)}" if number is None else number
        if number in self.open:
            return self.open[number]
        request = self.open[number] = Request(rest[:200].decode())
        self._report.asked += 1
        await self._write(b'{"requestId":"%s",%s}\n' % (number.encode(), rest))
        return request

    async def cancel(self, number: str) -> None:
        """Take a request back; its one answer may have crossed this."""
        await self._write(b'{"requestId":"%s","operation":"cancel"}\n' % number.encode())

    async def ask(self, op: str, **args: Any) -> dict[str, Any]:
        """Run one of the daemon's own ops and return its result; raises `RuntimeError`."""
        answer = await (await self.send("supervisor", op, args)).ended()
        if answer is None or not answer["ok"]:
            raise RuntimeError(f"the daemon did not do `{op}`: {answer}")
        return dict(answer["result"])

    async def _write(self, line: bytes) -> None:
        # The reader sees the same end, and accounts for it.
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with self._sending:
                await self._stream.send_all(line)

    async def read(self) -> None:
        """Take what comes until the connection ends, then account for what is open."""
        held = b""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                await self.gate.wait()
                if not (data := await self._stream.receive_some(65536)):
                    break
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        if self.ends_by:
            number = getattr(self._report, self.ends_by) + len(self.open)
            setattr(self._report, self.ends_by, number)
        else:
            self._lose("hung up on")
        while self.open:
            self.open.popitem()[1].done.set()
        await trio.aclose_forcefully(self._stream)

    def _take(self, line: dict[str, Any]) -> None:
        number = line.get("requestId", NAMELESS)
        if number not in self.open:
            self._report.lost.append(f"a line for no open request: {json.dumps(line)[:200]}")
        elif line["type"] == "done":
            request = self.open.pop(number)
            request.answer = line
            request.done.set()
            self._report.outcomes[outcome(line)] += 1

    async def hang_up(self) -> None:
        """Close the connection, whatever is open."""
        self.ends_by = "closed_by_us"
        self.gate.set()
        await trio.aclose_forcefully(self._stream)

    async def wait_answered(self) -> None:
        """Wait until nothing is open; what stays open for too long is lost."""
        self.gate.set()
        with trio.move_on_after(WITHIN_S):
            for request in list(self.open.values()):
                await request.done.wait()
        self._lose("no answer in time")
        self.open.clear()

    def _lose(self, why: str) -> None:
        self._report.lost += [f"{why}: {request.words}" for request in self.open.values()]
        self._report.asked -= len(self.open)


def outcome(answer: dict[str, Any]) -> str:
    """Return `ok`, or the code and reason of an error."""
    if answer["ok"]:
        return "ok"
    reason = answer["error"].get("details", {}).get("reason", "its own")
    return f"{answer['error']['code']}/{reason}"
