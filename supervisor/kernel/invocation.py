"""One accepted request, from acceptance to response.

No task is started for it: the reader of the module's output calls `event` and `answered` directly,
and those call the client.

So a plain call is this one object, from `Requests.invoke` to `finished`. A call that needs anything
else (a session, gates, assets, calls of its module, a parent, a turn to wait for, a bound on
silence) is guarded by a task (`kernel.guarded_call`), from `guard` on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from protocol.connection import HostCalled, Notice
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Outcome, Reason
from protocol.events import (
    Asset,
    AssetBytes,
    CallEvent,
    ErrorEvent,
    Progress,
    StatePatch,
    StatePatched,
    UiEvent,
    built,
)
from protocol.response import Response
from supervisor.kernel.effects import Effects
from supervisor.kernel.guarded_call import GuardedCall, Parents
from supervisor.kernel.hooks.approvals import Approvals, with_questions
from supervisor.kernel.hooks.registry import Gates
from supervisor.kernel.invoke_record import NOTHING, record_response
from supervisor.kernel.parties import Client, Invoke, Provenance
from supervisor.kernel.request_checks import without_unseen
from supervisor.kernel.sessions.session import Session
from supervisor.kernel.spans import Spans
from supervisor.kernel.store.settings import Span
from supervisor.policy.principals import Principal
from supervisor.policy.tally import OK, outcome_of
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.supervision.call import Call, Congestion, Listener
from supervisor.runtime.supervision.deadlines import Queue
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.host_calls.docket import Docket
    from supervisor.runtime.process.incarnation import Incarnation


MOMENT_S = 0.001
"""With less time left than this a request has expired."""


class InvocationServices(msgspec.Struct, kw_only=True):
    host: Host
    effects: Effects
    nursery: trio.Nursery
    """Has the tasks of guarded calls."""
    invoke: Invoke
    gates: Gates
    approvals: Approvals
    calls: Callable[[Invocation], Docket]
    """Makes the docket of an invocation whose module calls the host."""
    parents: Parents
    account: Account
    """The account of invocations that no client asked for."""
    now: Callable[[], float]
    """Trio's clock itself: `trio.current_time` asks for it anew, in thrice the time."""
    spans: Spans | None = None
    """Gets each invocation that has ended."""
    refused: Counter[str]
    """The count of invocations that never reached a module, by reason."""
    guarded: set[GuardedCall] = msgspec.field(default_factory=set)
    """The guarded calls that are open."""
    none_guarded: trio.lowlevel.ParkingLot = msgspec.field(default_factory=trio.lowlevel.ParkingLot)
    guarded_calls: int = 0
    """The count of guarded calls."""


