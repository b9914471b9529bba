"""Lives without processes, for workers, modules and fleets under a virtual clock.

They are a kind of life like any other: over a transport that only the tests know, which has nothing
that could be run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import trio
from msgspec.structs import replace

from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.errors import Outcome, Success
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input, State
from supervisor.policy.verdict import Exit, Stopped
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.supervision.call import Call, Server
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.description import Descriptions
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.life import Counters, Instance, Life, LifeEnd, Setting
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.worker import LIVES, Worker
from tests import factories

STAGE = "stage"
"""The type of the transport."""


def staged(folder: Path, **fields: Any) -> Descriptor:
    """Make the descriptor of a module whose lives are those of a stage."""
    made = factories.descriptor(folder, ["nothing to run"], **fields)
    return replace(made, transport=replace(made.transport, type=STAGE, command=()))


def undescribed(descriptor: Descriptor) -> Descriptions:
    """Descriptions that tell nobody."""
    return Descriptions(descriptor, Deadlines(), lambda *_: None)


def plain_setting(made: Descriptor, host: Host, names: Iterator[str]) -> Setting:
    """Return the setting of a life whose module is nobody."""
    return Setting(
        made,
        host,
        ModuleLog("m", host.log_files, host.wall_clock),
        lambda: next(names),
        undescribed(made),
        Counters(),
        lambda asked, process: process.refuse(asked, "nobody serves calls"),
    )


class FakeLife(Life, Server):
    """A life that starts, answers and ends when told to."""

    stage: Stage | None = None

    def __init__(self, setting: Setting, owner: Worker) -> None:
        super().__init__(setting, owner)
        if self.stage is not None:
            self.stage.lives.append(self)
        self.name = setting.descriptor.name
        self.calls: list[Call] = []
        self.served: list[Any] = []
        self.endings: list[bool] = []
        self.given_up: list[Stopped] = []
        self.cut: list[Call] = []
        """The calls it had when it was told to end."""
        self.begun = False
        self.hurried = False
        self.gone = False
        self._over = trio.Event()
        self._ended = LifeEnd("exited", "exited with code 1", Exit(exit_code=1))

    async def run(self) -> LifeEnd:
        self.begun = True
        try:
            await self._over.wait()
        finally:
            self.gone = True
        return self._ended

    def is_alive(self) -> bool:
        return not self.gone

    def can_take(self) -> bool:
        return len(self.calls) < self._concurrency and not self.endings

    @property
    def load(self) -> int:
        return len(self.calls)

    @property
    def oldest(self) -> tuple[str, float] | None:
        return (self.calls[0].request.op, 0.0) if self.calls else None

    def take(self, call: Call) -> None:
        call.server = self
        self.calls.append(call)
        self.served.append(call.request.args.get("n"))

    def end(self, *, abrupt: bool) -> None:
        self.endings.append(abrupt)
        self.cut += self.calls

    def hurry(self) -> None:
        self.hurried = True

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        return Success({"status": "ok"})

    def instances(self) -> list[Instance]:
        return [Instance(self.id, None, 0.0, len(self.calls))]

    def give_up(self, call: Call, stopped: Stopped) -> None:
        self.calls.remove(call)
        self.given_up.append(stopped)
        self._owner.capacity_freed(self)

    def evidence(self) -> dict[str, Any]:
        return {"instance": self.id}

    @property
    def state(self) -> State:
        """The state of its worker."""
        return self._owner.state

    # What the test makes it do.

    def get_ready(self) -> None:
        self._owner.happened(self, Input.STARTED, "answered health and describe")

    def fail_to_start(self, reason: str = "start_deadline") -> None:
        ended = LifeEnd(reason, "was not healthy within 10 s")
        self._owner.happened(self, Input.START_FAILED, ended.message, ended)

    def probe(self, *, well: bool) -> None:
        news = Input.HEALTHY if well else Input.UNHEALTHY
        self._owner.happened(self, news, "a probe")

    def need_replacement(self) -> None:
        self._owner.happened(self, Input.REPLACE, "closed its stdout")

    def answer(self, result: Any = None) -> None:
        self.calls.pop(0).settle(Success(result))
        self._owner.capacity_freed(self)

    async def die(self, code: int | None = 1, signal: int | None = None) -> None:
        exit_ = Exit(exit_code=code, signal=signal)
        self._ended = LifeEnd(str(exit_.reason), exit_.words, exit_)
        self._over.set()
        await trio.testing.wait_all_tasks_blocked()

    async def fail_to_spawn(self) -> None:
        self._ended = LifeEnd("spawn_failed", "could not be started: no such program")
        self._over.set()
        await trio.testing.wait_all_tasks_blocked()


class Alone:
    """The fleet of a module that is all there is."""

    def module_changed(self, module: Module) -> None:
        pass

    def dependence_changed(self) -> None:
        pass

    def verdict(self, module: Module) -> None:
        return None

    def dependants(self, name: str) -> tuple[Module, ...]:
        return ()


class Stage:
    """All lives there were, in order."""

    def __init__(self) -> None:
        self.lives: list[FakeLife] = []

    @contextmanager
    def known(self) -> Iterator[None]:
        """Have the lives of `staged` modules be on this stage."""
        here = {"stage": self}
        one = type("StagedLife", (FakeLife,), here)
        other = type("StagedTool", (FakeLife,), {**here, "takes_turn": False, "is_instance": False})
        kinds = {(STAGE, Lifecycle.PERSISTENT): one, (STAGE, Lifecycle.PER_INVOCATION): other}
        with mock.patch.dict(LIVES, kinds):
            yield

    @property
    def life(self) -> FakeLife:
        return self.lives[-1]

    @property
    def alive(self) -> list[str]:
        return [life.id for life in self.lives if not life.gone]

    def of(self, name: str) -> FakeLife:
        return next(life for life in reversed(self.lives) if life.name == name)

    @property
    def names(self) -> list[str]:
        return [life.name for life in self.lives if not life.gone]
