"""Who takes part in a play of promises: processes that say they live, and clients that ask."""

from __future__ import annotations

import select
import socket
from typing import Any, NamedTuple

import trio

from tests.faces.lines import Client, request

BOUND_S = 60.0
"""How long anything may take that has to come; the modules' own timeouts are well below it."""

INVOKES: tuple[dict[str, Any], ...] = (
    {"word": "hello"},
    {"fault": "event+event"},
    {"fault": "not_ok"},
    {"fault": "flood", "events": 2000},
    {"fault": "stderr", "bytes": 200_000},
    {"fault": "hang", "timeout_s": 0.05},
    {"fault": "silent", "timeout_s": 0.05},
    {"fault": "exit", "code": 3},
    {"fault": "die", "signal": 11},
    {"fault": "done+exit", "code": 0},
    {"fault": "close_stdout+hang"},
    {"fault": "close_stdin+hang", "timeout_s": 0.05},
    {"fault": "ignore_sigterm+hang", "timeout_s": 0.05},
    {"fault": "grandchild"},
    {"fault": "grandchild+exit", "code": 1},
    {"fault": "escapee"},
    {"fault": "escapee+die", "signal": 9},
    {"fault": "banner"},
    {"fault": "half_line+exit"},
    {"fault": "stop_self", "timeout_s": 0.05},
)


class Process(NamedTuple):
    """A process that said that it lives."""

    role: str
    pid: int
    instance: str
    link: socket.socket
    pidfd: int
    began: int
    """Clock ticks since boot."""

    @property
    def slot(self) -> str:
        return self.instance.partition("#")[0]

    @property
    def generation(self) -> int:
        return int(self.instance.partition("#")[2])

    def alive(self) -> bool:
        # Both, since a child that was being forked when this one died has its socket a moment more.
        return not any(select.select([one], [], [], 0)[0] for one in (self.link, self.pidfd))


class Asker:
    """A client, its open requests, and what came back."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.open: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self.scope = trio.CancelScope()
        self.closed = trio.Event()
        self._answered = trio.Event()
        self._number = 0

    async def ask(self, tool: str, **content: Any) -> str:
        self._number += 1
        number = str(self._number)
        self.open[number] = {"tool": tool, **content}
        await self.client.send(request(number, tool, **content))
        return number

    async def read(self) -> None:
        while (line := await self.client.line()) is not None:
            number = line["requestId"]
            assert number in self.open, f"a line after the answer, or for nobody: {line}"
            if line["type"] == "done":
                del self.open[number]
                self.answers[number] = line
                self._answered.set()
                self._answered = trio.Event()

    async def all_answered(self) -> None:
        with trio.move_on_after(BOUND_S):
            while self.open:
                await self._answered.wait()
        assert not self.open, f"never answered: {self.open}"

    async def answer(self, tool: str, op: str, **args: Any) -> dict[str, Any]:
        number = await self.ask(tool, op=op, args=args)
        with trio.fail_after(BOUND_S):
            while number not in self.answers:
                await self._answered.wait()
        return self.answers.pop(number)
