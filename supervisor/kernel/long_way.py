"""What an invocation that is not plain needs beside itself, from acceptance to response.

A session, gates, assets, calls of its module to the host, a parent and children, errors and spans,
a turn to wait for, a bound on the module's silence: the state of each is here, and None or empty
for an invocation without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from protocol import trace_context
from protocol.connection import HostCalled
from protocol.errors import Failure, Outcome, Reason
from protocol.events import Asset, AssetBytes, ErrorEvent
from supervisor.kernel.assets.intake import AssetIntake
from supervisor.kernel.begin_order import BeginOrder, Held
from supervisor.kernel.durability import acknowledged
from supervisor.kernel.invoke_record import ERRORS_RECORDED, NOTHING, record_error
from supervisor.kernel.request_checks import Unlisted
from supervisor.kernel.spans import ended_span
from supervisor.policy.verdict import Stopped
from supervisor.policy.waits import Waits, circle
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.hooks.guard import Guard
    from supervisor.kernel.host_calls.docket import Docket
    from supervisor.kernel.invocation import Invocation


class LongWay:
    __slots__ = (
        "_calls",
        "_family",
        "_guard",
        "_held",
        "_invocation",
        "_silence",
        "children",
        "errors",
        "intake",
    )

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self.intake: AssetIntake | None = None
        """The intake of its assets, from the first one on."""
        self.errors = 0
        self.children: set[Invocation] = set()
        self._calls: Docket | None = None
        self._guard: Guard | None = None
        self._family: LongWay | None = None
        """The long way of its parent."""
        self._held: Held | None = None
        self._silence: Timer | None = None

    # Its beginning.

    def begin(self, silence_s: float | None) -> None:
        """Register with its parent and its session, and watch its module for silence."""
        one = self._invocation
        if one.parent is not None:
            self._family = one.parent.take_long_way()
            self._family.adopt(one)
        if one.session is not None:
            one.setting.effects.sessions.began(one.session, one.request_id, one)
        # Without a trace and without a taker of spans, it needs none.
        begins = one.setting.spans is not None or one.module.span_attributes is not None
        if begins or one.traceparent is not None:
            own = trace_context.traceparent(one.span_id, one.first.span_id, one.traceparent)
            one.request = msgspec.structs.replace(one.request, traceparent=own)
        if silence_s is not None:
            one.heard_at = one.accepted_at
            self._look_later(silence_s, silence_s)

    def hold(
        self, order: BeginOrder, unlisted: Unlisted | None, enter: Callable[[Invocation], None]
    ) -> None:
        """Wait for its turn, and for its module to list its op; then `enter` it."""
        one = self._invocation

        def begin(failure: Failure | None) -> None:
            self._held = None
            if failure is not None:
                one.settle(failure)
            elif not one.settled:
                enter(one)

        held = order.hold(one.module.name, unlisted, begin)
        if held.begin is not None:
            self._held = held

    def enter(self, guard: Guard) -> None:
        """Hand it to its guard, which submits or settles it."""
        self._invocation.entered = True
        self._guard = guard
        guard.begin()

    # What comes of it.

    def take_in(self, asset: Asset | AssetBytes, line: bytes | None) -> None:
        """Take in its first asset; from then on the intake takes its events."""
        one = self._invocation
        one.listener = self.intake = AssetIntake(one)
        self.intake.event(asset, one, line)

    def record_error(self, event: ErrorEvent) -> None:
        """Record an `error` event, except in a flood of them."""
        self.errors += 1
        if self.errors <= ERRORS_RECORDED:
            one = self._invocation
            record_error(one.setting.effects.recorder, event, one.origin)

    def host_call(self, asked: HostCalled, process: Incarnation) -> None:
        if self._calls is None:
            self._calls = self._invocation.setting.calls(self._invocation)
        self._calls.take(asked, process)

    def answered(self, outcome: Outcome) -> None:
        """Conclude, unless its guard asks gates about the outcome first."""
        if self._silence is not None:
            self._silence.cancel()
        if self._guard is not None:
            self._end_what_it_caused()
            if self._guard.takes(outcome):
                return
        self.conclude(outcome)

    def conclude(self, outcome: Outcome) -> None:
        """Respond, after the assets that came before."""
        self._end_what_it_caused()
        if self.intake is None:
            self._respond(outcome)
            return
        self.intake.finish(lambda: self._respond(outcome))
        if self._invocation.setting.host.shutting_down:
            self.intake.hurry()

    def give_up(self, stopped: Stopped) -> Stopped:
        """Stop waiting for gates and turns; return the reason, with what was waited for."""
        if self._guard is not None:
            stopped = self._guard.give_up(stopped)
        if self._held is not None:
            held, self._held = self._held, None
            stopped = Stopped(stopped.reason, f"{stopped.message}; {held.why}")
            held.leave()
        return stopped

    def hurry(self) -> None:
        if self.intake is not None:
            self.intake.hurry()

    # What is known of it.

    @property
    def questions(self) -> list[str]:
        found = [one for child in self.children for one in child.questions]
        if self._calls is not None:
            found += self._calls.questions
        if self._guard is not None and self._guard.question is not None:
            found.append(self._guard.question)
        return found

    def attributes(self, outcome: Outcome) -> Mapping[str, str]:
        module, request = self._invocation.module, self._invocation.request
        if module.span_attributes is None or request.traceparent is None:
            return NOTHING
        found = module.span_attributes(module.descriptions.current, request, outcome)
        return {**found, "traceparent": request.traceparent}

    @property
    def injected(self) -> tuple[dict[str, Any], ...]:
        return () if self._guard is None else tuple(self._guard.injected)

    def _respond(self, outcome: Outcome) -> None:
        one = self._invocation
        effects = one.setting.effects
        if self._family is not None:
            self._family.let_go(one)
        response = one.respond(outcome)
        if one.setting.spans is not None and (span := ended_span(one, response)) is not None:
            one.setting.spans.ended(span)
        effects.lineage.end(one.request_id)
        if one.session is not None:
            effects.sessions.answered(one.session, response)
        elif self.intake is None or not self.intake.registered:
            one.finish(response)  # it acknowledges nothing that is kept
            return
        effects.durability.confirm(lambda failure: one.finish(acknowledged(response, failure)))

    def adopt(self, child: Invocation) -> None:
        self.children.add(child)
        self._invocation.setting.parents.add(self._invocation)

    def let_go(self, child: Invocation) -> None:
        self.children.discard(child)
        if not self.children:
            self._invocation.setting.parents.discard(self._invocation)

    def _end_what_it_caused(self) -> None:
        if self._calls is None and not self.children:
            return
        words = f"{self._invocation.what}, on whose behalf it was made, has ended"
        stopped = Stopped(Reason.PARENT_ENDED, words)
        if self._calls is not None:
            self._calls.end(stopped)
        for child in tuple(self.children):
            child.cancel(stopped)

    def _look_later(self, delay_s: float, silence_s: float) -> None:
        one = self._invocation

        def look() -> None:
            silent_s = one.setting.now() - one.heard_at
            # Waiting for its turn, for the host, or for a client to read, is not its silence.
            waits = one.server is None or one.listener.congested()
            if waits or (self._calls is not None and self._calls.waiting):
                silent_s = 0.0
            if silent_s < silence_s:
                self._look_later(silence_s - silent_s, silence_s)
            else:
                words = f"{one.what} printed nothing for {silence_s:g} s"
                one.cancel(Stopped(Reason.SILENCE, words))

        self._silence = one.setting.host.deadlines.after(delay_s, look)


class Parents:
    """The invocations that have open children, by module: which wait for each other.

    An invocation waits for its open children: the host calls of its module, and the gates that are
    asked about it. Before its module has begun with it, it also waits for that module's capacity.
    A call that would wait for itself is refused (`policy.waits`).
    """

    def __init__(self) -> None:
        self._by_module: dict[str, dict[str, Invocation]] = {}

    def add(self, one: Invocation) -> None:
        """Add an invocation that has a child; idempotent."""
        self._by_module.setdefault(one.module.name, {})[one.request_id] = one

    def discard(self, one: Invocation) -> None:
        of_module = self._by_module.get(one.module.name, {})
        of_module.pop(one.request_id, None)
        if not of_module:
            self._by_module.pop(one.module.name, None)

    def reentrant(self, call: str, parent: Invocation, module: Module) -> Failure | None:
        """Return the failure if a call for a module without room would never be served.

        `call` is its id, `parent` the invocation on whose behalf it is to be made.
        """
        self.add(parent)  # it is one as soon as the call is made
        try:
            chain = circle(call, self._waits(call, parent, module))
        finally:
            if not any(True for _ in parent.children):
                self.discard(parent)
        if chain is None:
            return None
        words = (
            f"{module.name} would never serve this call: {' -> '.join(chain)} wait for each other;"
            " a larger supervision.concurrency makes room"
        )
        return Failure.because(Reason.REENTRANT_CALL, words, chain=list(chain))

    def _waits(self, call: str, parent: Invocation, module: Module) -> Waits:
        """Collect what the end of a call may depend on, and no more."""
        modules = {call: module.name}
        children: dict[str, list[str]] = {}
        waiting = {call}
        holders: dict[str, list[str]] = {}
        capacities: dict[str, int] = {}
        wanted, found = [module], list["Invocation"]()
        while wanted or found:
            if wanted:
                one = wanted.pop()
                if one.name not in holders:
                    there = self._holders(one)
                    holders[one.name] = [kin.request_id for kin in there]
                    capacities[one.name] = one.capacity
                    found += there
                continue
            kin = found.pop()
            if kin.request_id in modules:
                continue
            modules[kin.request_id] = kin.module.name
            below = list(kin.children)
            children[kin.request_id] = [child.request_id for child in below]
            if kin is parent:
                children[kin.request_id].append(call)
            if kin.is_waiting:
                waiting.add(kin.request_id)
                wanted.append(kin.module)
            found += below
        return Waits(modules, children, waiting, holders, capacities)

    def _holders(self, module: Module) -> list[Invocation]:
        """Return the invocations that hold a module's capacity; others there end by themselves."""
        of_module = self._by_module.get(module.name, {})
        return [one for one in of_module.values() if not (one.is_waiting or one.settled)]
