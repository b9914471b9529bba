"""The calls of one process whose clients do not read what is streamed to them.

    nobody else has a call there   the process is not read, and so gets slower by itself
    somebody has                   it is read: a slow call is told to pause (`flow`), what comes of
                                   it all the same is kept, and beyond a bound it ends, alone

It goes on when its client has read (`look`). A dialect, or a module, that knows no `flow` is not
told; the bound is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from protocol.connection import Flow
from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Call, Congestion


class FlowControl:
    """Decides which calls of a process are to pause."""

    def __init__(
        self,
        calls: Mapping[str, Call],
        tell: Callable[[str, Flow], None],
        end: Callable[[Call, Stopped], None],
    ) -> None:
        """`calls` are those in flight, by their ids; `tell` tells the module."""
        self._calls = calls
        self._tell = tell
        self._end = end
        self._paused: set[str] = set()

    def pauses_all(self, talked: Iterable[Call]) -> bool:
        """Whether the process is not to be read: a client it talked to is slow, and all others."""
        return any(call.listener.congested() for call in talked) and not self._serves_others()

    def heard(self, talked: Iterable[Call]) -> None:
        """Pause, or end, the slow ones among the calls that the process has just talked to."""
        slow = [call for call in talked if call.listener.congested()]
        if not slow or not self._serves_others():
            return
        for call in slow:
            request_id = call.request.request_id
            if call.listener.congested() is Congestion.FULL:
                self._end(call, _TOO_MUCH)
            elif request_id not in self._paused:
                self._paused.add(request_id)
                self._tell(request_id, Flow.PAUSE)

    def look(self) -> None:
        """Resume those whose clients have read."""
        for request_id in tuple(self._paused):
            call = self._calls.get(request_id)
            if call is None or not call.listener.congested():
                self._paused.discard(request_id)
                if call is not None:
                    self._tell(request_id, Flow.RESUME)

    def _serves_others(self) -> bool:
        return any(not call.listener.congested() for call in self._calls.values())


_TOO_MUCH = Stopped(
    Reason.SLOW_READER,
    f"more than {OVERRUN_BYTES} bytes of its events were not read by its client, and"
    " the process serves other clients, too",
)
