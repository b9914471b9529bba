"""Count durations in a few buckets of fixed size, and estimate quantiles from the counts.

Buckets are log-linear: below 8 us each holds one value, above it each power of two is cut into 4.
A bucket is known by the least duration it holds; it is at most a quarter of that wide, and its
middle stands for all it holds. So an estimated quantile is wrong by at most an eighth (12.5 %) of
the true one, however durations are distributed.

A difference of two readings, bucket by bucket, is the reading of what came between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

CEILING_US = 1 << 40
"""Longer durations (12 days) are counted as this; no request is open for so long."""

_EXACT_BELOW_US = 8
_SUB_BITS = 2
"""4 buckets per power of two."""

BucketCounts = list[tuple[int, int]]
"""Pairs of the least duration of a bucket (us) and how many it holds; ascending, no empty ones."""


def least_of(bucket: int) -> int:
    """Return the least duration (us) of a bucket."""
    if bucket < _EXACT_BELOW_US:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return (bucket - (shift << _SUB_BITS)) << shift


_LEAST = tuple(
    itertools.takewhile(lambda least: least < CEILING_US, map(least_of, itertools.count()))
)
BUCKETS = len(_LEAST)


def bucket_of(duration_us: int) -> int:
    if duration_us < _EXACT_BELOW_US:
        return max(duration_us, 0)
    if duration_us >= CEILING_US:
        return BUCKETS - 1
    shift = duration_us.bit_length() - 1 - _SUB_BITS
    return (shift << _SUB_BITS) + (duration_us >> shift)


_NEAR = bytes(map(bucket_of, range(4096)))
"""The buckets of short durations, for look-up."""


class Histogram:
    """The durations of one module's invocations; an empty histogram takes no memory."""

    __slots__ = ("_counts", "max_us", "total_us")

    def __init__(self) -> None:
        self._counts: list[int] | None = None
        self.max_us = 0
        """The longest duration, exactly."""
        self.total_us = 0
        """The sum, exactly."""

    def add(self, duration_us: int) -> None:
        counts = self._counts
        if counts is None:
            counts = self._counts = [0] * BUCKETS
        near = 0 <= duration_us < len(_NEAR)
        counts[_NEAR[duration_us] if near else bucket_of(duration_us)] += 1
        self.total_us += duration_us
        if duration_us > self.max_us:  # noqa: PLR1730 - on the way of each invocation
            self.max_us = duration_us

    def reading(self) -> BucketCounts:
        if self._counts is None:
            return []
        return [pair for pair in zip(_LEAST, self._counts, strict=True) if pair[1]]


def between(before: BucketCounts, after: BucketCounts) -> BucketCounts | None:
    """Return the counts between two readings; None if `after` is not a later one."""
    counts = dict(after)
    for least, count in before:
        if counts.get(least, 0) < count:
            return None
        counts[least] -= count
    return [(least, count) for least, count in counts.items() if count]


def quantile_us(reading: Sequence[tuple[int, int]], fraction: float) -> float | None:
    """Estimate the duration (us) that `fraction` (above 0, at most 1) of them do not exceed.

    By nearest rank; None for an empty reading.
    """
    rank = math.ceil(fraction * sum(count for _, count in reading))
    for least, count in reading:
        rank -= count
        if rank <= 0:
            return _middle(least)
    return None


def _middle(least_us: int) -> float:
    if least_us < _EXACT_BELOW_US:
        return least_us
    width_us = 1 << (least_us.bit_length() - 1 - _SUB_BITS)
    return least_us + (width_us - 1) / 2
