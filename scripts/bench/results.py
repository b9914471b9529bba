"""Sum samples up: medians with their range, ratios round by round, and a verdict per target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Self

from scripts.bench.rows import OURS, ROWS, Row, Sample, Target


class Verdict(StrEnum):
    """What became of a target."""

    MET = "pass"
    SHORT = "falls short"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Figures:
    """Some values of one kind: their median, the smallest and the largest."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """Sum up; raises `StatisticsError` where there is nothing."""
        return cls(median(samples), min(samples), max(samples), tuple(samples))


@dataclass(frozen=True)
class Result:
    """A row and what was found."""

    row: Row
    figures: Mapping[str, Figures]
    ratios: Mapping[str, Figures]
    """Of ours to each peer, one per round in which both were measured."""
    failures: Mapping[str, str]
    """Why a contender has no figure in at least one round."""

    def verdicts(self) -> list[tuple[Target, Verdict]]:
        """Judge each target."""
        return [(target, self._verdict(target)) for target in self.row.targets]

    def _verdict(self, target: Target) -> Verdict:
        found = self.figures.get(OURS) if target.peer is None else self.ratios.get(target.peer)
        if found is None:
            return Verdict.UNKNOWN
        return Verdict.MET if target.met_by(found.median) else Verdict.SHORT


def results(rounds: Sequence[Sequence[Sample]]) -> list[Result]:
    """Sum the rounds up, row by row; a row without a sample is left out."""
    found = (_result(row, rounds) for row in ROWS)
    return [result for result in found if result.figures or result.failures]


def _result(row: Row, rounds: Sequence[Sequence[Sample]]) -> Result:
    figures: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for samples in rounds:
        values: dict[str, float] = {}
        for sample in samples:
            if sample.row != row.title:
                continue
            if sample.value is None:
                failures[sample.contender] = sample.why
            else:
                values[sample.contender] = sample.value
        for name, value in values.items():
            figures.setdefault(name, []).append(value)
            if name != OURS and OURS in values and value:
                ratios.setdefault(name, []).append(values[OURS] / value)
    return Result(
        row,
        {name: Figures.of(figures[name]) for name in row.contenders if name in figures},
        {name: Figures.of(ratios[name]) for name in row.contenders if name in ratios},
        failures,
    )
