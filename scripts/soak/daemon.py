"""What a soak looks at from outside: a daemon's process, clients of its socket, and the report.

The client is stricter than the product's own: a line for a request that is not open is a fault,
and a request that is taken back still has to have its one answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from tests.system.daemon import Daemon

WITHIN_S: Final = 60.0
"""For a start, an end, the end of its processes and any answer, on a machine with much to do."""
OPEN_FILES: Final = 1024
"""What it may have open, and so few that a crowd gets to the end of them."""
NAMELESS: Final = ""
"""Stands for the id of a request that has none."""
OWN_BYTES: Final = 150 << 20
"""What the daemon's memory must stay under, beside what its ledger says that it held for others
(`supervisor.runtime.held_bytes`): itself, a thousand modules, and what one turn takes."""
STALL_MS: Final = 50.0
"""For so long the daemon's event loop may be held up by its own doing."""
SHOWN: Final = 20
"""So many faults are shown to people."""


# --- The report --------------------------------------------------------------


@dataclass
class Report:
    """Everything that is counted, and all that must not be."""

    seed: int
    patient: bool = False
    """Whether nothing that took long is a fault."""
    seconds: float = 0.0
    daemons: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of the answered requests: `ok`, or code and reason."""
    closed_by_us: int = 0
    """Requests whose client hung up."""
    closed_by_kill: int = 0
    """Requests that were open when the daemon was killed."""
    peak_bytes: int = 0
    """Of the daemon that had most beside what it held."""
    held_bytes: int = 0
    """The most that this daemon ever held for others."""
    suspensions: int = 0
    """As the daemons told them."""
    unhurried: int = 0
    """Requests in flight when the daemon was suspended, that had time enough."""
    refused_connections: int = 0
    longest_stall: dict[str, Any] | None = None
    """Of all daemons, as they told it."""
    lost: list[str] = field(default_factory=list)
    """Requests that had no outcome, or more than one."""
    late: list[str] = field(default_factory=list)
    """Unhurried requests that ended by their deadline."""
    processes_left: list[str] = field(default_factory=list)
    files_left: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the daemon itself logged as an error, or how it ended if not in order."""

    def note(self, daemon: dict[str, Any], peak_bytes: int) -> None:
        """Take what a daemon says of itself before its end, and its memory."""
        held = daemon["held_bytes"]["most"]
        if peak_bytes - held > self.peak_bytes - self.held_bytes:
            self.peak_bytes, self.held_bytes = peak_bytes, held
        self.suspensions += daemon["suspensions"]["count"]
        self.refused_connections += daemon["connections"]["refused"]
        stalls = filter(None, (self.longest_stall, daemon["longest_stall"]))
        self.longest_stall = max(stalls, key=lambda one: float(one["ms"]), default=None)

    def faults(self) -> list[str]:
        """Return all that must not be, in words."""
        found = [f"lost: {one}" for one in self.lost]
        found += [f"process left: {one}" for one in self.processes_left]
        found += [f"descriptor left: {one}" for one in self.files_left]
        found += [f"error: {one}" for one in self.errors]
        own_bytes = self.peak_bytes - self.held_bytes
        if own_bytes > OWN_BYTES:
            words = f"{own_bytes >> 20} MB beside what it held for others"
            found.append(f"the daemon's memory had {words}; {OWN_BYTES >> 20} are expected")
        if not self.patient:
            found += [f"late by a suspension alone: {one}" for one in self.late]
            if self.longest_stall is not None and self.longest_stall["ms"] > STALL_MS:
                found.append(f"the event loop did not come round for {self._stall()}")
        if self.suspensions < (made := self.actions["suspend"]):
            found.append(f"of {made} suspensions, {self.suspensions} were told by the daemon")
        accounted = self.outcomes.total() + self.closed_by_us + self.closed_by_kill
        if not self.lost and self.asked != accounted:
            found.append(f"of {self.asked} requests, {accounted} are accounted for")
        return found

    def document(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        faults = self.faults()
        more = {"answered": self.outcomes.total(), "faults": faults, "clean": not faults}
        return vars(self) | more

    def text(self) -> str:
        lines, faults = [], self.faults()
        for name, value in (vars(self) | {"longest_stall": self._stall()}).items():
            words = str(value)
            if isinstance(value, Counter):
                each = ", ".join(f"{one} {number}" for one, number in value.most_common())
                words = f"{value.total()}: {each}"
            elif isinstance(value, list):
                words = str(len(value) or "none")
            lines.append(f"{name.replace('_', ' '):20}{words}")
        lines += [f"FAULT {one}" for one in faults[:SHOWN]]
        lines += [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        return "\n".join([*lines, f"NOT clean: {len(faults)} faults" if faults else "clean"])

    def _stall(self) -> str:
        found = self.longest_stall
        if found is None:
            return "none"
        return f"{found['ms']:g} ms, {found['culprit'] or 'nobody known'} ({found['doing']})"


# --- The process -------------------------------------------------------------


class Soaked(Daemon):
    """A daemon of the system tests, of which nothing that is amiss ends the soak."""

    def __init__(self, folder: Path, report: Report) -> None:
        """Start it; returns when clients can connect."""
        self._report = report
        limited = ("sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh")
        super().__init__(folder, options=("--http", "sock"), wait=False, anew=True, within=limited)
        self.client.close()
        self._files_at_start = self.open_files()

    async def suspend(self, seconds: float) -> None:
        """Stop it for a while, as a snapshot of the machine would."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            await trio.sleep(seconds)
        finally:
            self.process.send_signal(signal.SIGCONT)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and see that its modules go with it."""
        self.process.send_signal(number)
        try:
            status = await trio.to_thread.run_sync(self.process.wait, WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
            self._report.errors.append("the daemon did not end, and was killed")
        left = await trio.to_thread.run_sync(self.kill_left)
        self._report.processes_left += [
            f"{pid} after {number.name} of the daemon: {words[-120:]}"
            for pid, words in left.items()
        ]
        if number is signal.SIGTERM and status:
            self._report.errors.append(f"the daemon ended with {status}")
        for line in self.log().splitlines():
            if '"level": "error"' in line or not line.startswith("{"):
                self._report.errors.append(line[:500])

    def compare_files(self) -> None:
        """Note if it has more descriptors than at its start, without a module and a client."""
        try:
            self.wait_open_files(self._files_at_start)
        except AssertionError as error:
            self._report.files_left.append(f"{self.open_files()} are open; {error}")


# --- Clients -----------------------------------------------------------------


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
            vars(self._report)[self.ends_by] += len(self.open)
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


def outcome(answer: dict[str, Any]) -> str:
    """Return `ok`, or the code and reason of an error."""
    if answer["ok"]:
        return "ok"
    reason = answer["error"].get("details", {}).get("reason", "its own")
    return f"{answer['error']['code']}/{reason}"
