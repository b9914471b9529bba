"""One request on its way through a module: waiting, in flight, settled.

`settle` is the single gate to an outcome and lets the first one through: whatever happens at the
same moment - an answer, a deadline, a cancel, the process's death - a request ends exactly once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from protocol.connection import HostCalled, Notice, Request, Stray
from protocol.errors import Failure, Outcome
from protocol.events import CallEvent
from protocol.json_line import Fault
from supervisor.policy.verdict import Stopped
from supervisor.runtime.process.effort import Mark

if TYPE_CHECKING:
    from supervisor.runtime.process.incarnation import Incarnation
    from supervisor.runtime.taps import Tap


NOTICES_KEPT = 32
"""Warnings beyond this many are only counted: a flood of them must not grow memory."""


OVERRUN_BYTES = 8 << 20
"""What is kept of the events of a call that are not read, while its process serves others too."""


class Congestion(IntEnum):
    """Whether a listener keeps up with the events."""

    NONE = 0
    SLOW = 1
    """Events should not come faster for now."""
    FULL = 2
    """More than `OVERRUN_BYTES` wait."""


class Listener:
    """Is told how a call goes, by the reader of the module's output; no method may block.

    By default nothing but the outcome is wanted.
    """

    __slots__ = ()

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        """Take an event with its line (`EventReceived.line`)."""

    def host_call(self, asked: HostCalled, process: Incarnation, call: Call) -> None:
        """Take a call of the module to the host, answered through `process`."""
        del call
        process.refuse(asked, "host calls of this request are not served")

    def answered(self, outcome: Outcome, call: Call) -> None:
        """Take the outcome; called once."""

    def congested(self) -> Congestion:
        """Whether events should not come faster for now."""
        return Congestion.NONE


NOBODY = Listener()
"""The listener of a call that has ended."""


class Server:
    """Has a call in flight."""

    def give_up(self, call: Call, stopped: Stopped) -> None:
        """Clean up after a call that the host has settled for a reason of its own."""

    def refined(self, stopped: Stopped) -> Stopped:
        """Say more exactly why the host ends a call of its, if it can."""
        return stopped

    def evidence(self) -> dict[str, Any]:
        """Return what is known about the process, for `details`."""
        return {}

    def nudge(self) -> None:
        """Look again whether the listeners have room."""


class Call(msgspec.Struct, eq=False):
    """A request, its listener, and the process that serves it.

    A struct is made in half the time that `__init__` takes.
    """

    request: Request
    listener: Listener
    server: Server | None = None
    settled: bool = False
    fault: Fault | None = None
    error: Failure | None = None
    """The last error that its module told of before its process ended."""
    notices: tuple[Notice, ...] = ()
    dropped_notices: int = 0
    instead: Notice | Stray | None = None
    """What came last that is no answer and may have been meant as one."""
    heard_at: float = 0.0
    """When its module last said something, or got it (monotonic).

    Before the module says something it is set only where silence is watched for.
    """
    mark: Mark | None = None
    """Where its process stood when it got it."""
    begun_at: float = 0.0
    """When its module got it (monotonic); 0 where silence is not watched for."""
    taps: tuple[tuple[Tap, str], ...] = ()
    """Who is told the outcome, and as whose."""

    def warn(self, notice: Notice) -> None:
        if notice.in_place_of_answer:
            self.instead = notice
        if len(self.notices) < NOTICES_KEPT:
            self.notices = (*self.notices, notice)
        else:
            self.dropped_notices += 1

    def all_notices(self) -> tuple[Notice, ...]:
        """Return the warnings, the last one saying how many more there were."""
        if not self.dropped_notices:
            return self.notices
        more = Notice("more_warnings", f"{self.dropped_notices} more warnings were not kept")
        return (*self.notices, more)

    def settle(self, outcome: Outcome) -> bool:
        """End the call; False if it had ended before."""
        if self.settled:
            return False
        self.settled = True
        # The listener holds the call: a cycle, which only the garbage collector would end.
        listener, self.listener = self.listener, NOBODY
        for tap, instance in self.taps:
            tap.answered(instance, self.request, outcome)
        listener.answered(outcome, self)
        return True

    def nudge(self) -> None:
        """Tell the server that the listener may have room again."""
        if self.server is not None:
            self.server.nudge()


class Awaited(Listener):
    """A listener for those who wait for the outcome."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._outcome: Outcome | None = None

    def answered(self, outcome: Outcome, call: Call) -> None:
        del call
        self._outcome = outcome
        self._done.set()

    async def wait(self) -> Outcome:
        await self._done.wait()
        assert self._outcome is not None  # noqa: S101 - set together with the event
        return self._outcome


class CallQueue(dict[str, tuple[Call, float]]):
    """Calls by their request id, and since when each waits. The caller of `add` keeps the bound.

    A dictionary itself: whether it is empty is asked once for every call there is.
    """

    __slots__ = ("aside",)

    def __init__(self) -> None:
        super().__init__()
        self.aside: dict[str, Call] = {}
        """Those whose clients do not read."""

    def add(self, call: Call) -> None:
        self[call.request.request_id] = (call, trio.current_time())

    def take(self) -> Call | None:
        """Take out the call that has waited longest, but for those whose clients do not read."""
        while self:
            call, _ = self.pop(next(iter(self)))
            if not call.listener.congested():
                return call
            self.aside[call.request.request_id] = call
        return None

    def recall(self, call: Call) -> bool:
        """Take a call out if it stands aside, and return whether it did."""
        return self.aside.pop(call.request.request_id, None) is not None

    def drop(self, call: Call) -> bool:
        """Take a call out; False if it does not wait."""
        return self.pop(call.request.request_id, None) is not None or self.recall(call)

    def take_all(self) -> list[Call]:
        waiting = [*(call for call, _ in self.values()), *self.aside.values()]
        self.clear()
        self.aside.clear()
        return waiting

    @property
    def waited_s(self) -> float:
        """How long the oldest has waited; 0 if none waits."""
        for _, since in self.values():
            return trio.current_time() - since
        return 0.0
