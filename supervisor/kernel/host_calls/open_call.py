"""One call of a module to the host, from its line to its one last answer."""

from __future__ import annotations

from typing import Any, Protocol

import trio

from protocol.connection import HostCalled
from protocol.errors import Failure, Reason
from protocol.host_call import Chunk, encode_error, encode_output
from protocol.pi_codes import pi_error
from supervisor.kernel.begin_order import BeginOrder
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.unanswered import with_questions
from supervisor.policy.verdict import Stopped
from supervisor.runtime.deadlines import Deadlines, Timer
from supervisor.runtime.host_results import HostResults

UNENCODABLE = (RecursionError, UnicodeError, TypeError, ValueError, OverflowError)
"""What a value that came from a module may raise when it is encoded again."""


class Owner(Protocol):
    """Where open calls are kept."""

    order: BeginOrder
    """Of the invocations that are made by its calls."""

    def closed(self, call: OpenCall) -> None:
        """Forget it: it has its answer."""


class OpenCall:
    """A call that waits for its answer; what was answered once is not answered again."""

    __slots__ = (
        "_chunks",
        "_owner",
        "_results",
        "_timer",
        "asked",
        "caller",
        "child",
        "done",
        "question",
        "scope",
        "streams",
    )

    def __init__(
        self, caller: Invocation, asked: HostCalled, results: HostResults, owner: Owner
    ) -> None:
        self.caller = caller
        """The request in whose course it was made."""
        self.asked = asked
        self.child: Invocation | None = None
        """The invocation that serves it, if one does."""
        self.question: str | None = None
        """The id of the question to a person whether it is allowed, while that is open."""
        self.scope = trio.CancelScope()
        """Of the task that serves it, if one does."""
        self.streams = False
        """Whether its answer comes in chunks."""
        self.done = False
        self._results = results
        self._owner = owner
        self._chunks = 0
        self._timer: Timer | None = None

    @property
    def order(self) -> BeginOrder:
        """The order in which an invocation made by it begins."""
        return self._owner.order

    @property
    def call_id(self) -> str:
        """The module's own name for it."""
        return self.asked.call.call_id

    @property
    def params(self) -> dict[str, Any]:
        """What it is about."""
        return self.asked.call.params

    @property
    def instance(self) -> str:
        """The process that made it."""
        return self._results.instance

    def limit(self, deadlines: Deadlines) -> None:
        """End it when its own time is over."""
        timeout_ms = self.asked.call.timeout_ms
        if timeout_ms is not None:
            self._timer = deadlines.after(timeout_ms / 1000, self._expired)

    def begin_stream(self) -> None:
        """Answer in chunks from here on."""
        self.streams = True
        self._results.begin_stream(self)

    def resume(self) -> None:
        """Have the child go on: the module may have room again."""
        if self.child is not None:
            self.child.resume()

    def congested(self) -> bool:
        """Whether chunks should not come faster for now."""
        return self.streams and not self.done and self._results.congested

    def chunk(self, output: Any) -> None:
        """Send a part of the answer."""
        if self.done or self._results.full:
            return
        try:
            line = encode_output(
                self.asked.request_id, self.call_id, output, Chunk(self._chunks, is_last=False)
            )
        except UNENCODABLE:
            return  # the last one has the whole answer; of the events only this is missing
        self._chunks += 1
        self._results.send(line)

    def answer(self, output: Any) -> None:
        """End it well; `output` is an object."""
        if self.done:
            return
        if self._results.full:
            words = "the answer was dropped: too much waits for the module to read it"
            self.refuse(Failure.because(Reason.LIMIT_REACHED, words))
            return
        try:
            line = encode_output(self.asked.request_id, self.call_id, output, self._last_chunk())
        except UNENCODABLE as error:
            words = f"the answer cannot be passed on: {type(error).__name__}"
            self.refuse(Failure.because(Reason.INVALID_EVENT, words))
            return
        self._close(line)

    def refuse(self, failure: Failure) -> None:
        """End it with an error."""
        if self.done:
            return
        try:
            line = self._error_line(pi_error(failure))
        except UNENCODABLE as error:
            words = f"the error cannot be passed on: {type(error).__name__}"
            line = self._error_line(pi_error(Failure.because(Reason.INVALID_EVENT, words)))
        self._close(line)

    def end(self, stopped: Stopped) -> None:
        """End it, and what serves it, for a reason of the host's own."""
        if self.done:
            return
        self.refuse(Failure.because(stopped.reason, stopped.message))
        self.scope.cancel()
        if self.child is not None:
            self.child.give_up(stopped)

    def _expired(self) -> None:
        timeout_ms = self.asked.call.timeout_ms
        words = f"the host call {self._what} was not served within {timeout_ms} ms"
        questions = [] if self.child is None else self.child.questions
        if self.question is not None:
            questions = [self.question]
        self.end(Stopped(Reason.DEADLINE, with_questions(words, questions)))

    def _error_line(self, error: dict[str, Any]) -> bytes:
        return encode_error(self.asked.request_id, self.call_id, error, self._last_chunk())

    def _last_chunk(self) -> Chunk | None:
        return Chunk(self._chunks, is_last=True) if self.streams else None

    def _close(self, line: bytes) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()
        self._results.end_stream(self)
        self._results.send(line)
        self._owner.closed(self)

    @property
    def _what(self) -> str:
        return f"{self.call_id[:80]!r} ({self.asked.call.method[:80]})"
