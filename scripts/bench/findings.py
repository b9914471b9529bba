"""What a run found: samples and curves, who took part, and what the samples sum up to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

import msgspec

from scripts.bench.rows import OURS, ROWS, Row, Sample, Target

MET: Final = "pass"
SHORT: Final = "falls short"
UNKNOWN: Final = "not measured"


class Curve(NamedTuple):
    """One measure over the number of modules, smallest first."""

    family: str
    measure: str
    unit: str
    points: tuple[tuple[int, float], ...]

    @property
    def exponent(self) -> float | None:
        """The k of the power law size^k through the first and the last point.

        0 is constant and 1 linear; None where there is nothing to draw a line through.
        """
        (first, low), (last, high) = self.points[0], self.points[-1]
        if first == last or low <= 0 or high <= 0:
            return None
        return math.log(high / low) / math.log(last / first)


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    load: float
    """The load average (1 min) at the start: above the number of cores, figures say little."""


class Party(msgspec.Struct, frozen=True):
    """A program that took part, or did not."""

    name: str
    version: str | None
    why: str = ""
    """Why it is missing."""


class Findings(msgspec.Struct, frozen=True):
    """A whole run; `rows` of its JSON is made of the rounds and not read back."""

    date: str
    machine: Machine
    parties: tuple[Party, ...]
    quick: bool
    rounds: tuple[tuple[Sample, ...], ...]
    growth: tuple[Curve, ...] = ()


class Figures(NamedTuple):
    """Some values of one kind: their median, the smallest and the largest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """A row and what was found."""

    row: Row
    figures: Mapping[str, Figures]
    ratios: Mapping[str, Figures]
    """Of ours to each peer, one per round in which both were measured."""
    cpu: Mapping[str, Figures]
    """CPU time of one call (us)."""
    cpu_ratios: Mapping[str, Figures]
    failures: Mapping[str, str]
    """Why a contender has no figure in at least one round."""

    def reached(self, target: Target) -> Figures | None:
        """Return the figures that a target bounds."""
        if target.peer is None:
            return self.figures.get(OURS)
        return (self.cpu_ratios if target.of_cpu else self.ratios).get(target.peer)

    def verdict(self, target: Target) -> str:
        """Judge the median."""
        reached = self.reached(target)
        if reached is None:
            return UNKNOWN
        if target.at_least:
            return MET if reached.median >= target.bound else SHORT
        return MET if reached.median <= target.bound else SHORT


def results(rounds: Sequence[Sequence[Sample]]) -> list[Result]:
    """Sum the rounds up, row by row; a row without a sample is left out."""
    return [
        _result(row, of_row)
        for row in ROWS
        if any(of_row := [[one for one in found if one.row == row.title] for found in rounds])
    ]


def _result(row: Row, rounds: Sequence[Sequence[Sample]]) -> Result:
    figures = [
        {one.contender: one.value for one in found if one.value is not None} for found in rounds
    ]
    cpu = [
        {one.contender: one.cpu_us for one in found if one.cpu_us is not None} for found in rounds
    ]
    return Result(
        row,
        _summed(row, figures),
        _summed(row, map(_ratios, figures)),
        _summed(row, cpu),
        _summed(row, map(_ratios, cpu)),
        {one.contender: one.why for found in rounds for one in found if one.value is None},
    )


def _ratios(values: Mapping[str, float]) -> dict[str, float]:
    if OURS not in values:
        return {}
    return {name: values[OURS] / value for name, value in values.items() if name != OURS and value}


def _summed(row: Row, rounds: Iterable[Mapping[str, float]]) -> dict[str, Figures]:
    rounds = list(rounds)
    values = {name: [one[name] for one in rounds if name in one] for name in row.contenders}
    return {
        name: Figures(median(found), min(found), max(found))
        for name, found in values.items()
        if found
    }


def to_json(findings: Findings) -> str:
    """Return everything for programs, the sums too."""
    sums = [
        {
            "row": result.row.title,
            "unit": result.row.unit,
            "figures": {name: found._asdict() for name, found in result.figures.items()},
            "ratios": {name: found._asdict() for name, found in result.ratios.items()},
            "failures": result.failures,
            "targets": [
                {"target": str(target), "verdict": result.verdict(target)}
                for target in result.row.targets
            ],
        }
        for result in results(findings.rounds)
    ]
    return msgspec.json.encode({**msgspec.to_builtins(findings), "rows": sums}).decode()


def from_json(text: str) -> Findings:
    """Return what `to_json` was given; raises `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=Findings)
