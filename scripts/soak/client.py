"""The report of a soak, and a client of the control socket that tells it of each request."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import trio

OWN_BYTES: Final = 150 << 20
"""What the daemon's memory must stay under, beside what its ledger says that it held for others
(`supervisor.runtime.held_bytes`): itself, a thousand modules, and what one turn takes."""
STALL_MS: Final = 50.0
"""For so long the daemon's event loop may be held up by its own doing."""
SHOWN: Final = 20
"""So many faults are shown to people."""
FAULTS: Final = {
    "lost": "lost",
    "processes_left": "process left",
    "files_left": "descriptor left",
    "errors": "error",
}
"""Lists of the report that have to be empty, and what is said of their entries."""

ANSWERED_WITHIN_S: Final = 60.0
"""Every module's own bounds are far below this."""
NAMELESS: Final = ""
"""Stands for the id of a request that has none."""


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
    """Of crowds."""
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
        stalls = [one for one in (self.longest_stall, daemon["longest_stall"]) if one is not None]
        self.longest_stall = max(stalls, key=lambda one: float(one["ms"]), default=None)

    def faults(self) -> list[str]:
        """Return all that must not be, in words."""
        found = [f"{words}: {one}" for name, words in FAULTS.items() for one in getattr(self, name)]
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
        return dict(vars(self)) | more

    def text(self) -> str:
        """Return the report as people read it."""
        faults = self.faults()
        rows = dict(vars(self)) | {"longest_stall": self._stall()}
        lines = [f"{name.replace('_', ' '):20}{_shown(value)}" for name, value in rows.items()]
        lines += [f"FAULT {one}" for one in faults[:SHOWN]]
        lines += [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        return "\n".join([*lines, f"NOT clean: {len(faults)} faults" if faults else "clean"])

    def _stall(self) -> str:
        found = self.longest_stall
        if found is None:
            return "none"
        return f"{found['ms']:g} ms, {found['culprit'] or 'nobody known'} ({found['doing']})"


def _shown(value: Any) -> str:
    match value:
        case Counter():
            most = ", ".join(f"{name} {number}" for name, number in value.most_common())
            return f"{value.total()}: {most}"
        case list():
            return str(len(value) or "none")
        case _:
            return str(value)


class RefusedError(Exception):
    """The daemon refused an op of its own, or did not answer it."""


@dataclass
class Request:
    """A request that waits for its answer."""

    words: str
    done: trio.Event = field(default_factory=trio.Event)
    answer: dict[str, Any] | None = None

    async def ended(self) -> dict[str, Any] | None:
        """Return its answer; None if it has none in time, or can have none any more."""
        with trio.move_on_after(ANSWERED_WITHIN_S):
            await self.done.wait()
        return self.answer


class Client:
    """One connection; the requests on it overlap."""

    def __init__(self, stream: trio.SocketStream, report: Report) -> None:
        self.open: dict[str, Request] = {}
        self.killed = False
        """Set before the daemon is killed: what is open then has no outcome."""
        self.gate = trio.Event()
        """A slow client reads nothing until this is set."""
        self.gate.set()
        self._stream, self._report = stream, report
        self._numbers = itertools.count(1)
        self._sending = trio.Lock()
        self._hung_up = False

    async def send(self, tool: str, op: str, args: Any, timeout_s: float = 5) -> Request:
        """Write an invoke."""
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
        """Run one of the daemon's own ops and return its result; raises `RefusedError`."""
        request = await self.send("supervisor", op, args)
        answer = await request.ended()
        if answer is None or not answer["ok"]:
            raise RefusedError(op, answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def read(self) -> None:
        """Take what comes until the connection ends, then account for what is open."""
        held = b""
        try:
            while True:
                await self.gate.wait()
                data = await self._stream.receive_some(65536)
                if not data:
                    break
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            if self._hung_up:
                self._report.closed_by_us += len(self.open)
            elif self.killed:
                self._report.closed_by_kill += len(self.open)
            else:
                self._lose("hung up on")
            while self.open:
                self.open.popitem()[1].done.set()
            await trio.aclose_forcefully(self._stream)

    async def hang_up(self) -> None:
        """Close the connection, whatever is open."""
        self._hung_up = True
        self.gate.set()
        await trio.aclose_forcefully(self._stream)

    async def wait_answered(self) -> None:
        """Wait until nothing is open; what stays open for too long is lost."""
        self.gate.set()
        with trio.move_on_after(ANSWERED_WITHIN_S):
            for request in list(self.open.values()):
                await request.done.wait()
        self._lose("no answer in time")
        self.open.clear()

    async def _write(self, line: bytes) -> None:
        try:
            async with self._sending:
                await self._stream.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader sees the same end, and accounts for it

    def _take(self, line: dict[str, Any]) -> None:
        number = line.get("requestId", NAMELESS)
        if number not in self.open:
            self._report.lost.append(f"a line for no open request: {json.dumps(line)[:200]}")
        elif line["type"] == "done":
            request = self.open.pop(number)
            request.answer = line
            request.done.set()
            self._report.outcomes[outcome(line)] += 1

    def _lose(self, why: str) -> None:
        self._report.lost += [f"{why}: {request.words}" for request in self.open.values()]
        self._report.asked -= len(self.open)


def outcome(answer: dict[str, Any]) -> str:
    """Return `ok`, or the code and reason of an error."""
    if answer["ok"]:
        return "ok"
    reason = answer["error"].get("details", {}).get("reason", "its own")
    return f"{answer['error']['code']}/{reason}"
