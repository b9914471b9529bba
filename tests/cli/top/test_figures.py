from __future__ import annotations

import pytest

from supervisor.cli.top.figures import TREND_LENGTH, Figures, ModuleFigures, Trends, figures
from tests.cli.top.statuses import Status, module, status


def only(now: Figures) -> ModuleFigures:
    (one,) = now.modules
    return one


def test_rates_are_differences_over_the_time_that_passed_for_the_daemon() -> None:
    before = status(module(invocations=10, failures=1), uptime_s=10.0)
    after = status(module(invocations=40, failures=2), uptime_s=12.0)
    now = figures(before, after)
    assert now.interval_s == 2.0
    assert (only(now).invocations_per_s, only(now).failures_per_s) == (15.0, 0.5)
    assert (now.invocations_per_s, now.failures_per_s) == (15.0, 0.5)


def test_quantiles_are_of_what_ended_in_the_time() -> None:
    before = status(module(invocations=100, histogram=[(1_048_576, 100)]), uptime_s=1.0)
    after = status(
        module(invocations=200, histogram=[(4, 98), (2048, 2), (1_048_576, 100)]), uptime_s=2.0
    )
    one = only(figures(before, after))
    assert one.p50_ms == 0.004
    assert one.p99_ms == pytest.approx(2.048, rel=1 / 8)


def test_a_quantile_is_never_more_than_the_longest_there_was() -> None:
    after = status(module(histogram=[(1_048_576, 1)], max_ms=1048.577), uptime_s=2.0)
    assert only(figures(status(module(), uptime_s=1.0), after)).p99_ms == 1048.577


def test_nothing_that_ended_has_no_quantile_but_a_rate_of_0() -> None:
    same = [(64, 3)]
    before = status(module(invocations=3, histogram=same), uptime_s=1.0)
    after = status(module(invocations=3, histogram=same), uptime_s=2.0)
    one = only(figures(before, after))
    assert (one.invocations_per_s, one.p50_ms, one.p99_ms) == (0.0, None, None)


@pytest.mark.parametrize(
    "before",
    [
        None,
        status(module(invocations=1), uptime_s=1.0, pid=98),
        status(module(invocations=1), uptime_s=10.0),
        status(module(invocations=1), uptime_s=11.0),
    ],
    ids=["first", "another daemon", "no time", "time backwards"],
)
def test_without_two_answers_of_one_daemon_there_are_no_figures_of_a_time(
    before: Status | None,
) -> None:
    now = figures(before, status(module(invocations=5, histogram=[(64, 5)])))
    assert (now.interval_s, now.invocations_per_s) == (None, None)
    assert only(now).invocations_per_s is None


def test_a_module_that_came_since_or_counts_anew_has_no_rate() -> None:
    before = status(module("a", invocations=9, failures=9, histogram=[(64, 9)]), uptime_s=1.0)
    after = status(
        module("a", invocations=2, histogram=[(64, 2)]), module("b", invocations=7), uptime_s=2.0
    )
    now = figures(before, after)
    assert [one.invocations_per_s for one in now.modules] == [None, None]
    assert [one.p50_ms for one in now.modules] == [None, None]
    assert now.invocations_per_s == 0


def test_memory_is_that_of_all_processes_and_none_where_there_is_none() -> None:
    two = [{"id": str(number), "rss_bytes": used} for number, used in enumerate((5, None, 7))]
    now = figures(None, status(module("a", instances=two), module("b", instances=[])))
    assert [one.rss_bytes for one in now.modules] == [12, None]


def test_trends_keep_the_last_rates_of_the_modules_that_there_are() -> None:
    trends, before = Trends(), status(module("a"), module("b"), uptime_s=0.0)
    trends.add(figures(None, before))
    for number in range(1, 3 * TREND_LENGTH):
        after = status(module("a", invocations=number), uptime_s=float(number))
        trends.add(figures(before, after))
        before = after
    assert trends.of("a") == (1.0,) * TREND_LENGTH
    assert trends.of("b") == trends.of("nobody") == ()


def used(*cpu_s: float | None) -> list[Status]:
    return [
        {"id": f"a#{number}", "rss_bytes": None, "cpu_s": one} for number, one in enumerate(cpu_s)
    ]


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        ((1.0,), (1.5,), 25.0),
        ((1.0, 2.0), (2.0, 6.0), 250.0),
        ((1.0,), (1.0, 0.5), 25.0),  # another process has begun since
        ((1.0, None), (1.5, None), 25.0),
        ((), (), None),
        ((None,), (None,), None),
    ],
)
def test_cpu_is_what_all_processes_have_used_in_the_time(
    before: tuple[float | None, ...], after: tuple[float | None, ...], percent: float | None
) -> None:
    earlier = status(module(instances=used(*before)), uptime_s=1.0)
    later = status(module(instances=used(*after)), uptime_s=3.0)
    assert only(figures(earlier, later)).cpu_percent == percent
    assert only(figures(None, later)).cpu_percent is None
