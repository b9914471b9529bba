"""Interpret any list of operations on a module with several fake lives, and hold the promises.

An operation is a name and a number, which chooses a life or a detail; whatever they are, it means
something, so a list can be cut and shrunk anywhere. The clock is virtual.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trio
import trio.testing

from protocol.errors import Failure, Reason, Success
from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.pool import renewed, staying
from tests import factories
from tests.factories import Heard
from tests.runtime.fakes import Alone, FakeLife, Stage, staged

Op = tuple[str, int]

PAUSES_S = (0.02, 0.1, 1.0, 12.0, 70.0, 400.0)
CODES = (0, 1, 78)
MANY = 1024
"""More than ever wait here."""

WEIGHTS = {
    "invoke": 8,
    "get_ready": 8,
    "answer": 6,
    "let_go": 6,
    "pass_time": 5,
    "crash": 3,
    "fail_to_start": 1,
    "start": 2,
    "probe": 2,
    "cancel": 1,
    "replace": 1,
    "restart": 1,
    "stop": 1,
}
OPS = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
HARMLESS = [
    name for name in OPS if name in ("invoke", "get_ready", "answer", "let_go", "pass_time")
]
"""What is no reason for a call to fail."""


class WorkerOrders:
    """A module, and what is known of all that was asked of it."""

    def __init__(self, folder: Path, nursery: trio.Nursery, supervision: dict[str, Any]) -> None:
        self.stage = Stage()
        self.files = LogFiles(folder)
        self.host = Host(os.environ, self.files, draw=random.Random(0).random)
        self.calls: list[tuple[Call, Heard]] = []
        descriptor = staged(folder, supervision=supervision)
        self.instances = descriptor.supervision.instances
        self.returns = supervision.get("restart", "permanent") == "permanent"
        self.harmless = supervision.get("queue", MANY) >= MANY
        self._nursery = nursery
        alone: Any = Alone()
        self.module = Module(descriptor, self.host, nursery, alone)

    async def play(self, ops: Iterable[Op], clock: trio.testing.MockClock) -> None:
        """Do all of it, then stop; raises `AssertionError` where a promise is broken."""
        self._nursery.start_soon(self.host.deadlines.run)
        self._clock = clock
        self.module.start("the beginning")
        for name, number in ops:
            await trio.testing.wait_all_tasks_blocked()
            self.harmless = self.harmless and name in HARMLESS
            await getattr(self, name)(number)
            await trio.testing.wait_all_tasks_blocked()
            self.check()
        await self._end()

    # The operations.

    async def start(self, _: int) -> None:
        self.module.start("a command")

    async def stop(self, _: int) -> None:
        self.module.stop("a command")

    async def restart(self, _: int) -> None:
        self.module.restart("a command")

    async def get_ready(self, number: int) -> None:
        for life in self._some(State.STARTING, number):
            life.get_ready()

    async def fail_to_start(self, number: int) -> None:
        for life in self._some(State.STARTING, number):
            life.fail_to_start()

    async def probe(self, number: int) -> None:
        for life in self._some(State.READY, number) + self._some(State.DEGRADED, number):
            life.probe(well=bool(number % 2))

    async def replace(self, number: int) -> None:
        for life in self._some(State.READY, number):
            life.need_replacement()

    async def crash(self, number: int) -> None:
        if alive := self._alive():
            await self._die(alive[number % len(alive)], CODES[number % len(CODES)])

    async def let_go(self, _: int) -> None:
        for life in self._alive():
            if life.endings:
                await self._die(life, 0)

    async def invoke(self, number: int) -> None:
        for _ in range(1 + number % 6):
            call, heard = factories.call()
            self.calls.append((call, heard))
            self.module.submit(call)

    async def answer(self, number: int) -> None:
        for life in self._alive()[number % 3 :]:
            for _ in range(1 + number % 2):
                if life.calls:
                    life.answer()

    async def cancel(self, number: int) -> None:
        waiting = [call for call, _ in self.calls if not call.settled]
        if waiting:
            stopped = Stopped(Reason.CLIENT, "the client cancelled")
            self.module.give_up(waiting[number % len(waiting)], stopped)

    async def pass_time(self, number: int) -> None:
        self._clock.jump(PAUSES_S[number % len(PAUSES_S)])

    # The promises.

    def check(self) -> None:
        module, alive = self.module, self._alive()
        ids = [life.id for life in self.stage.lives]
        assert len(ids) == len(set(ids))
        assert len({id(one.life) for one in module.workers if one.life}) == len(alive)
        renewing = renewed(module.workers) is not None
        assert len(alive) <= len(module.workers) <= self.instances.max + renewing
        there = staying(module.workers)
        states = [one.state for one in there]
        assert (module.state in SERVES) == any(state in SERVES for state in states)
        if module.state is State.DOWN:
            assert not alive
        if any(state in HAS_PROCESS for state in states):
            assert module.state in HAS_PROCESS
        if self.returns and module.wanted and not module.barred:
            assert len(there) >= max(self.instances.min, 1)
        self._check_calls(alive)

    def _check_calls(self, alive: list[FakeLife]) -> None:
        module = self.module
        for call, heard in self.calls:
            assert len(heard.outcomes) == call.settled, heard.outcomes
            where = [life for life in alive if call in life.calls]
            places = len(where) + (call.request.request_id in module.queue)
            assert places == (not call.settled), f"a call is in {places} places"
            if self.harmless and call.settled:
                assert isinstance(heard.outcomes[0], Success), heard.outcomes
        if self.harmless:
            assert not any(life.cut for life in self.stage.lives)
        for one in staying(module.workers):
            assert not module.queued or one.free() is None, "there is room, and requests wait"
        if module.queued:
            assert module.state in HAS_PROCESS, module.state
        self.calls = [one for one in self.calls if not one[0].settled]

    # How it is done.

    def _alive(self) -> list[FakeLife]:
        return [life for life in self.stage.lives if not life.gone]

    def _some(self, state: State, number: int) -> list[FakeLife]:
        """Return the lives in a state, all of them or one."""
        there = [one for one in self.module.workers if one.state is state]
        found = [one.life for one in there if isinstance(one.life, FakeLife)]
        return found if number % 2 else found[:1]

    async def _die(self, life: FakeLife, code: int) -> None:
        calls, life.calls = life.calls, []
        for call in calls:
            ended = Success(None) if life.endings and code == 0 else None
            call.settle(ended or Failure.because(Reason.EXITED, "it died"))
        await life.die(code)

    async def _end(self) -> None:
        self.harmless = False
        self.module.stop("the end")
        await trio.testing.wait_all_tasks_blocked()
        while alive := self._alive():
            assert all(life.endings for life in alive), "one was not told to end"
            await self._die(alive[0], 0)
            self.check()
        self._clock.jump(10_000)  # no timer brings anything back
        await trio.testing.wait_all_tasks_blocked()
        assert not self._alive()
        assert self.module.state is State.DOWN
        assert all(call.settled for call, _ in self.calls)
        self._nursery.cancel_scope.cancel()


def run(folder: Path, supervision: dict[str, Any], ops: Iterable[Op]) -> None:
    """Play a list of operations from beginning to end."""
    clock = trio.testing.MockClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            orders = WorkerOrders(folder, nursery, supervision)
            with orders.stage.known():
                try:
                    await orders.play(ops, clock)
                finally:
                    orders.files.close()

    trio.run(main, clock=clock, strict_exception_groups=True)
