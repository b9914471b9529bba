r"""A service elsewhere: it is asked who it is, serves calls over HTTP, and nothing of it runs here.

    health until it is well -> describe -> ready ... checks while idle ... -> parted from
      \--cannot be reached, start_s--> failed

Each call has a connection to itself, and what is given up (deadline, cancel) ends with that: no
answer can be taken for another's. A client that does not read leaves its own connection unread.

That it cannot be reached is told to every caller at once, and shows as `degraded`. It is asked all
the same, so it is back as soon as it answers; only when checks go unanswered does this life end,
and the next one looks for it again, as a process is started again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from protocol.connection import (
    Answered,
    EventReceived,
    Events,
    Logged,
    Quarantined,
    Received,
    Request,
    Stray,
    Warned,
)
from protocol.dialects.module_start import FIRST_RETRY_S, LAST_RETRY_S
from protocol.errors import Code, Failure, Origin, Outcome, Reason, Success
from protocol.events import CallEvent
from protocol.replies import Operation
from protocol.service_answer import ServiceAnswer, request_body
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.module_log import NOTED
from supervisor.runtime.process.environment import UnsetVariableError
from supervisor.runtime.supervision.call import NOBODY, Call, Server
from supervisor.runtime.supervision.health import HealthWatch
from supervisor.runtime.supervision.life import SLOW, Instance, Life, LifeEnd, Setting
from supervisor.runtime.turns import LOOP, pieces

if TYPE_CHECKING:
    from supervisor.runtime.supervision.service_client import Reply, ServiceClient
    from supervisor.runtime.supervision.worker import Worker

LINGER_S = 1.0
LINGER_BYTES = 1 << 16
"""What may follow an answer, in bytes and in time, for its connection to be used again."""

_NOT_THERE = frozenset((Reason.REFUSED, Reason.NO_CONNECTION, Reason.TLS))
"""Reasons that no service can cause: none is there."""

_FOR_GOOD = frozenset((Code.FORBIDDEN, Code.BAD_REQUEST))
"""Codes in an answer to `health` that waiting does not change."""

_BROKEN_OFF = frozenset((Reason.DEADLINE, Reason.SILENCE))


class _Open(msgspec.Struct, eq=False):
    call: Call
    scope: trio.CancelScope
    room: trio.Event = msgspec.field(default_factory=trio.Event)
    """Set when its listener may have room."""


class ServiceLife(Life, Server):
    """The time in which a service is known to be there."""

    takes_turn = False  # nothing runs here, and so there is nothing to wait for

    def __init__(self, setting: Setting, owner: Worker) -> None:
        super().__init__(setting, owner)
        self._name = setting.descriptor.name
        self._open: dict[str, _Open] = {}
        self._client: ServiceClient | None = None
        self._nursery: trio.Nursery | None = None
        self._began_at = math.nan
        self._ending = trio.Event()
        self._drained = trio.Event()
        self._has_started = False
        self._is_well = True
        self._why_unwell = ""
        self._looking = False
        """Whether it is asked for its health after a call that it did not answer."""
        self._replaced_for: str | None = None
        self._warning: str | None = None
        self._watch = HealthWatch(
            setting.descriptor.supervision.health,
            self._timeouts.health_s,
            setting.host.deadlines,
            self,
        )

    async def run(self) -> LifeEnd:
        try:
            self._client = await self._make_client()
        except UnsetVariableError as error:
            return LifeEnd("spawn_failed", f"cannot be asked: {error}")
        self._began_at = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._start)
                await self._ending.wait()
                with trio.move_on_after(self._timeouts.stop_s):
                    await self._drained.wait()
                self._fail_all(self._ended_for())
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self.end(abrupt=True)  # cancelled, it takes no more calls either
            self._fail_all(self._setting.host.stopping(self.id, self.evidence()))
            self._watch.end()
            self._setting.descriptions.end(self.id)
            await self._client.close()
        return LifeEnd("stopped", "was parted from")

    async def _make_client(self) -> ServiceClient:
        def make() -> ServiceClient:
            from supervisor.runtime.supervision.service_client import ServiceClient  # noqa: PLC0415 - see there

            return ServiceClient(self._setting.descriptor, self._setting.host.environment)

        doing = f"preparing to ask {self._name}"
        return await self._setting.host.registry.threads.run(doing, make)

    # What supervision asks of it (life.Life).

    def is_alive(self) -> bool:
        return not self._ending.is_set()

    def can_take(self) -> bool:
        return len(self._open) < self._concurrency and not self._ending.is_set()

    @property
    def load(self) -> int:
        return len(self._open)

    @property
    def oldest(self) -> tuple[str, float] | None:
        for opened in self._open.values():
            return opened.call.request.op, opened.call.begun_at
        return None

    def take(self, call: Call) -> None:
        assert self._nursery is not None  # noqa: S101 - it is ready
        call.server = self
        if call.heard_at:
            call.heard_at = call.begun_at = trio.current_time()
        opened = self._open[call.request.request_id] = _Open(call, trio.CancelScope())
        self._nursery.start_soon(self._serve, opened)

    def end(self, *, abrupt: bool) -> None:
        self._ending.set()
        if abrupt or not self._open:
            self._drained.set()

    def instances(self) -> list[Instance]:
        if self._client is None:
            return []
        uptime_s = trio.current_time() - self._began_at
        return [Instance(self.id, None, uptime_s, len(self._open), warning=self._warning)]

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        with trio.move_on_after(timeout_s):
            return await self._probe(operation)
        words = f"{self.id} gave no answer to {operation} in {timeout_s:g} s"
        return Failure.because(Reason.DEADLINE, words, **self.evidence())

    # What becomes of a call (call.Server).

    def give_up(self, call: Call, stopped: Stopped) -> None:
        opened = self._open.pop(call.request.request_id, None)
        if opened is None:
            return
        opened.scope.cancel()
        if stopped.reason in _BROKEN_OFF and self._nursery is not None and not self._looking:
            self._looking = True
            self._nursery.start_soon(self._look)
        self._freed()

    def evidence(self) -> dict[str, Any]:
        return {"instance": self.id, "url": self._setting.descriptor.transport.url}

    def nudge(self) -> None:
        for opened in self._open.values():
            opened.room.set()

    # What the watch asks of it (health.HealthWatch).

    @property
    def occupied(self) -> bool:
        """What is in flight has bounds of its own."""
        return bool(self._open) or self._ending.is_set()

    def check(self, answered: HealthWatch) -> Call | None:
        if self._nursery is None:
            return None
        request = Request(self._setting.host.next_request_id(), Operation.HEALTH)
        call = Call(request, answered)
        self._nursery.start_soon(self._check, call)
        return call

    def found(self, *, well: bool) -> None:
        self._is_well = well
        news = Input.HEALTHY if well else Input.UNHEALTHY
        words = "answered a health probe" if well else f"missed a health probe{self._because()}"
        self._owner.happened(self, news, words)

    def replace(self, why: str) -> None:
        self._replaced_for = f"{why}{self._because()}"
        self._owner.happened(self, Input.REPLACE, self._replaced_for)

    def _because(self) -> str:
        return f": it {self._why_unwell}" if self._why_unwell else ""

    async def _check(self, call: Call) -> None:
        call.settle(await self.ask(Operation.HEALTH, self._timeouts.health_s))

    async def _look(self) -> None:
        outcome = await self.ask(Operation.HEALTH, self._timeouts.health_s)
        self._looking = False
        if isinstance(outcome, Failure):
            self.found(well=False)

    # Its start.

    async def _start(self) -> None:
        failure = await self._failed_start()
        if self._ending.is_set():
            return
        if failure is not None:
            self._owner.happened(self, Input.START_FAILED, failure.message, failure)
            return
        self._has_started = True
        self._watch.begin(self._setting.host.draw())
        self._owner.happened(self, Input.STARTED, "answered health and describe")

    async def _failed_start(self) -> LifeEnd | None:
        """Ask for health until it is well, then for its description; return why that failed."""
        start_s, describe_s = self._timeouts.start_s, self._timeouts.describe_s
        outcome: Outcome | None = None
        with trio.move_on_after(start_s):
            pause_s = FIRST_RETRY_S
            while not isinstance(outcome := await self._probe(Operation.HEALTH), Success):
                if not _may_get_well(outcome):
                    return self._ended(outcome, "bad_health", "answered health wrongly")
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, LAST_RETRY_S)
        if not isinstance(outcome, Success):
            said = "it gave no answer" if outcome is None else f"it said: {outcome.message}"
            words = f"was not healthy within {start_s:g} s; {said}; {SLOW.format('start_s')}"
            return LifeEnd("start_deadline", words)
        outcome = await self.ask(Operation.DESCRIBE, describe_s)
        if isinstance(outcome, Failure):
            return self._ended(outcome, "bad_describe", "did not describe itself")
        misfit = self._setting.descriptions.begin(self.id, outcome.result)
        return None if misfit is None else LifeEnd("bad_describe", misfit)

    def _ended(self, failure: Failure, reason: str, words: str) -> LifeEnd:
        if failure.code == Code.UNREACHABLE and self._why_unwell:
            return LifeEnd(str(failure.details["reason"]), self._why_unwell)
        shown = failure.details.get("line_excerpt")
        return LifeEnd(reason, f"{words}: {failure.message}" + (f": {shown}" if shown else ""))

    # One request and its answer.

    async def _serve(self, opened: _Open) -> None:
        with opened.scope:
            await self._converse(opened.call.request, partial(self._receive, opened), opened)

    async def _probe(self, operation: Operation) -> Outcome:
        request = Request(self._setting.host.next_request_id(), operation)
        outcome: Outcome | None = None

        def receive(item: Received) -> None:
            nonlocal outcome
            if isinstance(item, Answered):
                outcome = self._outcome(item)
            else:
                self._keep(item)

        call = Call(request, NOBODY)
        await self._converse(request, receive, _Open(call, trio.CancelScope()))
        assert outcome is not None  # noqa: S101 - it was received
        return outcome

    async def _converse(
        self, request: Request, receive: Callable[[Received], None], opened: _Open
    ) -> None:
        """Post a request and take in the answer, which may be that there is none."""
        from supervisor.runtime.supervision.service_client import UnreachableError  # noqa: PLC0415 - as above

        assert self._client is not None  # noqa: S101 - it is made before all else
        client, answer = self._client, None
        try:
            body = request_body(request)
            async with client.post(request.operation, body, request.traceparent) as reply:
                descriptor = self._setting.descriptor
                answer = ServiceAnswer(reply.media, descriptor, request, client.secrets)
                await self._read(reply, answer, receive, opened)
        except UnreachableError as error:
            if answer is not None and answer.is_over:
                return
            self._why_unwell = error.message
            asked = request.op or str(request.operation)
            failure = Failure.because(
                error.reason,
                f"{self._name}.{asked}: {self.id} {error.message}",
                **self.evidence(),
                line_excerpt=error.shown,
                reported=None if answer is None else answer.reported,
            )
            receive(Answered(request.request_id, failure))
            if error.reason in _NOT_THERE:
                self._seen(Input.UNHEALTHY, error.message)
        else:
            self._why_unwell = ""
            self._seen(Input.HEALTHY, f"answered {request.operation}")

    def _seen(self, news: Input, why: str) -> None:
        """Tell what a request showed, if it is news; a check tells what it finds itself."""
        if self._has_started and self._is_well is not (news is Input.HEALTHY):
            self._is_well = news is Input.HEALTHY
            self._owner.happened(self, news, why)

    async def _read(
        self,
        reply: Reply,
        answer: ServiceAnswer,
        receive: Callable[[Received], None],
        opened: _Open,
    ) -> None:
        """Read a body to its end, or not much further than its answer."""
        left = LINGER_BYTES
        with trio.CancelScope() as scope:
            async for chunk in reply.chunks:
                for piece in pieces(chunk):
                    LOOP.begin(self.id, "an answer")
                    self._take(answer.receive_data(piece), receive)
                    LOOP.end()
                    await trio.lowlevel.checkpoint()
                    while opened.call.listener.congested():
                        opened.room = trio.Event()
                        await opened.room.wait()
                if answer.is_over:
                    scope.deadline = min(scope.deadline, trio.current_time() + LINGER_S)
                    left -= len(chunk)
                    if left < 0:
                        return
        if not answer.is_over:
            self._take(answer.receive_eof(), receive)

    def _take(self, events: Events, receive: Callable[[Received], None]) -> None:
        for item in events:
            receive(item)

    def _receive(self, opened: _Open, item: Received) -> None:
        call = opened.call
        call.heard_at = trio.current_time()
        match item:
            case EventReceived():
                call.listener.event(item.event, call, item.line)
                self._note(item.event)
            case Answered():
                if self._open.pop(item.request_id, None) is not None:
                    call.settle(self._outcome(item))
                    self._freed()
            case Warned():
                call.warn(item.notice)
                self._keep(item)
            case _:
                self._keep(item)

    def _outcome(self, item: Answered) -> Outcome:
        outcome = item.outcome
        if isinstance(outcome, Failure) and outcome.details["origin"] == Origin.HOST:
            details = {**outcome.details, **self.evidence()}
            outcome = msgspec.structs.replace(outcome, details=details)
        return outcome

    def _note(self, event: CallEvent) -> None:
        if type(event) in NOTED:
            self._setting.log.events(self.id, [event])

    def _keep(self, item: Received) -> None:
        match item:
            case Stray() | Quarantined() | Logged():
                self._setting.keep(self.id, item)
            case Warned():
                self._setting.keep(self.id, item)
                self._warning = item.notice.words
            case EventReceived():
                self._note(item.event)
            case _:
                raise AssertionError(item)  # of a connection that asks nothing by itself

    # Its end.

    def _freed(self) -> None:
        if self._ending.is_set() and not self._open:
            self._drained.set()
        self._owner.capacity_freed(self)

    def _ended_for(self) -> Failure:
        if self._replaced_for is None or self._setting.host.shutting_down:
            return self._setting.host.stopping(self.id, self.evidence())
        words = f"{self.id} is being given up: it {self._replaced_for}"
        return Failure.because(Reason.STOPPING, words, **self.evidence())

    def _fail_all(self, failure: Failure) -> None:
        left = list(self._open.values())
        self._open.clear()
        for opened in left:
            opened.call.settle(failure)


def _may_get_well(failure: Failure) -> bool:
    """Whether a service that answers like this may be about to begin."""
    if failure.details["origin"] == Origin.MODULE:
        return failure.code not in _FOR_GOOD
    return bool(failure.details["reason"] == Reason.NOT_READY)
