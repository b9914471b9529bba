"""Clients of the control socket that know of each request what became of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Final

import trio

from scripts.soak.tally import Tally

ANSWERED_WITHIN_S: Final = 60.0
"""Every module's own bounds are far below this."""


NAMELESS: Final = ""
"""Stands for the id of a request that has none."""


class HungUpError(Exception):
    """The connection ended before the answer came."""


class Client:
    """One connection; the requests on it overlap."""

    def __init__(self, stream: trio.SocketStream, tally: Tally) -> None:
        self.open: dict[str, str] = {}
        self.unhurried: set[str] = set()
        """Requests that a suspension alone could make late."""
        self.killed = False
        """Set before the daemon is killed: what is open then has no outcome."""
        self.gate = trio.Event()
        """A slow client reads nothing until this is set."""
        self.gate.set()
        self._stream = stream
        self._tally = tally
        self._numbers = itertools.count(1)
        self._sending = trio.Lock()
        self._hung_up = False
        self._waiting: dict[str, trio.Event] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._idle = trio.Event()

    async def send(self, tool: str, op: str, args: dict[str, Any], timeout_s: float = 5) -> str:
        """Write an invoke and return its id."""
        number = self._next_number()
        await self._send(number, tool, op, args, timeout_s)
        return number

    async def send_nameless(self, line: bytes) -> None:
        """Write a line whose answer names nobody; one at a time."""
        if NAMELESS in self.open:
            return
        self.open[NAMELESS] = line[:80].decode()
        self._tally.asked += 1
        await self._write_line(line)

    async def send_raw(self, rest: bytes) -> None:
        """Write an invoke of which all but its id is given as it is to stand there."""
        number = self._next_number()
        self.open[number] = rest[:80].decode()
        self._tally.asked += 1
        await self._write_line(b'{"requestId":"%s",%s}\n' % (number.encode(), rest))

    async def cancel(self, number: str) -> None:
        """Take a request back; its one answer may have crossed this."""
        await self._write({"requestId": number, "operation": "cancel"})

    async def finished(self, number: str) -> None:
        """Return once a request has its answer, or will have none."""
        while number in self.open:  # noqa: ASYNC110 - one of many is no event
            await trio.sleep(0.01)

    async def ask(self, op: str, **args: Any) -> dict[str, Any]:
        """Run one of the daemon's own ops and return its `done`; raises `HungUpError`."""
        number = self._next_number()
        self._waiting[number] = answered = trio.Event()
        await self._send(number, "supervisor", op, args)
        if number in self.open:
            await answered.wait()
        del self._waiting[number]
        if number not in self._answers:
            raise HungUpError
        return self._answers.pop(number)

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
            self._account()
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
            while self.open:
                self._idle = trio.Event()
                await self._idle.wait()
        self._tally.lost += [f"no answer in time: {words}" for words in self.open.values()]
        self._tally.asked -= len(self.open)
        self.open.clear()

    async def _send(
        self, number: str, tool: str, op: str, args: dict[str, Any], timeout_s: float = 5
    ) -> None:
        content = {"op": op, "args": args, "timeout_s": timeout_s}
        if tool == "supervisor":
            del content["timeout_s"]
        self.open[number] = f"{tool}.{op} {json.dumps(args)}"
        self._tally.asked += 1
        await self._write(
            {"requestId": number, "tool": tool, "operation": "invoke", "input": content}
        )

    def _next_number(self) -> str:
        return f"s{next(self._numbers)}"

    async def _write(self, frame: dict[str, Any]) -> None:
        await self._write_line(json.dumps(frame).encode() + b"\n")

    async def _write_line(self, line: bytes) -> None:
        try:
            async with self._sending:
                await self._stream.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader sees the same end, and accounts for it

    def _take(self, line: dict[str, Any]) -> None:
        number = line.get("requestId", NAMELESS)
        words = self.open.get(number)
        if words is None:
            self._tally.lost.append(f"a line for no open request: {json.dumps(line)[:200]}")
        elif line["type"] == "done":
            del self.open[number]
            error = line.get("error", {})
            reason = error.get("details", {}).get("reason", "its own")
            outcome = "ok" if line["ok"] else f"{error['code']}/{reason}"
            self._tally.outcomes[outcome] += 1
            if number in self.unhurried:
                self.unhurried.discard(number)
                self._tally.unhurried += 1
                if outcome == "timeout/deadline":
                    self._tally.late.append(words)
            if number in self._waiting:
                self._answers[number] = line
                self._waiting[number].set()
            if not self.open:
                self._idle.set()

    def _account(self) -> None:
        if self._hung_up:
            self._tally.closed_by_us += len(self.open)
        elif self.killed:
            self._tally.closed_by_kill += len(self.open)
        else:
            self._tally.lost += [f"hung up on: {words}" for words in self.open.values()]
            self._tally.asked -= len(self.open)
        self.open.clear()
        self._idle.set()
        for waiting in self._waiting.values():
            waiting.set()


async def connect(path: Path, tally: Tally) -> Client:
    """Connect to a daemon."""
    return Client(await trio.open_unix_socket(path), tally)
