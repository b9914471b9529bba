from __future__ import annotations

import pytest

from scripts.bench.findings import MET, SHORT, UNKNOWN, Result, results
from scripts.bench.rows import (
    CIRCUS,
    COLD,
    FLEET_STOP,
    INVOKE_ONE,
    NODE,
    OURS,
    RAW,
    ROWS,
    STREAM,
    TOOL,
    WARM,
    C,
    Sample,
)


def verdicts(result: Result) -> list[str]:
    return [result.verdict(target) for target in result.row.targets]


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    rounds = [
        [Sample(STREAM.title, RAW, raw), Sample(STREAM.title, OURS, ours)]
        for raw, ours in ((100.0, 60.0), (200.0, 80.0), (50.0, 45.0))
    ]
    (result,) = results(rounds)
    assert result.ratios[RAW].median == 0.6
    assert (result.ratios[RAW].low, result.ratios[RAW].high) == (0.4, 0.9)
    assert result.figures[OURS].median == 60.0
    assert (result.figures[RAW].low, result.figures[RAW].high) == (50.0, 200.0)
    assert verdicts(result) == [MET]


@pytest.mark.parametrize(("ours", "verdict"), [(2.5, MET), (2.6, SHORT), (0.9, MET)])
def test_less_is_better_where_the_target_says_at_most(ours: float, verdict: str) -> None:
    (result,) = results([[Sample(TOOL.title, C, 1.0), Sample(TOOL.title, OURS, ours)]])
    assert verdicts(result) == [verdict]


def test_a_bound_without_a_peer_is_on_our_own_median() -> None:
    (result,) = results([[Sample(FLEET_STOP.title, OURS, value)] for value in (0.4, 0.7, 0.5)])
    assert verdicts(result) == [MET]


def test_a_target_may_hold_the_cpu_time_of_a_call_whatever_its_figure_is() -> None:
    samples = [
        Sample(INVOKE_ONE.title, OURS, 1.0, cpu_us=30.0),
        Sample(INVOKE_ONE.title, NODE, 99.0, cpu_us=20.0),
    ]
    (result,) = results([samples])
    (target,) = INVOKE_ONE.targets
    assert verdicts(result) == [MET]
    found = result.reached(target)
    assert found is not None
    assert found.median == 1.5
    assert result.cpu[NODE].median == 20.0


def test_a_target_whose_peer_is_missing_is_not_judged() -> None:
    (result,) = results([[Sample(TOOL.title, NODE, 1.0), Sample(TOOL.title, OURS, 9.0)]])
    assert verdicts(result) == [UNKNOWN]


def test_a_ratio_needs_both_sides_in_one_round() -> None:
    rounds = [
        [Sample(TOOL.title, C, 1.0), Sample(TOOL.title, OURS, None, "it broke")],
        [Sample(TOOL.title, C, 2.0), Sample(TOOL.title, OURS, 3.0)],
        [Sample(TOOL.title, C, 0.0), Sample(TOOL.title, OURS, 3.0)],
    ]
    (result,) = results(rounds)
    assert result.ratios[C] == (1.5, 1.5, 1.5)
    assert result.figures[C] == (1.0, 0.0, 2.0)
    assert result.failures == {OURS: "it broke"}


def test_who_failed_has_a_reason_and_no_figure() -> None:
    samples = [Sample(WARM.title, OURS, None, "not supported yet"), Sample(WARM.title, COLD, 9.0)]
    (result,) = results([samples])
    assert result.failures == {OURS: "not supported yet"}
    assert list(result.figures) == [COLD]
    assert verdicts(result) == [UNKNOWN]


def test_who_did_not_end_every_time_has_both() -> None:
    rounds = [
        [Sample(FLEET_STOP.title, CIRCUS, 2.0)],
        [Sample(FLEET_STOP.title, CIRCUS, None, "did not end")],
    ]
    (result,) = results(rounds)
    assert result.figures[CIRCUS].median == 2.0
    assert result.failures == {CIRCUS: "did not end"}


def test_a_row_that_was_not_measured_is_left_out() -> None:
    assert results([[]]) == []


def test_a_bound_names_a_contender_of_its_row_and_ours_is_in_each() -> None:
    for row in ROWS:
        assert row.contenders[0] == OURS
        assert {target.peer for target in row.targets} <= {None, *row.contenders[1:]}
    assert len({row.title for row in ROWS}) == len(ROWS)
