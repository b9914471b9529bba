"""A rate of requests: a bucket that fills at the rate, and from which each request takes one.

The bucket holds one second of the rate, and one request at the least: a rare requester is served at
once, and over a while no requester exceeds the rate.
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
