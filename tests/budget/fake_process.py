"""Modules without processes: this process is at both ends of their pipes (see `turns`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.containment.reaping import End
from supervisor.runtime.process.process import Opening
from supervisor.runtime.supervision import containers
from supervisor.runtime.turns import SharedTurn
from tests.budget.turns import Turns, read_all, write_some

EVENT = {
    "version": "0",
    "type": "ui_event",
    "event": "message.chunk",
    "payload": {"content": " to the sea and back again"},
}


class FakeContainment:
    """What holds nobody."""

    counts_memory = False

    def memory_breach(self) -> None:
        return None


class FakeProcess:
    """A module that answers all requests it has got with one write, when it is its turn."""

    pid = 4711
    opening = None
    remove_container = None
    unset_variables: tuple[str, ...] = ()
    tracer = None

    def __init__(self, name: str) -> None:
        self.containment = FakeContainment()
        self.ends = SharedTurn("nobody")
        self.answered = self.turns = 0
        self.turned = trio.Event()
        """Set with each turn, and then another one."""
        self._name = name
        self._exited = trio.Event()
        self._requests, stdin = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.stdin: int | None = stdin
        self.stdout, self._answers = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.stderr, self._complaints = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._unwritten = b""

    # Its own turn.

    def turn(self) -> bool:
        if self._exited.is_set():
            return False
        before = len(self._unwritten)
        for line in read_all(self._requests).splitlines():
            self._unwritten += self._answer(json.loads(line))
        had = len(self._unwritten)
        if had:
            self._unwritten = write_some(self._answers, self._unwritten)
        if had == before == len(self._unwritten):
            return False
        self.turns += 1
        self.turned.set()
        self.turned = trio.Event()
        return True

    def _answer(self, frame: dict[str, Any]) -> bytes:
        named = {"requestId": frame["requestId"]}
        self.answered += 1
        match frame["operation"]:
            case "health":
                return _line({**named, "status": "ok"})
            case "describe":
                facts = {"name": self._name, "version": "1", "kind": "tool"}
                more: dict[str, Any] = {"capabilities": [], "inputs": {}, "outputs": {}}
                return _line({**named, **facts, **more})
            case _:
                events = int(frame["input"]["args"].get("events", 0))
                return _line({**EVENT, **named}) * events + _line({**named, "ok": True})

    # What the daemon does with it (runtime.process.process.Process).

    @property
    def exited(self) -> bool:
        return self._exited.is_set()

    @property
    def is_dead(self) -> bool:
        return self.exited

    async def wait_exited(self) -> None:
        await self._exited.wait()

    def close_stdin(self) -> None:
        if self.stdin is not None:
            trio.lowlevel.notify_closing(self.stdin)
            os.close(self.stdin)
            self.stdin = None
            self._exited.set()

    async def signal(self, *signals: int) -> None:
        self._exited.set()

    async def kill(self) -> None:
        self._exited.set()

    async def kill_the_rest(self) -> tuple[int, ...]:
        return ()

    def reap(self) -> End:
        self.close_stdin()
        for descriptor in (self.stdout, self.stderr):
            trio.lowlevel.notify_closing(descriptor)
        ours = (self.stdout, self.stderr)
        for descriptor in (*ours, self._requests, self._answers, self._complaints):
            os.close(descriptor)
        return End(exit_code=0)


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def without_processes(turns: Turns, patch: pytest.MonkeyPatch) -> dict[str, FakeProcess]:
    """Have all modules be fake ones that take turns with the loop; returns them by name."""
    spawned: dict[str, FakeProcess] = {}

    async def spawn(
        descriptor: Descriptor,
        host: Mapping[str, str],
        instance: str,
        registry: ProcessRegistry,
        opening: Opening | None,
        *,
        variables: Mapping[str, str],
        inherited: tuple[int, ...],
    ) -> FakeProcess:
        assert opening is None  # modules that persist have none
        assert not variables
        assert not inherited
        await trio.lowlevel.checkpoint()
        spawned[descriptor.name] = process = FakeProcess(descriptor.name)
        turns.peers.append(process)
        return process

    patch.setattr(containers, "spawn", spawn)
    return spawned
