"""The calls of one module that wait for their turn, oldest first."""

from __future__ import annotations

import trio

from supervisor.runtime.call import Call


class CallQueue(dict[str, tuple[Call, float]]):
    """Calls by their request id, and since when each waits. Whoever adds looks at the bound.

    A dictionary itself: whether it is empty is asked once for every call there is.
    """

    __slots__ = ()

    def add(self, call: Call) -> None:
        """Let it wait behind all others."""
        self[call.request.request_id] = (call, trio.current_time())

    def take(self) -> Call:
        """Take out the one that has waited longest; there must be one."""
        call, _ = self.pop(next(iter(self)))
        return call

    def drop(self, call: Call) -> bool:
        """Take this one out; False if it does not wait."""
        return self.pop(call.request.request_id, None) is not None

    def take_all(self) -> list[Call]:
        """Take out all of them."""
        waiting = [call for call, _ in self.values()]
        self.clear()
        return waiting

    @property
    def waited_s(self) -> float:
        """How long the oldest has waited; 0 if none waits."""
        for _, since in self.values():
            return trio.current_time() - since
        return 0.0
