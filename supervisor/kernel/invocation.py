"""One accepted request, from acceptance to response.

No task is started for it: the reader of the module's output calls `event` and `settled` directly,
and those call the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec
import structlog
import trio

from protocol.connection import HostCalled, Notice, Request
from protocol.errors import Failure, Outcome, Reason
from protocol.events import Asset, Progress, StatePatch, StatePatched, UiEvent
from protocol.response import Response
from supervisor.kernel.assets.intake import AssetIntake
from supervisor.kernel.durability import acknowledged
from supervisor.kernel.effects import Effects
from supervisor.kernel.invoke_record import Span
from supervisor.kernel.lineage import Parents
from supervisor.kernel.origin import Origin
from supervisor.kernel.sessions.session import Session
from supervisor.policy.verdict import Stopped
from supervisor.runtime.call import Call
from supervisor.runtime.deadlines import Timer
from supervisor.runtime.host import Host
from supervisor.runtime.host_results import HostResults
from supervisor.runtime.module import Module
from supervisor.runtime.program import module_folder

log = structlog.get_logger()


class Client(Protocol):
    """Whoever asked; none of its methods may block."""

    def event(self, event: Progress) -> None:
        """Take an event of the invocation."""

    def finished(self, response: Response) -> None:
        """Take the response; called once, and last."""

    def congested(self) -> bool:
        """Whether events should not come faster for now."""


class Calls(Protocol):
    """The calls to the host that a module makes while it serves one request."""

    def take(self, asked: HostCalled, results: HostResults) -> None:
        """Accept a call, or refuse it at once."""

    def end(self, stopped: Stopped) -> None:
        """End all: the request has ended."""

    @property
    def waiting(self) -> bool:
        """Whether the module waits for the host to answer one."""


class Setting(msgspec.Struct, frozen=True):
    """What all invocations of a daemon share."""

    host: Host
    effects: Effects
    calls: Callable[[Invocation], Calls]
    """Makes what serves the calls of one invocation."""
    parents: Parents


class Invocation:
    """A request on its way through a module, and what comes of it on its way to the client."""

    __slots__ = (
        "_accepted_at",
        "_call",
        "_calls",
        "_children",
        "_client",
        "_deadline",
        "_effects",
        "_host",
        "_intake",
        "_module",
        "_parent",
        "_session",
        "_setting",
        "_silence",
        "_span",
        "_timeout_s",
    )

    def __init__(
        self,
        request: Request,
        module: Module,
        client: Client,
        session: Session | None,
        setting: Setting,
        *,
        parent: Invocation | None = None,
    ) -> None:
        """Accept a request; `session` is the one that it names.

        `parent` is the invocation on whose behalf it is made: its end is the end of this one.
        """
        self._module = module
        self._client = client
        self._session = session
        self._parent = parent
        self._children: set[Invocation] | None = None
        self._setting = setting
        self._calls: Calls | None = None
        self._host = setting.host
        self._effects = setting.effects
        self._intake: AssetIntake | None = None
        self._accepted_at = trio.current_time()
        self._deadline: Timer | None = None
        self._silence: Timer | None = None
        self._timeout_s = 0.0
        self._span = Span(
            setting.effects.recorder,
            module.name,
            request,
            setting.host.wall_clock(),
            None if parent is None else parent.span_id,
        )
        self._call = Call(request, self)

    @property
    def request_id(self) -> str:
        """The daemon's own id of the request."""
        return self._call.request.request_id

    @property
    def module(self) -> Module:
        """The module it is for."""
        return self._module

    @property
    def session_id(self) -> str | None:
        """The session that the request names."""
        return self._call.request.session_id

    @property
    def span_id(self) -> str:
        """Its span in the journal; those of its children name it as theirs."""
        return self._span.id

    @property
    def parent(self) -> Invocation | None:
        """The invocation on whose behalf it is made, if any."""
        return self._parent

    @property
    def children(self) -> Iterable[Invocation]:
        """The open invocations that are made on its behalf."""
        return self._children or ()

    @property
    def ancestors(self) -> Iterator[Invocation]:
        """Those on whose behalf it is made, the nearest first."""
        one = self._parent
        while one is not None:
            yield one
            one = one.parent

    @property
    def has_outcome(self) -> bool:
        """Whether its outcome is known."""
        return self._call.settled

    @property
    def is_waiting(self) -> bool:
        """Whether its module has not begun with it."""
        return self._call.server is None

    def begin(self, timeout_s: float, silence_s: float | None) -> None:
        """Set the bounds, then hand the call to the module."""
        if self._parent is not None:
            self._parent.adopt(self)
        if self._session is not None:
            self._effects.sessions.began(self._session, self.request_id, self)
        self._timeout_s = timeout_s
        self._deadline = self._host.deadlines.after(timeout_s, self._expired)
        if silence_s is not None:
            self._call.heard_at = self._accepted_at
            self._watch_silence(silence_s, silence_s)
        self._module.submit(self._call)

    def give_up(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""
        self._module.give_up(self._call, stopped)
        if self._intake is not None:
            self._intake.hurry()

    def adopt(self, child: Invocation) -> None:
        """Take note of an invocation made on behalf of this one."""
        if self._children is None:
            self._children = set()
        self._children.add(child)
        self._setting.parents.add(self)

    def let_go(self, child: Invocation) -> None:
        """Forget a child that has ended."""
        if self._children is not None:
            self._children.discard(child)
            if not self._children:
                self._setting.parents.discard(self)

    def attend(self) -> None:
        """Count the module's silence from now on: it has got what it waited for."""
        self._call.heard_at = trio.current_time()

    def resume(self) -> None:
        """Tell the module's side that the client may have room again."""
        self._call.resume()

    # What the module's side tells (call.Listener).

    def event(self, event: Progress, call: Call) -> None:
        """Pass an event on; from the first asset on, `_InTurn` takes them in the place of this."""
        kind = type(event)  # streams pass here; `isinstance` is slow to say no
        if kind is UiEvent or kind is StatePatch:
            self._pass_on(event)
        elif kind is Asset:
            self._intake = self._begin_intake()
            call.listener = _InTurn(self, self._intake)
            self._intake.put(event)
        else:
            self._client.event(event)

    def host_call(self, asked: HostCalled, results: HostResults, call: Call) -> None:
        """Have a call of the module served."""
        del call
        if self._calls is None:
            self._calls = self._setting.calls(self)
        self._calls.take(asked, results)

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Respond, after the assets that came before."""
        if self._silence is not None:
            self._silence.cancel()
        if self._calls is not None or self._children is not None:
            self._end_children()
        if self._intake is None:
            self._respond(outcome, call)
            return
        self._intake.finish(lambda: self._respond(outcome, call))
        if self._host.shutting_down:
            self._intake.hurry()

    def congested(self) -> bool:
        """Whether the client cannot keep up."""
        return self._client.congested()

    def _pass_on(self, event: Progress) -> None:
        """Have an event take effect, then pass it on."""
        match event:
            case UiEvent():
                ui = self._effects.ui
                if not ui.is_plain(event):
                    event = ui.pass_on(event, self.origin)
            case StatePatch():
                patched = self._patched(event)
                if patched is None:
                    return
                event = patched
        self._client.event(event)

    def _patched(self, event: StatePatch) -> StatePatch | StatePatched | None:
        """Merge a patch into the session's state; None if it is refused."""
        session = self._session
        if session is None:
            return event
        refusal = self._effects.sessions.patch(session, event.patch, self.origin)
        if refusal is not None:
            self._call.warn(Notice("patch_refused", refusal.message))
            return None
        return StatePatched(
            version=event.version,
            timestamp=event.timestamp,
            patch=event.patch,
            revision=session.kept.revision,
        )

    def _respond(self, outcome: Outcome, call: Call) -> None:
        # Not before: also an answer that waits for assets is wanted by the deadline.
        if self._deadline is not None:
            self._deadline.cancel()
        if self._parent is not None:
            self._parent.let_go(self)
        request, effects = call.request, self._effects
        duration_s = trio.current_time() - self._accepted_at
        self._module.counters.invocations += 1
        self._module.latency.add(int(duration_s * 1_000_000))
        response = Response(
            outcome,
            request.request_id,
            self._module.name,
            request.op,
            round(duration_s * 1000),
            request.session_id,
            tuple(call.all_notices()),
        )
        if isinstance(outcome, Failure):
            self._module.counters.failures += 1
            log_failure(response, outcome)
        self._span.end(response)
        if self._session is not None:
            effects.sessions.answered(self._session, response)
        elif self._intake is None or not self._intake.registered:
            self._client.finished(response)  # it acknowledges nothing that is kept
            return
        effects.durability.confirm(
            lambda failure: self._client.finished(acknowledged(response, failure))
        )

    def _end_children(self) -> None:
        words = f"{self._what}, on whose behalf it was made, has ended"
        stopped = Stopped(Reason.PARENT_ENDED, words)
        if self._calls is not None:
            self._calls.end(stopped)
        for child in tuple(self.children):
            child.give_up(stopped)

    def _begin_intake(self) -> AssetIntake:
        return AssetIntake(
            self._effects.assets,
            self.origin,
            module_folder(self._module.descriptor),
            pass_on=self._pass_on,
            warn=self._call.warn,
            resume=self._call.resume,
        )

    @property
    def origin(self) -> Origin:
        """Where what it produces comes from."""
        request = self._call.request
        return Origin(
            self._module.name, request.op, request.request_id, request.session_id, self._span.id
        )

    @property
    def _what(self) -> str:
        return f"{self._module.name}.{self._call.request.op}"

    def _expired(self) -> None:
        words = f"{self._what} gave no answer in {self._timeout_s:g} s"
        self.give_up(Stopped(Reason.DEADLINE, words))

    def _watch_silence(self, delay_s: float, silence_s: float) -> None:
        def look() -> None:
            silent_s = trio.current_time() - self._call.heard_at
            # Waiting for its turn, or for the host, is not the module's silence.
            if self._call.server is None or (self._calls is not None and self._calls.waiting):
                silent_s = 0.0
            if silent_s < silence_s:
                self._watch_silence(silence_s - silent_s, silence_s)
            else:
                words = f"{self._what} said nothing for {silence_s:g} s"
                self.give_up(Stopped(Reason.SILENCE, words))

        self._silence = self._host.deadlines.after(delay_s, look)


class _InTurn:
    """The listener of a call that has assets: its events wait for those."""

    def __init__(self, invocation: Invocation, intake: AssetIntake) -> None:
        self._invocation = invocation
        self._intake = intake

    def event(self, event: Progress, call: Call) -> None:
        """Pass an event on in its turn."""
        del call
        self._intake.put(event)

    def host_call(self, asked: HostCalled, results: HostResults, call: Call) -> None:
        """Have it served: it waits for no asset."""
        self._invocation.host_call(asked, results, call)

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Have the invocation respond in its turn."""
        self._invocation.settled(outcome, call)

    def congested(self) -> bool:
        """Whether too much waits, here or for the client."""
        return self._intake.congested or self._invocation.congested()


def log_failure(response: Response, failure: Failure) -> None:
    """Write to the daemon's log that a request failed, and why."""
    log.warning(
        "invocation failed",
        module=response.module,
        op=response.op,
        request=response.request_id,
        instance=failure.details.get("instance"),
        code=failure.code,
        reason=failure.details.get("reason"),
        words=failure.message,
        duration_ms=response.duration_ms,
    )
