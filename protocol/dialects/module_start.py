"""The start of a process of the dialect `module`: it is well, and describes itself."""

from __future__ import annotations

from protocol.connection import (
    Answered,
    NewId,
    Notice,
    Quarantined,
    Ready,
    Received,
    Request,
    StartFailed,
    Stray,
    Wait,
    Warned,
)
from protocol.descriptor.model import Timeouts
from protocol.errors import Failure
from protocol.replies import Operation

FIRST_RETRY_S = 0.02
LAST_RETRY_S = 0.5
"""The longest pause between two `health` questions to a module that is not well yet."""


StartStep = Request | Ready | StartFailed | None
"""The next question, or how the start ended; None: wait."""


class Handshake:
    r"""The start of a module: `health` until it is well, then `describe`.

        health --ok--> describe --ok--> Ready
          |  |            \--describe_s, or an error--> StartFailed
          |  \--not well yet--> a pause, then health again
          \--start_s, or a wrong answer--> StartFailed

    Each question is a request like any other, and reported as one (`Asked`).
    """

    def __init__(self, timeouts: Timeouts, new_id: NewId) -> None:
        self.waits: tuple[Wait, ...] = ()
        self._request = Request("", Operation.HEALTH)
        self._instead = ""
        """The line that the module printed in place of an answer, as a clause; empty if none."""
        self._timeouts = timeouts
        self._new_id = new_id
        self._well_by = Wait(timeouts.start_s, "an answer to health")
        self._pause: Wait | None = None
        self._pause_s = FIRST_RETRY_S
        self._said: Failure | None = None
        self._asked: set[str] = set()

    def ask_health(self) -> Request:
        self.waits = (self._well_by,)
        return self._ask(Operation.HEALTH)

    def _ask(self, operation: Operation) -> Request:
        self._request = Request(self._new_id(), operation)
        self._asked.add(self._request.request_id)
        return self._request

    def take(self, item: Received) -> StartStep:
        """Take what a line led to.

        A line with an unknown id cannot be a late answer, and no other answer will come.
        """
        match item:
            case Answered():
                is_ours = item.request_id == self._request.request_id
                return self._answered(item) if is_ours else None
            case Warned(notice=notice):
                self._instead = notice.in_place_of_answer or self._instead
            case Quarantined(fault=fault):
                self._instead = Notice.of(fault).in_place_of_answer or self._instead
            case Stray(named=named) if named is not None and named not in self._asked:
                reason = f"bad_{self._request.operation}"
                words = f"did not answer {self._request.operation}: {item.in_place_of_answer}"
                return self._failed(reason, words)
            case Stray():
                self._instead = item.in_place_of_answer or self._instead
            case _:
                self._instead = self._instead or "what it printed was not an answer"
        return None

    def _answered(self, answered: Answered) -> StartStep:
        self._instead = ""
        outcome, fault = answered.outcome, answered.fault
        shown = "" if fault is None else f": {fault.excerpt}"
        if self._request.operation is Operation.DESCRIBE:
            if isinstance(outcome, Failure):
                words = f"did not describe itself: {outcome.message}{shown}"
                return self._failed("bad_describe", words)
            self.waits = ()
            return Ready(outcome.result, "answered health and describe")
        if not isinstance(outcome, Failure):
            self._said = None
            self.waits = (Wait(self._timeouts.describe_s, "an answer to describe"),)
            return self._ask(Operation.DESCRIBE)
        if fault is not None:
            # A line that is no answer; asking again would bring the same.
            return self._failed("bad_health", f"answered health wrongly: {outcome.message}{shown}")
        self._said = outcome
        self._pause = Wait(self._pause_s, "a better health")
        self._pause_s = min(self._pause_s * 2, LAST_RETRY_S)
        self.waits = (self._well_by, self._pause)
        return None

    def time_passed(self, wait: Wait, unfinished_line: str | None) -> StartStep:
        if wait is self._pause:
            return self.ask_health()
        if wait is self._well_by:
            words = f"was not healthy within {wait.seconds:g} s"
            return self._failed("start_deadline", *self._why(words, "start_s", unfinished_line))
        words = f"did not describe itself: it gave no answer to describe in {wait.seconds:g} s"
        return self._failed("bad_describe", *self._why(words, "describe_s", unfinished_line))

    def _failed(self, reason: str, words: str, bound: str = "") -> StartFailed:
        self.waits = ()
        return StartFailed(reason, words, bound)

    def _why(self, words: str, bound: str, unfinished_line: str | None) -> tuple[str, str]:
        if self._said is not None:
            return f"{words}; it said: {self._said.message}", bound
        if unfinished_line is not None:
            why = f"it printed a line without a newline at its end: {unfinished_line}"
            return f"{words}; {why}", ""
        return (f"{words}; {self._instead}", "") if self._instead else (words, bound)
