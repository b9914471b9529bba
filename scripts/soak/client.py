"""A client of the control socket that knows of each request what became of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import trio

from scripts.soak.report import Report

ANSWERED_WITHIN_S: Final = 60.0
"""Every module's own bounds are far below this."""
NAMELESS: Final = ""
"""Stands for the id of a request that has none."""


class RefusedError(Exception):
    """The daemon refused an op of its own, or hung up before its answer came."""


class Client:
    """One connection; the requests on it overlap."""

    def __init__(self, stream: trio.SocketStream, report: Report) -> None:
        self.open: dict[str, str] = {}
        """Requests without an outcome, by id, in words."""
        self.unhurried: set[str] = set()
        """Requests that a suspension alone could make late."""
        self.killed = False
        """Set before the daemon is killed: what is open then has no outcome."""
        self.gate = trio.Event()
        """A slow client reads nothing until this is set."""
        self.gate.set()
        self._stream, self._report = stream, report
        self._numbers = itertools.count(1)
        self._sending = trio.Lock()
        self._hung_up = False
        self._answers: dict[str, dict[str, Any]] = {}
        """Of the daemon's own ops."""
        self._changed = trio.Event()

    @classmethod
    async def connect(cls, path: Path, report: Report) -> Self:
        """Connect to a daemon."""
        return cls(await trio.open_unix_socket(path), report)

    async def send(self, tool: str, op: str, args: Any, timeout_s: float = 5) -> str:
        """Write an invoke and return its id."""
        number = f"s{next(self._numbers)}"
        content = {"op": op, "args": args}
        if tool != "supervisor":
            content["timeout_s"] = timeout_s
        request = {"tool": tool, "operation": "invoke", "input": content}
        line = json.dumps({"requestId": number, **request}).encode() + b"\n"
        await self._send(number, f"{tool}.{op} {args}", line)
        return number

    async def send_rest(self, rest: bytes) -> None:
        """Write a request of which all but its id is given as it is to stand there."""
        number = f"s{next(self._numbers)}"
        line = b'{"requestId":"%s",%s}\n' % (number.encode(), rest)
        await self._send(number, line[:80].decode(), line)

    async def send_nameless(self, line: bytes) -> None:
        """Write a line whose answer has no id; one at a time."""
        if NAMELESS not in self.open:
            await self._send(NAMELESS, line[:80].decode(), line)

    async def cancel(self, number: str) -> None:
        """Take a request back; its one answer may have crossed this."""
        await self._write(b'{"requestId":"%s","operation":"cancel"}\n' % number.encode())

    async def finished(self, number: str) -> None:
        """Return once a request has its answer, or will have none."""
        await self._until(lambda: number not in self.open)

    async def ask(self, op: str, **args: Any) -> dict[str, Any]:
        """Run one of the daemon's own ops and return its result; raises `RefusedError`."""
        with trio.fail_after(ANSWERED_WITHIN_S):
            number = await self.send("supervisor", op, args)
            await self.finished(number)
        answer = self._answers.pop(number, None)
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
            await self._until(lambda: not self.open)
        self._lose("no answer in time")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()

    async def _send(self, number: str, words: str, line: bytes) -> None:
        self.open[number] = words
        self._report.asked += 1
        await self._write(line)

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
            words = self.open.pop(number)
            error = line.get("error", {})
            reason = error.get("details", {}).get("reason", "its own")
            outcome = "ok" if line["ok"] else f"{error['code']}/{reason}"
            self._report.outcomes[outcome] += 1
            if number in self.unhurried:
                self.unhurried.discard(number)
                self._report.unhurried += 1
                if outcome == "timeout/deadline":
                    self._report.late.append(words)
            if words.startswith("supervisor."):
                self._answers[number] = line
            self._has_changed()

    def _account(self) -> None:
        if self._hung_up:
            self._report.closed_by_us += len(self.open)
        elif self.killed:
            self._report.closed_by_kill += len(self.open)
        else:
            self._lose("hung up on")
        self.open.clear()
        self._has_changed()

    def _lose(self, why: str) -> None:
        self._report.lost += [f"{why}: {words}" for words in self.open.values()]
        self._report.asked -= len(self.open)
        self.open.clear()

    def _has_changed(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
