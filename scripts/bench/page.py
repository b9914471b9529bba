"""docs/benchmarks.md, the whole of it, with its data and its plot, from what a run found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from scripts.bench.findings import (
    Curve,
    Figures,
    Findings,
    Result,
    results,
    to_json,
)
from scripts.bench.plot import svg
from scripts.bench.rows import OURS, ROWS
from scripts.checkout import ROOT

DOCS: Final = ROOT / "docs"
PAGE: Final = "benchmarks.md"
DATA: Final = "benchmarks.json"
PLOT: Final = "benchmarks-scale.svg"

HEAD: Final = """\
# Benchmarks

<!-- Written by `python -m scripts.bench --write`, of docs/benchmarks.json. Change nothing here. -->

This page compares what stdiod costs with the cheapest way to do the same work, and with other
programs. All parties of a row were measured in one run on one machine. They took turns in each
round, so that other load on the machine affected all of them alike. A figure is the median of the
rounds, with the smallest and the largest in brackets. A ratio is stdiod's figure divided by the
other's, taken in each round. Ratios are comparable between machines; absolute figures are not.

To run it yourself, type `make bench`, which measures the peers that are installed, or
`make bench-peers`, which installs them first. With `BENCH_ARGS="--write"` both write this page.
"""
GROUPED: Final = 999.5
"""What rounds to a thousand or more is shown whole."""
ONE_CPU: Final = (
    "Since each side waits for the other in turn, all processes of a party share one CPU, its "
    "client among them."
)


def files(findings: Findings) -> dict[str, str]:
    """Return the texts of all files, by name."""
    texts = {PAGE: page(findings), DATA: msgspec.json.format(to_json(findings), indent=1) + "\n"}
    return texts | ({PLOT: svg(findings.growth)} if findings.growth else {})


def page(findings: Findings) -> str:
    """Return the page as Markdown."""
    found = results(findings.rounds)
    bounds = (
        (
            _title(result),
            _ours(result),
            str(target),
            _reached(result.reached(target), result.row.unit if target.peer is None else "x"),
            result.verdict(target),
        )
        for result in found
        for target in result.row.targets
    )
    parts = [HEAD, *_about(findings), "## Bounds\n"]
    parts.append(_table(("Work", OURS, "Bound", "Reached", "Verdict"), bounds))
    left_out = [row.title for row in ROWS if all(row != result.row for result in found)]
    if left_out:
        parts.append(f"Not measured in this run: {'; '.join(left_out)}.\n")
    for result in found:
        parts += [f"## {_title(result)}\n", *_row(result)]
    if findings.growth:
        parts += _scale(findings.growth)
    return "\n".join(parts)


def _about(findings: Findings) -> Iterator[str]:
    machine, rounds = findings.machine, len(findings.rounds)
    yield (
        f"Measured {findings.date}, {rounds} round{'s' * (rounds != 1)}: {machine.cpu}, "
        f"{machine.cores} cores, {machine.memory_bytes / 1e9:.0f} GB, {machine.kernel}, "
        f"Python {machine.python}.\n"
    )
    if machine.load > machine.cores / 2:
        yield (
            f"**The machine was busy with other things** (load average {machine.load:g} on "
            f"{machine.cores} cores at the start): on an idle machine, the figures would differ.\n"
        )
    if findings.quick:
        yield "**A quick run**: it shows only that the benchmark works. Its figures mean nothing.\n"
    parties = ((one.name, one.version or f"missing: {one.why}") for one in findings.parties)
    yield _table(("Party", "Version"), parties)


def _ours(result: Result) -> str:
    return _reached(result.figures.get(OURS), result.row.unit) or result.failures.get(OURS, "")


def _reached(figures: Figures | None, unit: str) -> str:
    return "" if figures is None else f"{ranged(figures)} {unit}"


def _row(result: Result) -> Iterator[str]:
    row = result.row
    notes = [*([row.note] if row.note else []), *([ONE_CPU] if row.one_cpu else [])]
    if notes:
        yield f"{' '.join(notes)}\n"
    lines = []
    for name in row.contenders:
        found, failure = result.figures.get(name), result.failures.get(name)
        words = [*([] if found is None else [ranged(found)]), *([failure] if failure else [])]
        line = [name, "; ".join(words) or "missing", _reached(result.ratios.get(name), "x")]
        if result.cpu:
            line.append(ranged(result.cpu[name]) if name in result.cpu else "")
        lines.append(line)
    head = ["Who", row.unit, "stdiod to it", *(["CPU (us)"] if result.cpu else [])]
    yield _table(head, lines)


def _scale(curves: Sequence[Curve]) -> Iterator[str]:
    yield "## What grows with the number of modules\n"
    yield (
        "One daemon, native modules, one round. The last column is the exponent k of the curve n^k "
        "through the first and the last size: 0 is constant, 1 is linear.\n"
    )
    yield f"![curves of each measure over the number of modules]({PLOT})\n"
    for family, found in groupby(curves, key=lambda curve: curve.family):
        of = list(found)
        sizes = [f"{size:,}" for size, _ in of[0].points]
        lines = (
            (
                f"{curve.measure} [{curve.unit}]",
                *(figure(value) for _, value in curve.points),
                "" if curve.exponent is None else f"{curve.exponent:.2f}",
            )
            for curve in of
        )
        yield _table((family.capitalize(), *sizes, "k"), lines)


def figure(value: float) -> str:
    """Return a number with three digits, or a whole one with its thousands grouped."""
    return f"{value:,.0f}" if abs(value) >= GROUPED else f"{value:.3g}"


def ranged(figures: Figures) -> str:
    """Return a median, and the range where there is one."""
    low, high = figure(figures.low), figure(figures.high)
    return figure(figures.median) if low == high else f"{figure(figures.median)} ({low}-{high})"


def _title(result: Result) -> str:
    return result.row.title[0].upper() + result.row.title[1:]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
