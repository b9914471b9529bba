from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.policy.latency import (
    BUCKETS,
    CEILING_US,
    Histogram,
    between,
    bucket_of,
    least_of,
    quantile_us,
)
from tests.deep_size import deep_size

durations = st.one_of(st.integers(0, 64), st.integers(0, CEILING_US - 1))
many = st.lists(durations, min_size=1, max_size=200)
fractions = st.floats(0.001, 1.0)


def counted(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(durations)
@example(7)
@example(8)
@example(CEILING_US - 1)
def test_a_bucket_holds_a_duration_between_its_least_and_that_of_the_next(value: int) -> None:
    bucket = bucket_of(value)
    assert least_of(bucket) <= value < least_of(bucket + 1)
    assert counted([value]).reading() == [(least_of(bucket), 1)]


def test_buckets_follow_each_other_without_a_gap_and_are_a_quarter_wide_at_the_most() -> None:
    for bucket in range(BUCKETS):
        least, following = least_of(bucket), least_of(bucket + 1)
        assert bucket_of(least) == bucket
        assert least < following
        assert following - least == 1 or (following - least) * 4 <= least


@given(many, fractions)
@example([1, 2], 0.5)
def test_an_estimate_is_wrong_by_an_eighth_at_the_most(values: list[int], fraction: float) -> None:
    true = sorted(values)[math.ceil(fraction * len(values)) - 1]
    estimate = quantile_us(counted(values).reading(), fraction)
    assert estimate is not None
    assert abs(estimate - true) * 8 <= true


@given(many, many)
def test_the_difference_of_two_readings_is_what_came_between(
    first: list[int], second: list[int]
) -> None:
    histogram = counted(first)
    before = histogram.reading()
    for value in second:
        histogram.add(value)
    came = between(before, histogram.reading())
    assert came is not None
    assert sorted(came) == counted(second).reading()


def test_a_reading_that_is_not_later_has_no_difference() -> None:
    assert between(counted([5, 5]).reading(), counted([5]).reading()) is None
    assert between(counted([5]).reading(), counted([900]).reading()) is None


def test_an_empty_histogram_reads_empty() -> None:
    assert Histogram().reading() == []
    assert quantile_us([], 0.5) is None


@pytest.mark.parametrize("value", [-1, CEILING_US, CEILING_US << 20])
def test_durations_that_cannot_be_are_counted_at_the_ends(value: int) -> None:
    ((least, count),) = counted([value]).reading()
    assert (least, count) == (0 if value < 0 else least_of(BUCKETS - 1), 1)


def test_the_longest_one_and_the_sum_are_kept_exactly() -> None:
    assert (Histogram().max_us, Histogram().total_us) == (0, 0)
    histogram = counted([3, 123_457, 9])
    assert (histogram.max_us, histogram.total_us) == (123_457, 123_469)


def test_a_histogram_takes_no_memory_until_it_counts_and_then_what_its_buckets_take() -> None:
    histogram = Histogram()
    least = deep_size(histogram)
    histogram.add(1)
    assert least < 500 < deep_size(histogram) <= least + 1600
    for value in range(0, 100_000, 7):
        histogram.add(value)
    assert deep_size(histogram) <= least + 1600 + BUCKETS * sys.getsizeof(1 << 20)


@pytest.mark.parametrize(
    ("value", "estimate"), [(0, 0), (7, 7), (8, 8.5), (9, 8.5), (16, 17.5), (19, 17.5), (20, 21.5)]
)
def test_the_middle_of_a_bucket_stands_for_all_in_it(value: int, estimate: float) -> None:
    assert quantile_us(counted([value]).reading(), 1.0) == estimate
