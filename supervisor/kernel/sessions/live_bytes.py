"""What all live sessions take together: their states and plans, as compact JSON.

A session's own figure may be too large, since replaced values are not taken off. So where the sum
comes near the bound, those that were patched since are measured; that is one per patch at most.
"""

from __future__ import annotations

from supervisor.kernel.sessions.session import Session
from supervisor.policy.session import Bounds


class LiveBytes:
    """The sum over the live sessions, and how much there is room for."""

    def __init__(self, bounds: Bounds) -> None:
        self.total = 0
        self._bounds = bounds
        self._each: dict[str, int] = {}
        self._inexact: dict[str, Session] = {}

    def weigh(self, session: Session) -> None:
        """Take note of what a session has become."""
        if session.kept.ended is not None:
            self._inexact.pop(session.id, None)
            self.total -= self._each.pop(session.id, 0)
            return
        self.total += session.most_bytes - self._each.get(session.id, 0)
        self._each[session.id] = session.most_bytes
        self._inexact[session.id] = session

    def room(self) -> int:
        """Return by how many bytes the sessions may grow; exact where it matters."""
        if self._left() < self._bounds.patch_bytes:
            inexact, self._inexact = self._inexact, {}
            for session in inexact.values():
                session.measure()
                self.weigh(session)
            self._inexact.clear()
        return self._left()

    def _left(self) -> int:
        return self._bounds.live_bytes - self.total
