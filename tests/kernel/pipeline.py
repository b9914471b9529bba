"""Requests without processes: a module that does what the test does, on a clock of the test's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from protocol.connection import HostCalled
from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Success
from protocol.events import Log
from protocol.host_call import HostCall
from supervisor.kernel.descriptions import KeptNotes, RememberedDescriptions
from supervisor.kernel.durability import Durability
from supervisor.kernel.effects import Effects
from supervisor.kernel.grants.grants import Answers, Grant
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.registry import Gates
from supervisor.kernel.parties import Lineage, Provenance
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.requests import Requests
from supervisor.kernel.sessions.registry import Sessions
from supervisor.kernel.tokens import Tokens
from supervisor.kernel.ui_events import UiEvents
from supervisor.policy.capabilities import Authorization, Decision, RuleMatch, RulePlace
from supervisor.policy.latency import Histogram
from supervisor.policy.tally import Tally
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account, HeldBytes
from supervisor.runtime.supervision.call import Call, Server
from supervisor.runtime.supervision.deadlines import Deadlines
from tests.factories import descriptor
from tests.runtime.fakes import undescribed

HOUR_S = 3600


def said(number: int, size: int = 0) -> Log:
    return Log(version="0", level="info", message=f"{number}{'.' * size}")


class FakeModule:
    """Serves each call at once, unless it is `full`, and says what it is made to say."""

    def __init__(self, folder: Path, name: str, protocol: str, timeouts: dict[str, float]) -> None:
        supervision = {"timeouts": {"invoke_s": HOUR_S, **timeouts}}
        self.descriptor = descriptor(
            folder, ["true"], name=name, transport={"protocol": protocol}, supervision=supervision
        )
        self.full = False
        self.start_s = 0.0
        self.name = name
        self.descriptions = undescribed(self.descriptor)
        self.has_room = True
        self.span_attributes = None
        self.tally = Tally()
        self.account = Account(HeldBytes(), name)
        self.latency = Histogram()
        self.calls: dict[str, Call] = {}
        self.resumed: Counter[str] = Counter()

    def submit(self, call: Call) -> None:
        self.calls[call.request.op] = call
        if not self.full:
            self.begin(call.request.op)

    def give_up(self, call: Call, stopped: Stopped) -> None:
        call.settle(Failure.because(stopped.reason, stopped.message))

    def resume(self, call: Call) -> None:
        call.nudge()

    # What the test has it do, with the call of an op.

    def begin(self, op: str) -> None:
        call = self.calls[op]
        call.server = Served(self, op)
        if call.heard_at:
            call.heard_at = call.begun_at = trio.current_time()

    def say(self, op: str, number: int, size: int = 0) -> None:
        call = self.calls[op]
        call.heard_at = trio.current_time()
        call.listener.event(said(number, size), call, None)

    def ask(self, op: str, number: int = 1) -> None:
        """Ask a person something in the course of the call."""
        asked = HostCall(f"c{number}", "user.ask", {"message": "?"})
        process: Any = FakeIncarnation()
        self.calls[op].listener.host_call(HostCalled(op, asked, 1), process, self.calls[op])

    def answer(self, op: str, result: str | None = None) -> None:
        self.calls[op].settle(Success(op if result is None else result))

    def is_paused(self, op: str) -> bool:
        return bool(self.calls[op].listener.congested())


class Served(Server):
    """What serves a call (runtime.supervision.call.Server)."""

    def __init__(self, module: FakeModule, op: str) -> None:
        self._module, self._op = module, op

    def give_up(self, call: Call, stopped: Stopped) -> None:
        raise AssertionError

    def nudge(self) -> None:
        self._module.resumed[self._op] += 1


class World:
    """Requests for one fake module `m`."""

    def __init__(self, requests: Requests, module: FakeModule, approvals: Approvals) -> None:
        self.requests = requests
        self.approvals = approvals
        self.entries: list[dict[str, Any]] = []
        """Of the journal."""
        self.module = module


class Host:
    """What `runtime.supervision.host.Host` is to requests."""

    shutting_down = False

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.ledger = HeldBytes()
        self._number = 0

    def next_request_id(self) -> str:
        self._number += 1
        return f"r{self._number}"

    def wall_clock(self) -> float:
        return 0.0


class Granting:
    """What `kernel.grants.grants.Grants` is to requests: whatever is asked for is allowed."""

    def decide(self, descriptor: Descriptor, capability: str) -> Decision:
        rule = RuleMatch(source=RulePlace.ALLOW)
        return Decision(Authorization.ALLOWED, descriptor.name, capability, rule)

    def record(self, grant: Grant, origin: Provenance) -> None:
        pass


class FakeIncarnation:
    """What `runtime.process.incarnation.Incarnation` is to calls of a module."""

    instance = "m#1"
    congested = full = False

    def __init__(self) -> None:
        self.on_room: set[Any] = set()

    def answer(self, *_: Any) -> None:
        pass


class Fleet:
    """What `runtime.supervision.fleet.Fleet` is to requests."""

    quarantined = ()

    def __init__(self, *modules: FakeModule) -> None:
        self.modules = {one.name: one for one in modules}


@asynccontextmanager
async def pipeline(
    folder: Path,
    protocol: str = "module",
    timeouts: dict[str, float] | None = None,
    deadlines: Deadlines | None = None,
) -> AsyncIterator[World]:
    host: Any = Host(deadlines or Deadlines())
    nothing: Any = None  # no assets, no host calls
    recorder = Recorder()
    effects = Effects(
        recorder=recorder,
        durability=Durability(recorder, host.deadlines),
        sessions=Sessions(recorder, host.wall_clock),
        assets=nothing,
        ui=UiEvents(HeldBytes()),
        answers=Answers(recorder, host.wall_clock),
        tokens=Tokens(recorder, host.wall_clock, host.deadlines),
        descriptions=RememberedDescriptions(recorder, host.wall_clock),
        notes=KeptNotes(recorder),
        lineage=Lineage(),
    )
    granting: Any = Granting()
    approvals = Approvals(recorder)
    module = FakeModule(folder, "m", protocol, timeouts or {})
    fleet: Any = Fleet(module)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.deadlines.run)
        kernel: Any = SimpleNamespace(
            host=host,
            fleet=fleet,
            effects=effects,
            nursery=nursery,
            gates=Gates(),
            approvals=approvals,
            grants=granting,
        )
        requests = Requests(kernel)
        world = World(requests, module, approvals)
        recorder.overhear(lambda _, body: world.entries.append(json.loads(body)))
        yield world
        nursery.cancel_scope.cancel()
