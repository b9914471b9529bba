"""How often somebody may ask: at once what is saved, and then no more often than the rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.rate import Bucket


@pytest.mark.parametrize(("rate_per_s", "at_once"), [(0.1, 1), (1, 1), (3, 3)])
def test_a_bucket_begins_full_and_says_when_there_is_one_again(
    rate_per_s: float, at_once: int
) -> None:
    bucket = Bucket(rate_per_s, 5.0)
    assert [bucket.take(5.0) for _ in range(at_once)] == [0.0] * at_once
    wait_s = bucket.take(5.0)
    assert wait_s == pytest.approx(1 / rate_per_s)
    assert bucket.take(5.0 + wait_s / 2) == pytest.approx(wait_s / 2)
    assert bucket.take(5.0 + wait_s * 1.001) == 0.0


@given(st.lists(st.floats(0, 2), max_size=60), st.floats(0.5, 20))
def test_nobody_asks_more_often_than_the_rate_says(pauses: list[float], rate: float) -> None:
    bucket, now, served = Bucket(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        served += bucket.take(now) == 0.0
    assert served <= max(1.0, rate) + now * rate + 1e-6
