"""The calls of one module that wait for their turn, oldest first.

One whose client does not read what it has already stands aside when its turn comes, until the
client does: its answer would have to be held, too.
"""

from __future__ import annotations

import trio

from supervisor.runtime.call import Call


class CallQueue(dict[str, tuple[Call, float]]):
    """Calls by their request id, and since when each waits. Whoever adds looks at the bound.

    A dictionary itself: whether it is empty is asked once for every call there is.
    """

    __slots__ = ("aside",)

    def __init__(self) -> None:
        super().__init__()
        self.aside: dict[str, Call] = {}
        """Those whose clients do not read."""

    def add(self, call: Call) -> None:
        """Let it wait behind all others."""
        self[call.request.request_id] = (call, trio.current_time())

    def take(self) -> Call | None:
        """Take out the one that has waited longest, but for those whose clients do not read."""
        while self:
            call, _ = self.pop(next(iter(self)))
            if not call.listener.congested():
                return call
            self.aside[call.request.request_id] = call
        return None

    def recall(self, call: Call) -> bool:
        """Take this one out if it stands aside, and return whether it did."""
        return self.aside.pop(call.request.request_id, None) is not None

    def drop(self, call: Call) -> bool:
        """Take this one out; False if it does not wait."""
        return self.pop(call.request.request_id, None) is not None or self.recall(call)

    def take_all(self) -> list[Call]:
        """Take out all of them."""
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
