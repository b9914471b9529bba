"""All that a run found: samples, points and shares, who took part, and what they sum up to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple, Self

import msgspec

from scripts.bench.rows import OURS, ROWS, Row, Sample, Share, Target

RUNNING = "persistent modules, all running"
LAZY = "descriptors of lazy modules in one directory"

START = "start (`stdiod up`)"
MEMORY = "memory of the daemon and its guardian (PSS)"
IDLE = "idle CPU"
RELOAD = "reload after one descriptor changed"
INVOKE = "invoke of one module, median"
FIRST = "first invoke of a lazy module, which starts it"
STOP = "stop (`stdiod down`)"

UNITS = {START: "s", MEMORY: "MB", IDLE: "%", RELOAD: "s", INVOKE: "ms", FIRST: "ms", STOP: "s"}


class Point(NamedTuple):
    """One measure at one size."""

    family: str
    measure: str
    size: int
    value: float


class Curve(NamedTuple):
    """One measure over the sizes, smallest first."""

    family: str
    measure: str
    points: tuple[tuple[int, float], ...]

    @property
    def unit(self) -> str:
        """Return the unit of its values."""
        return UNITS[self.measure]

    @property
    def exponent(self) -> float | None:
        """Return k of the power law size^k through the first and the last point.

        0 is constant and 1 linear; None where there is nothing to draw a line through.
        """
        (first, low), (last, high) = self.points[0], self.points[-1]
        if first == last or low <= 0 or high <= 0:
            return None
        return math.log(high / low) / math.log(last / first)


def curves(points: Sequence[Point]) -> list[Curve]:
    """Sort points into curves, in the order in which their measures came."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for point in points:
        found.setdefault((point.family, point.measure), {})[point.size] = point.value
    return [Curve(*key, tuple(sorted(values.items()))) for key, values in found.items()]


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


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where it was measured."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    load: float
    """The load average (1 min) as it began: above the number of cores, figures say little."""


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One who took part, or did not."""

    name: str
    version: str | None
    why: str = ""
    """Why it is missing."""


class Findings(msgspec.Struct, frozen=True):
    """A run, whole; `rows` and `growth` of its JSON are made of this and not read back."""

    date: str
    machine: Machine
    parties: tuple[Party, ...]
    quick: bool
    rounds: tuple[tuple[Sample, ...], ...]
    points: tuple[Point, ...]
    shares: tuple[Share, ...] = ()
    pinned: bool = False
    """Whether rows that say so were measured on one CPU."""

    def results(self) -> list[Result]:
        """Sum the rounds up."""
        return results(self.rounds)

    def shares_of(self, result: Result) -> list[Share]:
        """Return which parts a row's CPU time consists of, the largest first."""
        parts: dict[str, float] = {}
        for one in self.shares:
            if one.row == result.row.title:
                parts[one.part] = parts.get(one.part, 0.0) + one.cpu_us
        found = (Share(result.row.title, part, cpu_us) for part, cpu_us in parts.items())
        return sorted(found, key=lambda one: one.cpu_us, reverse=True)

    def functions_of(self, result: Result, most: int) -> list[Share]:
        """Return the functions in which a row's CPU time is spent, those that take most."""
        named = (one for one in self.shares if one.function and one.row == result.row.title)
        return sorted(named, key=lambda one: one.cpu_us, reverse=True)[:most]


def to_json(findings: Findings) -> str:
    """Return everything for programs, the sums too."""
    document = msgspec.to_builtins(findings) | {
        "rows": [_row(result) for result in findings.results()],
        "growth": [
            {**curve._asdict(), "unit": curve.unit, "exponent": curve.exponent}
            for curve in curves(findings.points)
        ],
    }
    return msgspec.json.encode(document).decode()


def from_json(text: str) -> Findings:
    """Return what `to_json` was given; raises `msgspec.ValidationError`."""
    return msgspec.json.decode(text, type=Findings)


def _row(result: Result) -> dict[str, Any]:
    return {
        "row": result.row.title,
        "unit": result.row.unit,
        "figures": {name: _figures(found) for name, found in result.figures.items()},
        "ratios": {name: _figures(found) for name, found in result.ratios.items()},
        "failures": dict(result.failures),
        "targets": [
            {"target": str(target), "verdict": str(verdict)}
            for target, verdict in result.verdicts()
        ],
    }


def _figures(found: Figures) -> dict[str, Any]:
    return {
        "median": found.median,
        "low": found.low,
        "high": found.high,
        "samples": list(found.samples),
    }


GROUPED = 999.5
"""What rounds to a thousand or more is shown whole."""


def figure(value: float) -> str:
    """Return a number with three digits, or a whole one with its thousands grouped."""
    return f"{value:,.0f}" if abs(value) >= GROUPED else f"{value:.3g}"


def ranged(figures: Figures) -> str:
    """Return a median, and the range where there is one."""
    low, high = figure(figures.low), figure(figures.high)
    return figure(figures.median) if low == high else f"{figure(figures.median)} ({low}-{high})"
