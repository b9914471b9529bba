"""All that a run found, as it is kept: samples, points, and who took part on which machine."""

from __future__ import annotations

from typing import Any

import msgspec

from scripts.bench.growth import Point, curves
from scripts.bench.results import Figures, Result, results
from scripts.bench.rows import Sample, Share


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
