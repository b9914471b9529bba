"""A call of a module to the host, the methods that serve calls, and the services that they use.

A call is checked by `params` and `required` first. `capability` is made from it, and refuses calls
that make no sense; `begin` does at once what can be done at once. Both may raise `RefusedError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from protocol.connection import HostCalled
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.host_call import Chunk
from protocol.host_events import ApprovalUiEvent
from protocol.problem import described, did_you_mean
from supervisor.kernel.begin_order import BeginOrder
from supervisor.kernel.effects import Effects
from supervisor.kernel.grants.grants import Grants
from supervisor.kernel.hooks.approvals import REQUEST, Approvals, with_questions
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Caller, Invoke, RefusedError
from supervisor.policy.verdict import Stopped
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.deadlines import Deadlines, Timer
from supervisor.runtime.supervision.fleet import Fleet

if TYPE_CHECKING:
    from supervisor.kernel.host_calls.docket import Docket


class PendingHostCall:
    """A call that waits for its answer; it is answered once."""

    __slots__ = (
        "_chunks",
        "_docket",
        "_process",
        "_timer",
        "asked",
        "caller",
        "child",
        "chosen",
        "done",
        "question",
        "scope",
        "streams",
    )

    def __init__(
        self, caller: Caller, asked: HostCalled, process: Incarnation, docket: Docket
    ) -> None:
        self.caller = caller
        """The request in whose course it was made, or the module itself."""
        self.asked = asked
        self.child: Invocation | None = None
        """The invocation that serves it, if there is one."""
        self.chosen = ""
        """The module that its method chose to serve it, if the method chooses."""
        self.question: str | None = None
        """The id of the open question to a person that it waits for."""
        self.scope = trio.CancelScope()
        """The scope of the task that serves it, if there is one."""
        self.streams = False
        self.done = False
        self._process = process
        self._docket = docket
        self._chunks = 0
        self._timer: Timer | None = None

    def tell(self, event: ApprovalUiEvent) -> None:
        """Note a question to a person, and tell the client of the first request."""
        self.question = event.approval if event.event == REQUEST else None
        if (serving := self.caller.serving) is not None:
            serving.ask_people()
        self.caller.tell_first(event)

    @property
    def order(self) -> BeginOrder:
        """The order in which an invocation made by it begins."""
        return self._docket.order

    @property
    def call_id(self) -> str:
        return self.asked.call.call_id

    @property
    def params(self) -> dict[str, Any]:
        return self.asked.call.params

    @property
    def instance(self) -> str:
        """The process that made it."""
        return self._process.instance

    def limit(self, deadlines: Deadlines) -> None:
        timeout_ms = self.asked.call.timeout_ms
        if timeout_ms is not None:
            self._timer = deadlines.after(timeout_ms / 1000, self._expired)

    def begin_stream(self) -> None:
        self.streams = True
        self._process.on_room.add(self.resume)

    def resume(self) -> None:
        """Resume the child: the module may have room again."""
        if self.child is not None:
            self.child.resume()

    def congested(self) -> Congestion:
        if not self.streams or self.done or not self._process.congested:
            return Congestion.NONE
        return Congestion.FULL if self._process.full else Congestion.SLOW

    def chunk(self, output: Any) -> None:
        if self.done or self._process.full:
            return
        self._process.answer(self.asked, Success(output), Chunk(self._chunks, is_last=False))
        self._chunks += 1

    def answer(self, output: Any) -> None:
        """Answer with a success; `output` is an object."""
        if self.done:
            return
        if self._process.full:
            words = "the answer was dropped: too much waits for the module to read it"
            self.refuse(Failure.because(Reason.LIMIT_REACHED, words))
            return
        self._close(Success(output))

    def refuse(self, failure: Failure, *, begun: bool = False) -> None:
        """Answer with an error; `begun` tells that another module may have got the request."""
        if not self.done:
            self._close(_for_the_module(failure, begun=begun))

    def end(self, stopped: Stopped) -> None:
        """End the call, and the invocation that serves it, for a reason of the host's own."""
        if self.done:
            return
        child = self.child
        begun = child is not None
        self.refuse(Failure.because(stopped.reason, stopped.message), begun=begun)
        self.scope.cancel()
        if child is not None:
            child.cancel(stopped)

    def _expired(self) -> None:
        timeout_ms = self.asked.call.timeout_ms
        words = f"the host call {self._what} was not served within {timeout_ms} ms"
        questions = [] if self.child is None else self.child.questions
        if self.question is not None:
            questions = [self.question]
        self.end(Stopped(Reason.DEADLINE, with_questions(words, questions)))

    def _close(self, outcome: Outcome) -> None:
        self.done = True
        self.child = None  # they held each other
        if self._timer is not None:
            self._timer.cancel()
        self._process.on_room.discard(self.resume)
        last = Chunk(self._chunks, is_last=True) if self.streams else None
        self._process.answer(self.asked, outcome, last)
        self._docket.closed(self)

    @property
    def _what(self) -> str:
        return f"{self.call_id[:80]!r} ({self.asked.call.method[:80]})"


def _for_the_module(failure: Failure, *, begun: bool) -> Failure:
    """Return the failure for the module when the daemon stops, in words that fit a bystander.

    A call that was `begun`, or has the `instance` that served it in its evidence, may have taken
    effect.
    """
    if failure.details.get("reason") != Reason.SHUTDOWN:
        return failure
    evidence = {
        name: value for name, value in failure.details.items() if name not in ("reason", "origin")
    }
    begun = begun or "instance" in evidence
    advice = "it may have taken effect" if begun else "it was not begun; trying again is safe"
    words = f"{failure.message}: {advice}"
    return Failure.because(Reason.STOPPING, words, **evidence, retry_safe=not begun)


class HostServices(msgspec.Struct, frozen=True, kw_only=True):
    invoke: Invoke
    effects: Effects
    grants: Grants
    approvals: Approvals
    deadlines: Deadlines
    fleet: Fleet
    nursery: trio.Nursery


class HostMethod:
    names: tuple[str, ...]
    """Its names; the first is the one in the documents."""

    params: Mapping[str, type] = MappingProxyType({})
    """Its params; a float may be written as a whole number."""

    required: tuple[str, ...] = ()
    """The params that must be there."""

    def capability(self, call: PendingHostCall, host: HostServices) -> str:
        """Return the capability that the call needs; raises `RefusedError` over a bad call."""
        del call, host
        return self.names[0]

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        """Do it, or begin to; the call is then answered once. Raises `RefusedError`."""
        raise NotImplementedError


_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def check_params(method: HostMethod, params: Mapping[str, Any]) -> None:
    """Check the params of a call; raises `RefusedError`."""
    known = method.params
    for key, value in params.items():
        wanted = known.get(key)
        if wanted is None:
            near = did_you_mean(key, known) or f"; there are {', '.join(known) or 'none'}"
            raise RefusedError(invalid(f"there is no param {described(key)}{near}"))
        if not _is(value, wanted):
            words = f'"{key}" is {described(value)}, it must be {_KINDS[wanted]}'
            raise RefusedError(invalid(words))
    for key in method.required:
        if key not in params:
            raise RefusedError(invalid(f'"{key}" is missing, it must be {_KINDS[known[key]]}'))


def _is(value: object, wanted: type) -> bool:
    if wanted is bool or not isinstance(value, bool):
        return isinstance(value, (int, float) if wanted is float else wanted)
    return False


def invalid(words: str) -> Failure:
    """Return the failure of a call whose params are wrong."""
    return Failure.because(Reason.MALFORMED_REQUEST, f"params of the call: {words}")
