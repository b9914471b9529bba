"""One accepted request, from acceptance to response.

No task is started for it: the reader of the module's output calls `event` and `settled` directly,
and those call the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from protocol import trace_context
from protocol.connection import HostCalled, Notice, Request
from protocol.errors import Failure, Outcome, Reason
from protocol.events import (
    Asset,
    AssetBytes,
    CallEvent,
    ErrorEvent,
    Progress,
    StatePatch,
    UiEvent,
)
from protocol.response import Response
from supervisor.kernel.assets.intake import AssetIntake
from supervisor.kernel.begin_order import BeginOrder, Held
from supervisor.kernel.durability import acknowledged
from supervisor.kernel.hooks.approvals import with_questions
from supervisor.kernel.invoke_record import (
    ERRORS_RECORDED,
    NOTHING,
    in_flight,
    record_end,
    record_error,
    record_response,
)
from supervisor.kernel.parties import Calls, Client, Origin
from supervisor.kernel.relative import Relative
from supervisor.kernel.request_checks import Doubt, without_unseen
from supervisor.kernel.sessions.session import Session
from supervisor.kernel.store.settings import IN_FLIGHT, InFlight
from supervisor.kernel.taking_effect import Effects, InTurn, take_effect
from supervisor.kernel.wait_graph import Parents
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.process.dialogue import Dialogue
from supervisor.runtime.process.program import module_folder
from supervisor.runtime.supervision.call import Call, Congestion
from supervisor.runtime.supervision.deadlines import Queue, Timer
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.hooks.guard import Guard


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all invocations of a daemon share."""

    host: Host
    effects: Effects
    calls: Callable[[Invocation], Calls]
    """Makes what serves the calls of one invocation."""
    parents: Parents
    account: Account
    """For what is held of invocations that nobody in particular asked for."""
    now: Callable[[], float]
    """Trio's clock itself: `trio.current_time` asks for it anew, in thrice the time."""
    recorded: bool = True
    """If not, the journal says nothing of them."""


