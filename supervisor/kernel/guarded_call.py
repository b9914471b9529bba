"""A guarded call, from acceptance to response: read `GuardedCall.run` from top to bottom.

Such a call has a turn to wait for, gates, assets, a bound on its module's silence, a session, calls
of its module to the host, a parent or children, or a trace. The state of each is here, and None or
empty for a call without it. It may become guarded while it is served, with its first asset for
instance. `run` is a task where there is something to wait for (the first four). A task costs as
much as all else of a call in a session, so where nothing but the module is waited for, `answered`
does what `run` does last.

Without a turn and gates, the call is submitted before the task runs, so that calls begin in the
order in which they were written. `cancel` ends the call at once, at whatever the task waits for:
the client's own cancel, the deadline, the end of the session or of the parent, and the daemon's
stop come in there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from protocol import trace_context
from protocol.connection import HostCalled
from protocol.errors import Failure, Outcome, Reason
from protocol.events import Asset, AssetBytes, ErrorEvent
from supervisor.kernel.assets.intake import AssetIntake
from supervisor.kernel.begin_order import BeginOrder, BeginTasks, PlaceInOrder
from supervisor.kernel.durability import acknowledged
from supervisor.kernel.hooks.gates import CallGates, stopping
from supervisor.kernel.hooks.registry import GateChain
from supervisor.kernel.invoke_record import ERRORS_RECORDED, NOTHING, record_error
from supervisor.kernel.request_checks import Unlisted
from supervisor.kernel.spans import ended_span
from supervisor.policy.verdict import Stopped
from supervisor.policy.waits import Waits, circle
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.host_calls.docket import Docket
    from supervisor.kernel.invocation import Invocation


class GuardedCall:
    __slots__ = (
        "_answer",
        "_answered",
        "_begun",
        "_ended",
        "_gates",
        "_host_calls",
        "_place",
        "_scope",
        "_silence_s",
        "assets",
        "call",
        "children",
        "errors",
    )

    def __init__(self, call: Invocation) -> None:
        self.call = call
        self.assets: AssetIntake | None = None
        """The intake of its assets, from the first one on."""
        self.children: set[Invocation] = set()
        """The open invocations that are made on its behalf."""
        self.errors = 0
        """The count of its `error` events."""
        self._host_calls: Docket | None = None
        self._gates: CallGates | None = None
        self._place: PlaceInOrder | None = None
        """Its place in the order of its party's requests, until it has begun."""
        self._begun: trio.Event | None = None
        """Set when it has begun, if the task is there before that."""
        self._silence_s = math.inf
        """The longest that its module may print nothing."""
        self._answer: Outcome | None = None
        self._answered = trio.Event()
        self._ended = False
        self._scope: trio.CancelScope | None = None
        """The scope of the task, once there is one."""

    async def run(self, scope: trio.CancelScope) -> None:
        """Serve the call, from its turn to begin to its response."""
        call, setting = self.call, self.call.setting
        try:
            with scope:  # `cancel` responds, and ends each of these waits
                if self._begun is not None:
                    await self._begun.wait()
                    if self._ended:  # by a cancel in the same moment
                        return
                gates = self._gates
                if gates is not None and not gates.allowed:
                    refusal = await gates.before()
                    if self._ended:
                        return
                    if refusal is None:
                        call.module.submit(call)
                    else:
                        call.settle(refusal)
                outcome = await self._served()
                if gates is not None and gates.is_asking:
                    outcome = self._answer = await gates.after(outcome)
                    self._end_what_it_caused()
                if self.assets is not None:
                    self.assets.finish()
                    if not setting.host.shutting_down:
                        await self.assets.drained()
                self._end(outcome)
        finally:
            if not self._ended:  # the daemon ends without waiting
                self._end(stopping(call))
            setting.guarded.discard(self)
            if not setting.guarded:
                setting.none_guarded.unpark_all()

    async def _served(self) -> Outcome:
        """Return the outcome of its module, which fails if it prints nothing for too long."""
        call, silence_s = self.call, self._silence_s
        left_s = silence_s
        if silence_s == math.inf:  # a scope with a time would cost as much as the task
            await self._answered.wait()
        while self._answer is None:
            with trio.move_on_after(left_s):
                await self._answered.wait()
                break
            # Waiting for its turn, for the host, or for a client to read, is not its silence.
            waits = call.server is None or call.listener.congested()
            left_s = call.heard_at + silence_s - call.setting.now()
            if waits or (self._host_calls is not None and self._host_calls.waiting):
                left_s = silence_s
            elif left_s <= 0:
                words = f"{call.what} printed nothing for {silence_s:g} s"
                call.module.give_up(call, Stopped(Reason.SILENCE, words))
                if self.assets is not None:
                    self.assets.end()
        assert self._answer is not None  # noqa: S101 - it is set together with the event
        return self._answer

    def cancel(self, stopped: Stopped) -> None:
        """End the call, for a reason of the host's or the client's own; idempotent."""
        if self._ended:
            return
        call, waits_for, withheld = self.call, "", False
        if self._place is not None:
            waits_for = self._place.why
        elif self._gates is not None and self._gates.is_asking:
            waits_for = f"it was still waiting for {self._gates.waits_for}"
            withheld = call.settled
        if waits_for:
            stopped = Stopped(stopped.reason, f"{stopped.message}; {waits_for}")
        call.module.give_up(call, stopped)
        if withheld or self._answer is None:
            self._end(Failure.because(stopped.reason, stopped.message))
        else:
            self._end(self._answer)

    def stop(self) -> None:
        """End the call if it is in front of its module, or a person is asked: the daemon stops."""
        gates = self._gates
        if gates is None or not gates.is_asking:
            return  # its module is about to answer, or its files are being looked at
        if not gates.allowed or gates.question is not None:
            self.cancel(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))

    def _end(self, outcome: Outcome) -> None:
        """Respond, after all events that came before; only the first outcome counts."""
        if self._ended:  # an answer and a cancel came in the same moment
            return
        call, effects = self.call, self.call.setting.effects
        self._ended = True
        if self._scope is not None:
            self._scope.cancel()
        if self._place is not None:
            place, self._place = self._place, None
            place.leave()
        if self._gates is not None:
            self._gates.is_asking = False
        call.settle(outcome)  # it is, unless the daemon ends without waiting
        self._end_what_it_caused()
        if self.assets is not None:
            self.assets.end()
        if call.parent is not None and call.parent.guarded is not None:
            call.parent.guarded.let_go(call)
        response = call.respond(outcome)
        if call.setting.spans is not None and (span := ended_span(call, response)) is not None:
            call.setting.spans.ended(span)
        effects.lineage.end(call.request_id)
        if call.session is not None:
            effects.sessions.answered(call.session, response)
        elif self.assets is None or not self.assets.registered:
            call.finish(response)  # it acknowledges nothing that is kept
            return
        # Not in the task, which the daemon's end may cancel: what is stored then is acknowledged.
        effects.durability.confirm(lambda failure: call.finish(acknowledged(response, failure)))

    def _end_what_it_caused(self) -> None:
        if self._host_calls is None and not self.children:
            return
        words = f"{self.call.what}, on whose behalf it was made, has ended"
        stopped = Stopped(Reason.PARENT_ENDED, words)
        if self._host_calls is not None:
            self._host_calls.end(stopped)
        for child in tuple(self.children):
            child.cancel(stopped)

    # A call becomes guarded.

    def begin(self, silence_s: float | None) -> None:
        """Register with its parent and its session, and give it a trace."""
        call = self.call
        if call.parent is not None:
            call.parent.guard().adopt(call)
        if call.session is not None:
            call.setting.effects.sessions.began(call.session, call.request_id, call)
        # Without a trace and without a taker of spans, it needs none.
        begins = call.setting.spans is not None or call.module.span_attributes is not None
        if begins or call.traceparent is not None:
            own = trace_context.traceparent(call.span_id, call.first.span_id, call.traceparent)
            call.request = msgspec.structs.replace(call.request, traceparent=own)
        if silence_s is not None:
            self._silence_s, call.heard_at = silence_s, call.accepted_at
            self._start()

    def _start(self) -> None:
        """Start the task; idempotent."""
        if self._scope is None:
            self._scope, setting = trio.CancelScope(), self.call.setting
            setting.guarded.add(self)
            setting.nursery.start_soon(self.run, self._scope)

    def wait_turn(self, order: BeginOrder, tasks: BeginTasks, unlisted: Unlisted | None) -> None:
        """Enter in its turn, and once its module has listed its op."""
        if self._scope is not None:
            self._begun = trio.Event()
        call = self.call
        self._place = order.place(call.module.name, call, self._enter, tasks, unlisted)

    def _enter(self, refusal: Failure | None) -> None:
        self._place = None
        if self._begun is not None:
            self._begun.set()
        if refusal is None:
            self.call.enter()
        else:
            self.call.settle(refusal)

    def ask(self, chain: GateChain) -> None:
        """Submit it to its module, with the consent of its gates."""
        self._gates = CallGates(self.call, chain)
        self._start()
        if not self._gates.is_asking:
            self.call.module.submit(self.call)

    def adopt(self, child: Invocation) -> None:
        self.children.add(child)
        self.call.setting.parents.add(self.call)

    def let_go(self, child: Invocation) -> None:
        self.children.discard(child)
        if not self.children:
            self.call.setting.parents.discard(self.call)

    # Events, host calls and the outcome from its module.

    def take_in(self, asset: Asset | AssetBytes, line: bytes | None) -> None:
        """Take in its first asset; from then on the intake takes its events."""
        self.call.listener = self.assets = AssetIntake(self.call)
        self.assets.event(asset, self.call, line)
        self._start()

    def record_error(self, event: ErrorEvent) -> None:
        """Record an `error` event, except in a flood of them."""
        self.errors += 1
        if self.errors <= ERRORS_RECORDED:
            record_error(self.call.setting.effects.recorder, event, self.call.origin)

    def host_call(self, asked: HostCalled, process: Incarnation) -> None:
        if self._host_calls is None:
            self._host_calls = self.call.setting.calls(self.call)
        self._host_calls.take(asked, process)

    def answered(self, outcome: Outcome) -> None:
        """Take the outcome, and end what the call has caused: none of it begins any more."""
        if self._gates is not None:
            self._gates.answered(outcome)
        self._answer = outcome
        self._end_what_it_caused()
        if self._scope is None:
            self._end(outcome)
        else:
            self._answered.set()

    # Open questions, context and attributes, for status, response and span.

    @property
    def questions(self) -> list[str]:
        found = [one for child in self.children for one in child.questions]
        if self._host_calls is not None:
            found += self._host_calls.questions
        if self._gates is not None and self._gates.question is not None:
            found.append(self._gates.question)
        return found

    @property
    def injected(self) -> tuple[dict[str, Any], ...]:
        return () if self._gates is None else tuple(self._gates.injected)

    def attributes(self, outcome: Outcome) -> Mapping[str, str]:
        module, request = self.call.module, self.call.request
        if module.span_attributes is None or request.traceparent is None:
            return NOTHING
        found = module.span_attributes(module.descriptions.current, request, outcome)
        return {**found, "traceparent": request.traceparent}


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