class Invocation(Call, Listener, kw_only=True, eq=False):
    """A request on its way through a module, and its events on their way to the client."""

    module: Module
    client: Client
    """Gets the events and the response."""
    principal: Principal
    account: Account
    """Whose bytes it holds."""
    setting: InvocationServices
    span: Span
    accepted_at: float
    """By trio's clock."""
    timeout_s: float = 0.0
    total_s: float | None = None
    """The bound where events renew `timeout_s`, which counts from `begun_at`; None: nothing does,
    and `timeout_s` counts from `accepted_at`."""
    session: Session | None = None
    parent: Invocation | None = None
    """The invocation on whose behalf it is made: its end is the end of this one."""
    traceparent: str | None = None
    """The traceparent of the first request of the chain, if that had one."""
    own_bound: bool = False
    """Whether `timeout_s` is the caller's own, which nothing renews or stops."""
    asked_at: float | None = None
    """Since when a person is asked, and its clock stands still (monotonic)."""
    asked_s: float = 0.0
    """How long people were asked before."""
    deadline: Queue | None = None
    recorded: bool = True
    """If not, the journal says nothing of it."""
    entered: bool = False
    """Whether it was handed to its module, or to its gates."""
    ended: bool = False
    """Whether a client has the response."""
    guarded: GuardedCall | None = None
    """The rest of it, if it is not plain."""

    def begin(self, own_s: float | None) -> None:
        """Record that it is in flight, and set its bounds; `enter` follows, at once or in its turn.

        `own_s` is the caller's own bound, which nothing renews.
        """
        self.listener, self.own_bound = self, own_s is not None
        setting, descriptor = self.setting, self.module.descriptor
        timeouts = descriptor.supervision.timeouts
        silence_s, self.timeout_s = timeouts.silence_s, own_s or timeouts.invoke_s
        if DIALECTS[descriptor.transport.protocol].patient:
            self.heard_at = self.begun_at = self.accepted_at
            if not own_s:
                self.total_s = timeouts.total_s
                self.timeout_s = min(self.timeout_s, self.total_s)
        if self.recorded:
            setting.effects.recorder.span_began(self.span.key, self.span)
        self.deadline = setting.host.deadlines.bound(self, self.timeout_s, self.accepted_at)
        if (
            self.session is not None
            or self.parent is not None
            or silence_s is not None
            or self.traceparent is not None
            or setting.spans is not None
            or self.module.span_attributes is not None
        ):
            self.guard().begin(silence_s)

    def guard(self) -> GuardedCall:
        """Make this call guarded (`kernel.guarded_call`), at any time; idempotent."""
        if self.guarded is None:
            self.guarded = GuardedCall(self)
            self.setting.guarded_calls += 1
        return self.guarded

    def enter(self) -> None:
        """Submit it to its module; if there are gates before that, once they have been asked."""
        self.entered = True
        chain = self.setting.gates.before(self.module)
        if chain is None:
            self.module.submit(self)
        else:
            self.guard().ask(chain)

    # For the module's side (call.Listener).

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        del call
        # Streams pass here: `isinstance` is slow to say no, and to call `UiEvents.is_plain`, which
        # the first look repeats, would cost as much as that itself.
        if (
            type(event) is UiEvent
            and event.event in self.setting.effects.ui.plain
            and type(payload := event.payload) is dict
            and type(payload.get("content")) is str
        ):
            self.client.event(event, line)
        elif type(event) is UiEvent or type(event) is StatePatch or type(event) is ErrorEvent:
            self.pass_on(event, line)
        elif type(event) is Asset or type(event) is AssetBytes:
            self.guard().take_in(event, line)
        else:
            self.client.event(event, line)

    def pass_on(self, event: Progress, line: bytes | None) -> None:
        """Apply an event, then pass it on; its line only if the event is unchanged."""
        effects = self.setting.effects
        if type(event) is ErrorEvent and self.recorded:
            self.guard().record_error(event)
        told: Progress | None = event
        match event:
            case UiEvent() if not effects.ui.is_plain(event):
                told = effects.ui.pass_on(event, self.origin)
            case StatePatch() if self.session is not None:
                told = self._patched(event, self.session)
        if told is not None:
            self.client.event(told, line if told is event else None)

    def _patched(self, event: StatePatch, session: Session) -> StatePatched | None:
        """Merge a patch into the session's state; None if it is refused."""
        patch = built(event.patch)
        refusal = self.setting.effects.sessions.patch(session, patch, self.origin)
        if refusal is not None:
            self.warn(Notice("patch_refused", refusal.message))
            return None
        return StatePatched(
            version=event.version,
            timestamp=event.timestamp,
            patch=patch,
            revision=session.kept.revision,
        )

    def host_call(self, asked: HostCalled, process: Incarnation, call: Call) -> None:
        del call
        self.guard().host_call(asked, process)

    def answered(self, outcome: Outcome, call: Call) -> None:
        del call
        if self.guarded is not None:
            self.guarded.answered(outcome)
            return
        response = self.respond(outcome)
        self.ended = True
        self.client.finished(response)

    def congested(self) -> Congestion:
        return self.client.congested()

    def expired(self) -> None:
        """End the request if its time is over; else bound it again."""
        if self.asked_at is not None:
            self.deadline = None  # until there is an answer
            return
        now = self.setting.now()
        left_s, words = self._left(now)
        if left_s > MOMENT_S:
            left_s = min(left_s, self.timeout_s)  # it may begin meanwhile
            self.deadline = self.setting.host.deadlines.bound(self, left_s, now)
            return
        words = with_questions(f"{self.what} {words}", self.questions)
        self.cancel(Stopped(Reason.DEADLINE, words))

    def _left(self, now: float) -> tuple[float, str]:
        """Return how much time is left, and the words for when it is over."""
        if self.total_s is None:
            words = "was not begun" if self.is_waiting else "gave no answer"
            left_s = self.accepted_at + self.timeout_s + self.asked_s - now if self.asked_s else 0.0
            return left_s, f"{words} in {self.timeout_s:g} s"
        if self.is_waiting:
            waited_s = now - self.accepted_at - self.asked_s
            words = f"was not begun in {round(waited_s, 1):g} s"
            return self.timeout_s + self.module.start_s - waited_s, words
        words = f"gave no answer in {self.timeout_s:g} s"
        left_s = self.heard_at + self.timeout_s - now
        total_left_s = self.begun_at + self.total_s - now
        if total_left_s < left_s:
            words = f"gave no answer in {self.total_s:g} s, which is the most that a call may take"
            return total_left_s, words + " with progress (supervision.timeouts.total_s)"
        if self.heard_at > self.begun_at:
            words = f"gave no answer in {now - self.begun_at:.0f} s"
            words += f", and told of no progress in the last {self.timeout_s:g} s"
        return left_s, words

    def ask_people(self) -> None:
        """Stop its clock, and those of its ancestors, while questions to people are open."""
        now = self.setting.now()
        for one in (self, *self.ancestors):
            if one.own_bound or one.settled or bool(one.questions) is (one.asked_at is not None):
                continue
            if one.asked_at is None:
                one.asked_at = now
                continue
            asked_s, one.asked_at = now - one.asked_at, None
            one.asked_s += asked_s
            if one.total_s is not None:
                one.begun_at = min(one.begun_at + asked_s, now)
                one.heard_at = min(one.heard_at + asked_s, now)
            if one.deadline is None:
                one.expired()

    def cancel(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""
        if self.guarded is not None:
            self.guarded.cancel(stopped)
        else:
            self.module.give_up(self, stopped)

    def resume(self) -> None:
        """Tell the module's side that the client may have room again."""
        self.module.resume(self)

    # Its end.

    def respond(self, outcome: Outcome) -> Response:
        """Make the response, and count and record it; `finish` follows."""
        request, setting, module, guarded = self.request, self.setting, self.module, self.guarded
        # Not before: also an answer that waits for assets is wanted by the deadline.
        if self.deadline is not None:
            self.deadline.pop(self, None)
        duration_s = setting.now() - self.accepted_at
        is_plain = guarded is None and not self.notices and request.session_id is None
        if type(outcome) is Failure:  # see `event`
            is_plain = False
            self._count(outcome)
            outcome = without_unseen(outcome, self.principal, module.name)
        else:
            try:
                module.tally.succeeded[request.op][0] += 1
            except KeyError:
                self._count(outcome)
        if self.entered:
            module.latency.add(int(duration_s * 1_000_000))
        response = Response(
            outcome,
            request.request_id,
            module.name,
            request.op,
            round(duration_s * 1000),
            request.session_id,
            self.all_notices() if self.notices else (),
            () if guarded is None else guarded.injected,
        )
        if self.recorded:
            span, recorder = self.span, setting.effects.recorder
            span.ended, span.duration_ms = setting.host.wall_clock(), response.duration_ms
            if not (is_plain and recorder.span_ended(span)):
                record_response(
                    recorder,
                    response,
                    self.span_id,
                    parent=span.parent,
                    by=span.by,
                    was_in_flight=True,
                    errors=0 if guarded is None else guarded.errors,
                    attributes=NOTHING if guarded is None else guarded.attributes(outcome),
                )
        return response

    def _count(self, outcome: Outcome) -> None:
        """Count a failure, or the first success of an op; `respond` counts the others."""
        if self.entered:
            module, op = self.module, self.request.op
            is_described = partial(self.setting.effects.descriptions.knows, module, op)
            ended = outcome_of(outcome) if isinstance(outcome, Failure) else OK
            module.tally.add(op, ended, is_described)
        elif isinstance(outcome, Failure):
            self.setting.refused[outcome.details["reason"]] += 1

    def finish(self, response: Response) -> None:
        self.ended = True
        self.guarded = None  # they hold each other, and only the garbage collector would see it
        self.client.finished(response)

    # What is known of it.

    @property
    def request_id(self) -> str:
        """The daemon's own id of the request."""
        return self.request.request_id

    @property
    def what(self) -> str:
        return f"{self.module.name}.{self.request.op}"

    @property
    def session_id(self) -> str | None:
        return self.request.session_id

    @property
    def span_id(self) -> str:
        """Its span in the journal, which is the parent of its children's."""
        return self.span.key[1]

    @property
    def origin(self) -> Provenance:
        request = self.request
        return Provenance(
            self.module.name,
            request.op,
            request.request_id,
            request.session_id,
            self.span_id,
            self.principal.name if self.session is None else self.session.owner,
            self.principal.by,
        )

    @property
    def is_waiting(self) -> bool:
        """Whether its module has not begun with it yet."""
        return self.server is None and not self.settled

    @property
    def children(self) -> Iterable[Invocation]:
        """The open invocations that are made on its behalf."""
        return () if self.guarded is None else self.guarded.children

    @property
    def ancestors(self) -> Iterator[Invocation]:
        """The invocations on whose behalf it is made, the nearest first."""
        one = self.parent
        while one is not None:
            yield one
            one = one.parent

    @property
    def first(self) -> Invocation:
        """The invocation at the beginning of the chain; itself, if it has no parent."""
        first = self
        for first in self.ancestors:  # noqa: B007 - the last one counts
            pass
        return first

    @property
    def serving(self) -> Invocation:
        """The request that its module's calls are made for: this one."""
        return self

    @property
    def questions(self) -> list[str]:
        """The ids of the open questions to people about it, or about its descendants."""
        return [] if self.guarded is None else self.guarded.questions

    def attend(self) -> None:
        """Count the module's silence from now on: it has got what it waited for."""
        self.heard_at = self.setting.now()

    def tell(self, event: Progress) -> None:
        """Send the client an event of the host's own."""
        self.client.event(event, None)

    def tell_first(self, event: Progress) -> None:
        """Send an event to the client of the first one; nothing is sent after the response."""
        first = self.first
        if not first.settled:
            first.tell(event)