class Invocation(Relative["Invocation"]):
    """A request on its way through a module, and what comes of it on its way to the client."""

    __slots__ = (
        "_accepted_at",
        "_begun_at",
        "_call",
        "_calls",
        "_deadline",
        "_effects",
        "_entered",
        "_errors",
        "_guard",
        "_held",
        "_host",
        "_intake",
        "_make_calls",
        "_module",
        "_now",
        "_recorded",
        "_session",
        "_silence",
        "_timeout_s",
        "account",
        "client",
        "ended",
        "principal",
        "span_id",
        "traceparent",
    )

    def __init__(
        self,
        request: Request,
        module: Module,
        client: Client,
        session: Session | None,
        setting: Setting,
        *,
        principal: Principal,
        parent: Invocation | None = None,
        account: Account | None = None,
        traceparent: str | None = None,
    ) -> None:
        """Accept a request; `session` is the one that it names.

        `parent` is the invocation on whose behalf it is made: its end is the end of this one.
        `traceparent` is that of who asked.
        """
        super().__init__(parent, setting.parents)
        self.principal = principal
        """Who asked."""
        self.client = client
        """Who is told of it."""
        self.ended = False
        """Whether a client has the response."""
        self._module = module
        self._session = session
        self._host = setting.host
        self._effects = setting.effects
        self._make_calls = setting.calls
        self._calls: Calls | None = None
        self._intake: AssetIntake | None = None
        self._guard: Guard | None = None
        self._held: Held | None = None
        self._entered = False
        self._errors = 0
        self._now = setting.now
        self._accepted_at = setting.now()
        if account is None:
            account = setting.account if parent is None else parent.account
        self.account: Account = account
        """For whom it holds bytes."""
        self._deadline: Queue | None = None
        self._silence: Timer | None = None
        self._timeout_s = 0.0
        recorder = setting.effects.recorder
        self.span_id = recorder.new_span()
        """Its span in the journal; those of its children name it as theirs."""
        self.traceparent: str | None = traceparent if parent is None else parent.traceparent
        """That of who asked first, if that had one."""
        if module.span_attributes is not None:
            own = trace_context.traceparent(self.span_id, self.first.span_id, self.traceparent)
            request = msgspec.structs.replace(request, traceparent=own)
        self._recorded = setting.recorded
        self._call = Call(request, self)
        if setting.recorded:
            self._begun_at = setting.host.wall_clock()
            recorder.span_began((IN_FLIGHT, self.span_id), self._in_flight)

    @property
    def request(self) -> Request:
        """What the module is asked."""
        return self._call.request

    @property
    def request_id(self) -> str:
        """The daemon's own id of the request."""
        return self._call.request.request_id

    @property
    def module(self) -> Module:
        """The module it is for."""
        return self._module

    @property
    def what(self) -> str:
        """Its module and op, for words."""
        return f"{self._module.name}.{self._call.request.op}"

    @property
    def session_id(self) -> str | None:
        """The session that the request names."""
        return self._call.request.session_id

    @property
    def origin(self) -> Origin:
        """Where what it produces comes from."""
        request = self._call.request
        return Origin(
            self._module.name,
            request.op,
            request.request_id,
            request.session_id,
            self.span_id,
            self.principal.name if self._session is None else self._session.owner,
            self.principal.by,
        )

    @property
    def has_outcome(self) -> bool:
        """Whether its outcome is known."""
        return self._call.settled

    @property
    def is_waiting(self) -> bool:
        """Whether its module is still to begin with it."""
        return self._call.server is None and not self._call.settled

    def begin(self, timeout_s: float, silence_s: float | None) -> None:
        """Set the bounds; `enter` follows, at once or, after `hold`, in its turn."""
        if self.parent is not None:
            self.parent.adopt(self)
        if self._session is not None:
            self._effects.sessions.began(self._session, self.request_id, self)
        self._timeout_s = timeout_s
        self._deadline = self._host.deadlines.bound(self, timeout_s, self._accepted_at)
        if silence_s is not None:
            self._call.heard_at = self._accepted_at
            self._watch_silence(silence_s, silence_s)

    def hold(
        self, order: BeginOrder, doubt: Doubt | None, enter: Callable[[Invocation], None]
    ) -> None:
        """Wait until it is its turn and there is no doubt about its args; then `enter` it."""

        def begin(failure: Failure | None) -> None:
            self._held = None
            if failure is not None:
                self._call.settle(failure)
            elif not self._call.settled:
                enter(self)

        held = order.hold(self._module.name, doubt, begin)
        if held.begin is not None:
            self._held = held

    def enter(self, guard: Guard | None = None) -> None:
        """Hand the call to the module, or first to who guards it."""
        self._entered = True
        self._guard = guard
        if guard is None:
            self._module.submit(self._call)
        else:
            guard.begin()

    def cancel(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""
        if self._guard is not None:
            stopped = self._guard.give_up(stopped)
        if self._held is not None:
            held, self._held = self._held, None
            stopped = Stopped(stopped.reason, f"{stopped.message}; {held.why}")
            held.leave()
        self._module.give_up(self._call, stopped)
        if self._intake is not None:
            self._intake.hurry()

    def attend(self) -> None:
        """Count the module's silence from now on: it has got what it waited for."""
        self._call.heard_at = self._now()

    def warn(self, notice: Notice) -> None:
        """Add a warning to the response."""
        self._call.warn(notice)

    def tell(self, event: Progress) -> None:
        """Tell the client something of the host's own."""
        self.client.event(event, None)

    @property
    def questions(self) -> list[str]:
        """The ids of the questions to people that it waits for, or what is done on its behalf."""
        found = [one for child in self.children for one in child.questions]
        if self._calls is not None:
            found += self._calls.questions
        if self._guard is not None and self._guard.question is not None:
            found.append(self._guard.question)
        return found

    @property
    def first(self) -> Invocation:
        """The one that all this is done for; itself, if it has no parent."""
        first = self
        for first in self.ancestors:  # noqa: B007 - the last one counts
            pass
        return first

    @property
    def serving(self) -> Invocation:
        """The request that its module's calls are made for: this one."""
        return self

    def tell_first(self, event: Progress) -> None:
        """Tell the client of the first one; nothing is told after the response."""
        first = self.first
        if not first.has_outcome:
            first.tell(event)

    def resume(self) -> None:
        """Tell the module's side that the client may have room again."""
        self._module.resume(self._call)

    # What its guard decides.

    def proceed(self, args: dict[str, Any]) -> None:
        """Hand the call to the module, with these args."""
        if args is not self._call.request.args:
            self._call.request = msgspec.structs.replace(self._call.request, args=args)
        self._module.submit(self._call)

    def refuse(self, failure: Failure) -> None:
        """End it without the module."""
        self._call.settle(failure)

    def conclude(self, outcome: Outcome) -> None:
        """Respond, after the assets that came before."""
        if self._calls is not None or self._children is not None:
            self._end_what_it_caused()
        if self._intake is None:
            self._respond(outcome)
            return
        self._intake.finish(lambda: self._respond(outcome))
        if self._host.shutting_down:
            self._intake.hurry()

    # What the module's side tells (call.Listener).

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        """Pass an event on; from the first asset on, `InTurn` takes them in the place of this."""
        # Streams pass here; `isinstance` is slow to say no.
        if type(event) is UiEvent and self._effects.ui.is_plain(event):
            self.client.event(event, line)
        elif type(event) is UiEvent or type(event) is StatePatch or type(event) is ErrorEvent:
            self._pass_on(event, line)
        elif type(event) is Asset or type(event) is AssetBytes:
            self._intake = self._begin_intake()
            call.listener = InTurn(self, self._intake)
            self._intake.put(event, line)
        else:
            self.client.event(event, line)

    def host_call(self, asked: HostCalled, dialogue: Dialogue, call: Call) -> None:
        """Have a call of the module served."""
        del call
        if self._calls is None:
            self._calls = self._make_calls(self)
        self._calls.take(asked, dialogue)

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Conclude, once its guard has nothing to say."""
        del call
        if self._silence is not None:
            self._silence.cancel()
        if self._guard is not None:
            self._end_what_it_caused()
            if self._guard.takes(outcome):
                return
        self.conclude(outcome)

    def congested(self) -> Congestion:
        """Whether the client cannot keep up."""
        return self.client.congested()

    def _pass_on(self, event: Progress, line: bytes | None) -> None:
        """Have an event take effect, then pass it on; its line only if it is still the same."""
        if type(event) is ErrorEvent and self._recorded:
            self._errors += 1
            if self._errors <= ERRORS_RECORDED:
                record_error(self._effects.recorder, event, self.origin)
        told = take_effect(event, self._session, self._effects, self.origin, self._call.warn)
        if told is not None:
            self.client.event(told, line if told is event else None)

    def _respond(self, outcome: Outcome) -> None:
        # Not before: also an answer that waits for assets is wanted by the deadline.
        if self._deadline is not None:
            self._deadline.pop(self, None)
        if self.parent is not None:
            self.parent.let_go(self)
        request, effects = self._call.request, self._effects
        duration_s = self._now() - self._accepted_at
        if type(outcome) is Failure:  # see `event`
            self._module.counters.failures += self._entered
            outcome = without_unseen(outcome, self.principal)
        if self._entered:  # else the module has nothing to do with it
            self._module.counters.invocations += 1
            self._module.latency.add(int(duration_s * 1_000_000))
        response = Response(
            outcome,
            request.request_id,
            self._module.name,
            request.op,
            round(duration_s * 1000),
            request.session_id,
            tuple(self._call.all_notices()) if self._call.notices else (),
            () if self._guard is None else tuple(self._guard.injected),
        )
        parent = self.parent
        if self._recorded and (
            parent is not None
            or self._errors
            or self._module.span_attributes is not None
            or not record_end(
                effects.recorder,
                response,
                (IN_FLIGHT, self.span_id),
                ts=self._host.wall_clock(),
                by=self.principal.by,
            )
        ):
            record_response(
                effects.recorder,
                response,
                self.span_id,
                parent=None if parent is None else parent.span_id,
                by=self.principal.by,
                was_in_flight=True,
                errors=self._errors,
                attributes=self._attributes(outcome),
            )
        if parent is not None or not self._recorded:
            effects.lineage.end(request.request_id)
        if self._session is not None:
            effects.sessions.answered(self._session, response)
        elif self._intake is None or not self._intake.registered:
            self._finish(response)  # it acknowledges nothing that is kept
            return
        effects.durability.confirm(lambda failure: self._finish(acknowledged(response, failure)))

    def _attributes(self, outcome: Outcome) -> Mapping[str, str]:
        module, request = self._module, self._call.request
        if module.span_attributes is None or request.traceparent is None:
            return NOTHING
        found = module.span_attributes(module.descriptions.current, request, outcome)
        return {**found, "traceparent": request.traceparent}

    def _in_flight(self) -> InFlight:
        parent, request = self.parent, self._call.request
        return in_flight(
            self._module.name,
            request,
            ts=self._begun_at,
            parent=None if parent is None else parent.span_id,
            by=self.principal.by,
        )

    def _finish(self, response: Response) -> None:
        self.ended = True
        self.client.finished(response)

    def _end_what_it_caused(self) -> None:
        words = f"{self.what}, on whose behalf it was made, has ended"
        stopped = Stopped(Reason.PARENT_ENDED, words)
        if self._calls is not None:
            self._calls.end(stopped)
        self.end_children(stopped)

    def _begin_intake(self) -> AssetIntake:
        return AssetIntake(
            self._effects.assets,
            self.origin,
            module_folder(self._module.descriptor),
            self.account,
            pass_on=self._pass_on,
            warn=self._call.warn,
            resume=self._call.resume,
        )

    def expired(self) -> None:
        """End it: it has had its time."""
        words = f"{self.what} gave no answer in {self._timeout_s:g} s"
        words = with_questions(words, self.questions)
        self.cancel(Stopped(Reason.DEADLINE, words))

    def _watch_silence(self, delay_s: float, silence_s: float) -> None:
        def look() -> None:
            silent_s = self._now() - self._call.heard_at
            # Waiting for its turn, for the host, or for a client to read, is not its silence.
            waits = self._call.server is None or self._call.listener.congested()
            if waits or (self._calls is not None and self._calls.waiting):
                silent_s = 0.0
            if silent_s < silence_s:
                self._watch_silence(silence_s - silent_s, silence_s)
            else:
                words = f"{self.what} said nothing for {silence_s:g} s"
                self.cancel(Stopped(Reason.SILENCE, words))

        self._silence = self._host.deadlines.after(delay_s, look)
