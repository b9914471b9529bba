from __future__ import annotations

import shutil

import pytest

from scripts.bench.rows import (
    CRASH,
    NODE,
    OURS,
    RAW,
    ROWS,
    STREAM,
    TOOL,
    C,
    Sample,
    Verdict,
    results,
)
from tests.scripts.checkout import documents, run


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_a_quick_run_measures_every_row() -> None:
    done = run("bench", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    rows = documents(done.stdout)
    assert [row["row"] for row in rows] == [row.title for row in ROWS]
    for row, found in zip(ROWS, rows, strict=True):
        assert found["unit"] == row.unit
        for figures in found["figures"].values():
            assert len(figures["samples"]) == 1
        assert set(found["figures"]) == {OURS, *found["ratios"]}
        assert [target["target"] for target in found["targets"]] == list(map(str, row.targets))
        assert found["not_measured"] == list(row.not_measured)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_scenes_and_rounds_can_be_chosen() -> None:
    done = run("bench", "crash", "--quick", "--rounds", "3", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = documents(done.stdout)
    assert row["row"] == CRASH.title
    assert len(row["figures"][OURS]["samples"]) == 3


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_people_get_a_table() -> None:
    done = run("bench", "crash", "--quick")
    assert done.returncode == 0, done.stderr
    assert CRASH.title in done.stdout
    assert "not measured here: supervisord" in done.stdout


@pytest.mark.parametrize("wrong", [("nonsense",), ("--rounds", "0"), ("--rounds", "x")])
def test_what_cannot_be_measured_is_refused(wrong: tuple[str, ...]) -> None:
    assert run("bench", *wrong).returncode == 2


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    rounds = [
        [Sample(STREAM.title, RAW, raw), Sample(STREAM.title, OURS, ours)]
        for raw, ours in ((100.0, 60.0), (200.0, 80.0), (50.0, 45.0))
    ]
    (result,) = results(rounds)
    assert result.ratios == {RAW: 0.6}
    assert result.figures[OURS].median == 60.0
    assert result.figures[RAW].spread == 1.5
    assert result.verdicts() == [(STREAM.targets[0], Verdict.MET)]


@pytest.mark.parametrize(
    ("ours", "verdict"), [(1.5, Verdict.MET), (1.6, Verdict.SHORT), (0.9, Verdict.MET)]
)
def test_less_is_better_where_the_target_says_at_most(ours: float, verdict: Verdict) -> None:
    (result,) = results([[Sample(TOOL.title, C, 1.0), Sample(TOOL.title, OURS, ours)]])
    assert result.verdicts() == [(TOOL.targets[0], verdict)]


def test_a_target_whose_peer_is_missing_is_not_judged() -> None:
    (result,) = results([[Sample(TOOL.title, NODE, 1.0), Sample(TOOL.title, OURS, 9.0)]])
    assert result.verdicts() == [(TOOL.targets[0], Verdict.UNKNOWN)]


def test_a_row_that_was_not_measured_is_left_out() -> None:
    assert results([[]]) == []
