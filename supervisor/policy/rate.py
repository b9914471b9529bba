"""How often somebody may ask: a bucket that fills at a rate, of which each request takes one.

It holds what a second fills it with, and one at the least: so who asks rarely may ask at once, and
over a while nobody asks more often than the rate says.
"""

from __future__ import annotations


class Bucket:
    """The rest of a rate; times are those of a clock that does not jump (s)."""

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._most = max(1.0, rate_per_s)
        self._left = self._most
        self._at_s = now_s

    def take(self, now_s: float) -> float:
        """Take one and return 0; or take none, and return in how many seconds there is one."""
        filled = (now_s - self._at_s) * self._rate_per_s
        self._left, self._at_s = min(self._most, self._left + filled), now_s
        if self._left < 1:
            return (1 - self._left) / self._rate_per_s
        self._left -= 1
        return 0.0
