"""Write docs/benchmarks.md, the whole of it, from what a run found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from scripts.bench.findings import (
    Curve,
    Findings,
    Party,
    Result,
    Verdict,
    curves,
    figure,
    ranged,
    to_json,
)
from scripts.bench.plot import svg
from scripts.bench.rows import OURS, ROWS, Target
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


ONE_CPU: Final = (
    "Since each side waits for the other in turn, all processes of a party share one CPU, its "
    "client among them."
)
MOST: Final = 12
"""So many functions are shown of what takes the time of a row."""


def write(findings: Findings, docs: Path = DOCS) -> list[Path]:
    """Write the page, its data and its plot; returns what was written."""
    texts = files(findings)
    for name, text in texts.items():
        (docs / name).write_text(text, encoding="utf-8")
    return [docs / name for name in texts]


def files(findings: Findings) -> dict[str, str]:
    """Return the texts of all files, by name."""
    texts = {PAGE: page(findings), DATA: msgspec.json.format(to_json(findings), indent=1) + "\n"}
    drawn = curves(findings.points)
    return texts | {PLOT: svg(drawn)} if drawn else texts


def page(findings: Findings) -> str:
    """Return the page as Markdown."""
    found = findings.results()
    parts = [HEAD, *_about(findings), "## Bounds\n", _bounds(found), *_unmeasured(found)]
    for result in found:
        parts += [f"## {_title(result)}\n", *_row(findings, result), *_shares(findings, result)]
    if findings.points:
        parts += _scale(curves(findings.points))
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
    yield _table(("Party", "Version"), map(_party, findings.parties))


def _party(party: Party) -> tuple[str, str]:
    return party.name, party.version or f"missing: {party.why}"


def _bounds(found: Sequence[Result]) -> str:
    return _table(
        ("Work", OURS, "Bound", "Reached", "Verdict"),
        (
            (_title(result), _ours(result), str(target), _reached(result, target), verdict)
            for result in found
            for target, verdict in result.verdicts()
        ),
    )


def _unmeasured(found: Sequence[Result]) -> Iterator[str]:
    left_out = [row for row in ROWS if row not in {result.row for result in found}]
    if left_out:
        yield f"Not measured in this run: {'; '.join(row.title for row in left_out)}.\n"


def _ours(result: Result) -> str:
    found = result.figures.get(OURS)
    return result.failures.get(OURS, "") if found is None else _with_unit(ranged(found), result)


def _reached(result: Result, target: Target) -> str:
    found = result.reached(target)
    if found is None:
        return ""
    return _with_unit(ranged(found), result) if target.peer is None else f"{ranged(found)} x"


def _row(findings: Findings, result: Result) -> Iterator[str]:
    notes = [result.row.note] if result.row.note else []
    notes += [ONE_CPU] if result.row.one_cpu and findings.pinned else []
    if notes:
        yield f"{' '.join(notes)}\n"
    head, lines = ("Who", result.row.unit, "stdiod to it"), list(_contenders(result))
    if result.cpu:
        of = {name: ranged(found) for name, found in result.cpu.items()}
        yield _table((*head, "CPU (us)"), ((*line, of.get(line[0], "")) for line in lines))
    else:
        yield _table(head, lines)
    for target, verdict in result.verdicts():
        mark = "**" if verdict is Verdict.SHORT else ""
        yield f"Bound: {target}: {mark}{verdict}{mark}.\n"


def _contenders(result: Result) -> Iterator[tuple[str, str, str]]:
    for name in result.row.contenders:
        found, ratio = result.figures.get(name), result.ratios.get(name)
        failure = result.failures.get(name, "")
        if found is None:
            yield name, failure or "missing", ""
        else:
            words = f"{ranged(found)}; {failure}" if failure else ranged(found)
            yield name, words, "" if ratio is None else f"{ranged(ratio)} x"


def _shares(findings: Findings, result: Result) -> Iterator[str]:
    parts = findings.shares_of(result)
    whole = sum(part.cpu_us for part in parts)
    if parts:
        yield "Where stdiod spends its CPU time, sampled in one round:\n"
        yield _table(
            ("Part", "us", "%"),
            (
                *((part.part, figure(part.cpu_us), _percent(part.cpu_us, whole)) for part in parts),
                ("all", figure(whole), ""),
            ),
        )
    functions = findings.functions_of(result, MOST)
    if functions and any(verdict is Verdict.SHORT for _, verdict in result.verdicts()):
        yield "The functions that take most of it:\n"
        yield _table(
            ("Function", "us", "%"),
            (
                (f"`{one.function}`", figure(one.cpu_us), _percent(one.cpu_us, whole))
                for one in functions
            ),
        )


def _percent(part: float, whole: float) -> str:
    return f"{part / whole * 100:.0f}"


def _scale(drawn: Sequence[Curve]) -> Iterator[str]:
    yield "## What grows with the number of modules\n"
    yield (
        "One daemon, native modules, one round. The last column is the exponent k of the curve n^k "
        "through the first and the last size: 0 is constant, 1 is linear.\n"
    )
    yield f"![curves of each measure over the number of modules]({PLOT})\n"
    for family in dict.fromkeys(curve.family for curve in drawn):
        of = [curve for curve in drawn if curve.family == family]
        sizes = [f"{size:,}" for size, _ in of[0].points]
        yield _table(
            (family.capitalize(), *sizes, "k"),
            (
                (
                    f"{curve.measure} [{curve.unit}]",
                    *(figure(value) for _, value in curve.points),
                    "" if curve.exponent is None else f"{curve.exponent:.2f}",
                )
                for curve in of
            ),
        )


def _title(result: Result) -> str:
    return result.row.title[0].upper() + result.row.title[1:]


def _with_unit(text: str, result: Result) -> str:
    return f"{text} {result.row.unit}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
