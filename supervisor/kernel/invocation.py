"""One accepted request, from acceptance to response.

No task is started for it: the reader of the module's output calls `event` and `settled` directly,
and those call the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec
import trio

from protocol.connection import Notice, Request
from protocol.errors import Failure, Outcome, Reason
from protocol.events import Asset, Progress, StatePatch, StatePatched, UiEvent
from protocol.response import Response
from supervisor.kernel.assets.intake import AssetIntake
from supervisor.kernel.durability import acknowledged
from supervisor.kernel.effects import Effects
from supervisor.kernel.invoke_record import Span, Unrecorded
from supervisor.kernel.origin import Origin
from supervisor.kernel.sessions.session import Session
from supervisor.policy.verdict import Stopped
from supervisor.runtime.call import Call
from supervisor.runtime.deadlines import Timer
from supervisor.runtime.host import Host
from supervisor.runtime.module import Module
from supervisor.runtime.program import module_folder


class Client(Protocol):
    """Whoever asked; none of its methods may block."""

    def event(self, event: Progress) -> None:
        """Take an event of the invocation."""

    def finished(self, response: Response) -> None:
        """Take the response; called once, and last."""

    def congested(self) -> bool:
        """Whether events should not come faster for now."""


class Guard(Protocol):
    """Whoever decides whether a request is served, and what of its outcome is told."""

    injected: list[dict[str, Any]]
    """What is to be put into the context; it goes into the response."""

    def begin(self) -> None:
        """Decide; then have it served (`proceed`) or refused (`refuse`)."""

    def takes(self, outcome: Outcome) -> bool:
        """Take an outcome to decide on, and `conclude` later; False if there is nothing to say."""

    def give_up(self, stopped: Stopped) -> Stopped:
        """Decide nothing any more; returns the reason, with what was waited for."""


class Setting(msgspec.Struct, frozen=True):
    """What all invocations of a daemon share."""

    host: Host
    effects: Effects
    recorded: bool = True
    """If not, the journal says nothing of them."""


class Invocation:
    """A request on its way through a module, and what comes of it on its way to the client."""

    __slots__ = (
        "_accepted_at",
        "_call",
        "_children",
        "_client",
        "_deadline",
        "_effects",
        "_guard",
        "_host",
        "_intake",
        "_module",
        "_parent",
        "_session",
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
        self._host = setting.host
        self._effects = setting.effects
        self._intake: AssetIntake | None = None
        self._guard: Guard | None = None
        self._accepted_at = trio.current_time()
        self._deadline: Timer | None = None
        self._silence: Timer | None = None
        self._timeout_s = 0.0
        self._span = (
            Span(
                setting.effects.recorder,
                module.name,
                request,
                setting.host.wall_clock(),
                None if parent is None else parent.span_id,
            )
            if setting.recorded
            else Unrecorded(setting.effects.recorder, setting.effects.lineage)
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

    def begin(self, timeout_s: float, silence_s: float | None, guard: Guard | None = None) -> None:
        """Set the bounds, then hand the call to the module, or first to who guards it."""
        if self._parent is not None:
            self._parent.adopt(self)
        if self._session is not None:
            self._effects.sessions.began(self._session, self.request_id, self)
        self._timeout_s = timeout_s
        self._deadline = self._host.deadlines.after(timeout_s, self._expired)
        if silence_s is not None:
            self._call.heard_at = self._accepted_at
            self._watch_silence(silence_s, silence_s)
        self._guard = guard
        if guard is None:
            self._module.submit(self._call)
        else:
            guard.begin()

    def give_up(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""
        if self._guard is not None:
            stopped = self._guard.give_up(stopped)
        self._module.give_up(self._call, stopped)
        if self._intake is not None:
            self._intake.hurry()

    def adopt(self, child: Invocation) -> None:
        """Take note of an invocation made on behalf of this one."""
        if self._children is None:
            self._children = set()
        self._children.add(child)

    def let_go(self, child: Invocation) -> None:
        """Forget a child that has ended."""
        if self._children is not None:
            self._children.discard(child)

    # What its guard decides.

    @property
    def request(self) -> Request:
        """What the module is asked."""
        return self._call.request

    @property
    def what(self) -> str:
        """Its module and op, for words."""
        return f"{self._module.name}.{self._call.request.op}"

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
        if self._children is not None:
            self._end_children()
        call = self._call
        if self._intake is None:
            self._respond(outcome, call)
            return
        self._intake.finish(lambda: self._respond(outcome, call))
        if self._host.shutting_down:
            self._intake.hurry()

    def warn(self, notice: Notice) -> None:
        """Add a warning to the response."""
        self._call.warn(notice)

    def tell(self, event: Progress) -> None:
        """Tell the client something of the host's own."""
        self._client.event(event)

    def tell_first(self, event: Progress) -> None:
        """Tell it the client of the request that all this is done for: somebody may sit there."""
        first = self
        for first in self.ancestors:  # noqa: B007 - the last one counts
            pass
        first.tell(event)

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

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Conclude, once its guard has nothing to say."""
        del call
        if self._silence is not None:
            self._silence.cancel()
        if self._children is not None:
            self._end_children()
        if self._guard is None or not self._guard.takes(outcome):
            self.conclude(outcome)

    def congested(self) -> bool:
        """Whether the client cannot keep up."""
        return self._client.congested()

    def _pass_on(self, event: Progress) -> None:
        """Have an event take effect, then pass it on."""
        match event:
            case UiEvent():
                ui = self._effects.ui
                if not ui.is_plain(event):
                    event = ui.pass_on(event, self._origin)
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
        refusal = self._effects.sessions.patch(session, event.patch, self._origin)
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
            () if self._guard is None else tuple(self._guard.injected),
        )
        if isinstance(outcome, Failure):
            self._module.counters.failures += 1
        self._span.end(response)
        if self._parent is not None:
            effects.lineage.end(request.request_id)
        if self._session is not None:
            effects.sessions.answered(self._session, response)
        elif self._intake is None or not self._intake.registered:
            self._client.finished(response)  # it acknowledges nothing that is kept
            return
        effects.durability.confirm(
            lambda failure: self._client.finished(acknowledged(response, failure))
        )

    def _end_children(self) -> None:
        words = f"{self.what}, on whose behalf it was made, has ended"
        for child in tuple(self.children):
            child.give_up(Stopped(Reason.PARENT_ENDED, words))

    def _begin_intake(self) -> AssetIntake:
        return AssetIntake(
            self._effects.assets,
            self._origin,
            module_folder(self._module.descriptor),
            pass_on=self._pass_on,
            warn=self._call.warn,
            resume=self._call.resume,
        )

    @property
    def _origin(self) -> Origin:
        request = self._call.request
        return Origin(
            self._module.name, request.op, request.request_id, request.session_id, self._span.id
        )

    def _expired(self) -> None:
        words = f"{self.what} gave no answer in {self._timeout_s:g} s"
        self.give_up(Stopped(Reason.DEADLINE, words))

    def _watch_silence(self, delay_s: float, silence_s: float) -> None:
        def look() -> None:
            silent_s = trio.current_time() - self._call.heard_at
            # Waiting for its turn is not the module's silence.
            if self._call.server is None:
                silent_s = 0.0
            if silent_s < silence_s:
                self._watch_silence(silence_s - silent_s, silence_s)
            else:
                words = f"{self.what} said nothing for {silence_s:g} s"
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

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Have the invocation respond in its turn."""
        self._invocation.settled(outcome, call)

    def congested(self) -> bool:
        """Whether too much waits, here or for the client."""
        return self._intake.congested or self._invocation.congested()
