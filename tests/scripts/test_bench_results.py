from __future__ import annotations

import pytest

from scripts.bench.page import BOUND, Result, Sample, judged, results
from scripts.bench.table import OURS, SCENES

STREAM = "event stream of one module, validated, to one subscriber"
ONE = "invoke, one at a time, in process"
TOOL = "per-invocation native tool"
WARM = "per-invocation Python tool, warm"
STOP = "200 persistent modules: stop"

ROWS = {row.title: row for scene in SCENES for row in scene.rows}


def verdicts(title: str, result: Result) -> list[str]:
    return [judged(bound, result, "")[1] for bound in ROWS[title].bounds]


def test_a_ratio_is_of_one_round() -> None:
    rounds = [
        [Sample(STREAM, "raw pipe + orjson.loads", raw), Sample(STREAM, OURS, ours)]
        for raw, ours in ((100.0, 60.0), (200.0, 80.0), (50.0, 45.0))
    ]
    result = results(rounds)[STREAM]
    assert result["raw pipe + orjson.loads"].ratios == [0.6, 0.4, 0.9]
    assert result[OURS].values == [60.0, 80.0, 45.0]
    assert result["raw pipe + orjson.loads"].values == [100.0, 200.0, 50.0]
    assert result[OURS].ratios == []
    assert verdicts(STREAM, result) == ["pass"]


@pytest.mark.parametrize(("ours", "verdict"), [(2.5, "pass"), (2.6, "falls short"), (0.9, "pass")])
def test_less_is_better_where_the_bound_says_at_most(ours: float, verdict: str) -> None:
    result = results([[Sample(TOOL, "C", 1.0), Sample(TOOL, OURS, ours)]])[TOOL]
    assert verdicts(TOOL, result) == [verdict]


def test_a_bound_without_a_peer_is_on_our_own_median() -> None:
    result = results([[Sample(STOP, OURS, value)] for value in (0.4, 0.7, 0.5)])[STOP]
    assert verdicts(STOP, result) == ["pass"]


def test_a_bound_may_hold_the_cpu_time_of_a_call_whatever_its_figure_is() -> None:
    samples = [
        Sample(ONE, OURS, 1.0, cpu_us=30.0),
        Sample(ONE, "Node", 99.0, cpu_us=20.0),
    ]
    result = results([samples])[ONE]
    (bound,) = ROWS[ONE].bounds
    assert judged(bound, result, "") == ("1.5 x", "pass")
    assert result["Node"].cpu_us == [20.0]


def test_a_bound_whose_peer_is_missing_is_not_judged() -> None:
    result = results([[Sample(TOOL, "Node", 1.0), Sample(TOOL, OURS, 9.0)]])[TOOL]
    assert verdicts(TOOL, result) == ["not measured"]


def test_a_ratio_needs_both_sides_in_one_round() -> None:
    rounds = [
        [Sample(TOOL, "C", 1.0), Sample(TOOL, OURS, None, "it broke")],
        [Sample(TOOL, "C", 2.0), Sample(TOOL, OURS, 3.0)],
        [Sample(TOOL, "C", 0.0), Sample(TOOL, OURS, 3.0)],
    ]
    result = results(rounds)[TOOL]
    assert result["C"].ratios == [1.5]
    assert result["C"].values == [1.0, 2.0, 0.0]
    assert result[OURS].why == "it broke"


def test_a_contender_that_failed_has_a_reason_and_no_figure() -> None:
    samples = [Sample(WARM, OURS, None, "not supported yet"), Sample(WARM, "stdiod, cold", 9.0)]
    result = results([samples])[WARM]
    assert (result[OURS].values, result[OURS].why) == ([], "not supported yet")
    assert result["stdiod, cold"].values == [9.0]
    assert verdicts(WARM, result) == ["not measured"]


def test_a_contender_that_did_not_end_every_time_has_both() -> None:
    rounds = [[Sample(STOP, "circus", 2.0)], [Sample(STOP, "circus", None, "did not end")]]
    result = results(rounds)[STOP]
    assert (result["circus"].values, result["circus"].why) == ([2.0], "did not end")


def test_a_row_that_was_not_measured_is_left_out() -> None:
    assert results([[]]) == {}


def test_a_bound_names_a_contender_of_its_row_and_ours_is_in_each() -> None:
    for scene in SCENES:
        ours, *peers = scene.who()
        assert ours.startswith(OURS) if scene.grows else ours == OURS
        bounds = [BOUND.fullmatch(bound) for row in scene.rows for bound in row.bounds]
        assert all(found and found[3] in (None, *peers) for found in bounds)
    assert len(ROWS) == sum(len(scene.rows) for scene in SCENES)
