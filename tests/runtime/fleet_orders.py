"""Interpret any list of operations on a fleet of fake lives, and hold the promises after each.

An operation is a name and two numbers, which choose a module and a detail; whatever they are, it
means something, so a list can be cut and shrunk anywhere. The clock is virtual.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trio
import trio.testing

from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Reason, Success
from supervisor.policy.findings import Found, Reading
from supervisor.policy.lifecycle import HAS_PROCESS, State
from supervisor.policy.reload_plan import Running, plan
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from tests import factories
from tests.factories import Heard
from tests.runtime.fakes import FakeLife, Stage, staged

Op = tuple[str, int, int]

NAMES = ("base", "leaf", "lazy", "once")
SUPERVISION: dict[str, dict[str, Any]] = {
    "base": {"intensity": 1, "period_s": 60, "retry_failed_s": 300},
    "leaf": {"depends_on": ["base"], "concurrency": 2, "queue": 3},
    "lazy": {"start": "lazy", "restart": "transient"},
    "once": {"restart": "temporary", "depends_on": ["leaf"], "overlap": False},
}
PAUSES_S = (0.1, 1.0, 5.0, 70.0, 400.0)
CODES = (0, 1, 137)


class FleetOrders:
    """A fleet, and what is known of all that was asked of it."""

    def __init__(self, folder: Path, nursery: trio.Nursery, clock: trio.testing.MockClock) -> None:
        self.stage = Stage()
        self.files = LogFiles(folder)
        self.host = Host(os.environ, self.files, draw=lambda: 0.5)
        self.fleet = Fleet(self.host, nursery)
        self.calls: list[tuple[str, Call, Heard]] = []
        self._folder = folder
        self._nursery = nursery
        self._clock = clock
        self._variants: Counter[str] = Counter()
        self._present = set(NAMES)
        self._counted: dict[str, tuple[int, ...]] = {}

    async def play(self, ops: Iterable[Op]) -> None:
        """Do all of it, then end the fleet; raises `AssertionError` where a promise is broken."""
        self._nursery.start_soon(self.host.deadlines.run)
        self.fleet.admit(Found(self._descriptors()))
        for name, which, detail in ops:
            await trio.testing.wait_all_tasks_blocked()
            await getattr(self, name)(NAMES[which % len(NAMES)], detail)
            await trio.testing.wait_all_tasks_blocked()
            self.check()
        await self._end()

    # The operations.

    async def start(self, name: str, _: int) -> None:
        if (module := self.fleet.modules.get(name)) is not None:
            module.start("a command")

    async def stop(self, name: str, _: int) -> None:
        if (module := self.fleet.modules.get(name)) is not None:
            module.stop("a command")

    async def restart(self, name: str, _: int) -> None:
        if (module := self.fleet.modules.get(name)) is not None:
            module.restart("a command")

    async def get_ready(self, name: str, detail: int) -> None:
        for life in self._alive(name):
            if life.state is State.STARTING:
                life.get_ready() if detail % 3 else life.fail_to_start()

    async def crash(self, name: str, detail: int) -> None:
        for life in self._alive(name):
            await self._die(life, CODES[detail % len(CODES)])

    async def let_go(self, name: str, _: int) -> None:
        for life in self._alive(name):
            if life.endings:
                await self._die(life, 0)

    async def probe(self, name: str, detail: int) -> None:
        for life in self._alive(name):
            if life.state in (State.READY, State.DEGRADED):
                life.probe(well=bool(detail % 2))

    async def replace(self, name: str, _: int) -> None:
        for life in self._alive(name):
            if life.state is not State.STARTING:
                life.need_replacement()

    async def invoke(self, name: str, detail: int) -> None:
        if (module := self.fleet.modules.get(name)) is not None:
            for _ in range(1 + detail % 3):
                call, heard = factories.call()
                self.calls.append((name, call, heard))
                module.submit(call)

    async def answer(self, name: str, _: int) -> None:
        for life in self._alive(name):
            if life.calls:
                life.answer()

    async def cancel(self, _: str, detail: int) -> None:
        open_calls = [(name, call) for name, call, _ in self.calls if not call.settled]
        if open_calls:
            name, call = open_calls[detail % len(open_calls)]
            module = self.fleet.modules.get(name) or self.fleet.leaving[name]
            module.give_up(call, Stopped(Reason.CLIENT, "the client cancelled"))

    async def pass_time(self, _: str, detail: int) -> None:
        self._clock.jump(PAUSES_S[detail % len(PAUSES_S)])

    async def change(self, name: str, _: int) -> None:
        self._variants[name] += 1
        await self._reload()

    async def remove(self, name: str, _: int) -> None:
        self._present.discard(name)
        await self._reload()

    async def add(self, name: str, _: int) -> None:
        self._present.add(name)
        await self._reload()

    async def touch(self, _: str, __: int) -> None:
        """Reload where nothing has changed: no life may notice."""
        await self._reload()
        before = self._seen()
        await self._reload()
        assert self._seen() == before

    # The promises.

    def check(self) -> None:
        for name in NAMES:
            self._check_module(name)
        for name, call, heard in self.calls:
            assert len(heard.outcomes) == call.settled, f"{name}: {heard.outcomes}"
        served = {id(call) for life in self.stage.lives for call in life.calls if not life.gone}
        for name, call, _ in self.calls:
            module = self.fleet.modules.get(name) or self.fleet.leaving.get(name)
            waiting = module is not None and call.request.request_id in module.queue
            assert call.settled or waiting or id(call) in served, f"{name}: a call is nowhere"
        self.calls = [one for one in self.calls if not one[1].settled]

    def _check_module(self, name: str) -> None:
        alive = self._alive(name)
        most = 1 if name == "once" else 2
        assert len(alive) <= most, f"{len(alive)} at a time: {[life.id for life in alive]}"
        module = self.fleet.modules.get(name) or self.fleet.leaving.get(name)
        if module is None:
            assert not alive
            return
        beside = module.succession.beside
        assert len(alive) == (module.state in HAS_PROCESS) + len(beside), f"{name} {module.state}"
        if module.state in (State.BACKOFF, State.FAILED):
            assert module.next_retry_s is not None
            assert not module.queued
        if module.queued:
            assert module.workers[0].free() is None, (
                f"{name} has room, and {module.queued} requests wait"
            )
            hope = alive or (module.workers[0].is_wanted and module.waits_for)
            assert hope, f"{name} is {module.state}, and {module.queued} requests wait for nothing"
        if module.last_exit is not None:
            assert module.last_exit.reason
        numbers = [int(one.id.partition("#")[2]) for one in self.stage.lives if one.name == name]
        assert numbers == sorted(set(numbers)), f"generations of {name}: {numbers}"

    # How it is done.

    def _seen(self) -> list[tuple[str, State, list[str]]]:
        return [
            (one.name, one.state, [life.id for life in self._alive(one.name) if not life.endings])
            for one in self.fleet.modules.values()
        ]

    def _alive(self, name: str) -> list[FakeLife]:
        return [life for life in self.stage.lives if life.name == name and not life.gone]

    async def _die(self, life: FakeLife, code: int) -> None:
        calls, life.calls = life.calls, []
        for call in calls:
            if life.endings and code == 0:
                call.settle(Success(None))
            else:
                call.settle(Failure.because(Reason.EXITED, "it died"))
        await life.die(code)

    def _descriptors(self) -> tuple[Descriptor, ...]:
        return tuple(
            staged(
                self._folder,
                name=name,
                supervision=SUPERVISION[name],
                description=f"variant {self._variants[name]}",
                transport={"env": {"VARIANT": str(self._variants[name])}},
            )
            for name in NAMES
            if name in self._present
        )

    async def _reload(self) -> None:
        current = {
            name: Running(one.descriptor, offered=one.succession.offered)
            for name, one in self.fleet.modules.items()
        }
        await self.fleet.apply(plan(current, Reading(self._descriptors())))

    async def _end(self) -> None:
        stopped = trio.Event()

        async def stop() -> None:
            await self.fleet.stop()
            stopped.set()

        self._nursery.start_soon(stop)
        await trio.testing.wait_all_tasks_blocked()
        for _ in NAMES:  # a chain of dependencies is stopped one after the other
            for life in [one for one in self.stage.lives if not one.gone and one.endings]:
                await self._die(life, 0)
            self.check()
        assert stopped.is_set(), [(one.name, one.state) for one in self.fleet.all()]
        await trio.testing.wait_all_tasks_blocked()
        self._clock.jump(10_000)  # no timer brings anything back
        await trio.testing.wait_all_tasks_blocked()
        assert not self.stage.alive
        assert all(call.settled for _, call, _ in self.calls)
        assert not self.fleet.leaving
        self._nursery.cancel_scope.cancel()


WEIGHTS = {
    "get_ready": 6,
    "let_go": 6,
    "crash": 4,
    "start": 3,
    "add": 3,
    "invoke": 3,
    "answer": 3,
    "pass_time": 2,
    "probe": 2,
    "cancel": 1,
    "replace": 1,
    "restart": 1,
    "stop": 1,
    "change": 1,
    "touch": 1,
    "remove": 1,
}
"""Without them most modules would be down, or on their way there, most of the time."""

OPS = [name for name, weight in WEIGHTS.items() for _ in range(weight)]


def run(folder: Path, ops: Iterable[Op]) -> None:
    """Play a list of operations from beginning to end."""
    clock = trio.testing.MockClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            orders = FleetOrders(folder, nursery, clock)
            with orders.stage.known():
                try:
                    await orders.play(ops)
                finally:
                    orders.files.close()

    trio.run(main, clock=clock, strict_exception_groups=True)
