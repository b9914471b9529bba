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
    cpu: Mapping[str, Figures]
    """CPU time of one call (us), of who told it."""
    cpu_ratios: Mapping[str, Figures]
    failures: Mapping[str, str]
    """Why a contender has no figure in at least one round."""

    def verdicts(self) -> list[tuple[Target, Verdict]]:
        """Judge each target."""
        return [(target, self._verdict(target)) for target in self.row.targets]

    def reached(self, target: Target) -> Figures | None:
        """Return what a target holds."""
        if target.peer is None:
            return self.figures.get(OURS)
        return (self.cpu_ratios if target.of_cpu else self.ratios).get(target.peer)

    def _verdict(self, target: Target) -> Verdict:
        found = self.reached(target)
        if found is None:
            return Verdict.UNKNOWN
        return Verdict.MET if target.met_by(found.median) else Verdict.SHORT


def results(rounds: Sequence[Sequence[Sample]]) -> list[Result]:
    """Sum the rounds up, row by row; a row without a sample is left out."""
    found = (_result(row, rounds) for row in ROWS)
    return [result for result in found if result.figures or result.failures]


def _result(row: Row, rounds: Sequence[Sequence[Sample]]) -> Result:
    failures: dict[str, str] = {}
    figures: list[dict[str, float]] = []
    cpu: list[dict[str, float]] = []
    for samples in rounds:
        of_row = [sample for sample in samples if sample.row == row.title]
        failures.update({one.contender: one.why for one in of_row if one.value is None})
        figures.append({one.contender: one.value for one in of_row if one.value is not None})
        cpu.append({one.contender: one.cpu_us for one in of_row if one.cpu_us is not None})
    return Result(
        row,
        _summed(row, figures),
        _summed(row, list(map(_ratios, figures))),
        _summed(row, cpu),
        _summed(row, list(map(_ratios, cpu))),
        failures,
    )


def _ratios(values: Mapping[str, float]) -> dict[str, float]:
    ours = values.get(OURS)
    if ours is None:
        return {}
    return {name: ours / value for name, value in values.items() if name != OURS and value}


def _summed(row: Row, rounds: Sequence[Mapping[str, float]]) -> dict[str, Figures]:
    found = {name: [one[name] for one in rounds if name in one] for name in row.contenders}
    return {name: Figures.of(values) for name, values in found.items() if values}
