"""Show what was found to people: a table on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scripts.bench.findings import Findings
from scripts.bench.growth import curves
from scripts.bench.results import Result, Verdict
from scripts.bench.rows import OURS
from scripts.bench.wording import figure, ranged

PLAIN_WIDTH = 190
"""Where there is no terminal, nothing is cut."""

_COLOURS = {Verdict.MET: "green", Verdict.SHORT: "red", Verdict.UNKNOWN: "dim"}


def print_report(findings: Findings) -> None:
    """Print all; plain where nobody looks."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    found = findings.results()
    if found:
        console.print(_rows(found))
    if findings.points:
        console.print(_growth(findings))
    for party in findings.parties:
        if party.version is None:
            console.print(f"missing: {escape(party.name)}: {escape(party.why)}")


def _rows(found: list[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what")
    table.add_column("stdiod", justify="right")
    table.add_column("peers: median (range), ratio of stdiod to it (range)")
    table.add_column("bound")
    for result in found:
        table.add_row(result.row.title, _ours(result), _peers(result), _bounds(result))
    return table


def _ours(result: Result) -> str:
    ours = result.figures.get(OURS)
    if ours is None:
        return escape(result.failures.get(OURS, "not measured"))
    return f"{ranged(ours)} {result.row.unit}"


def _peers(result: Result) -> str:
    lines: list[str] = []
    for name in result.row.contenders:
        if name == OURS:
            continue
        ratio = result.ratios.get(name)
        words = [ranged(result.figures[name])] if name in result.figures else []
        words += [] if ratio is None else [f"{ranged(ratio)} x"]
        words += [escape(result.failures[name])] if name in result.failures else []
        lines.append(f"{escape(name)} {', '.join(words) or '[dim]missing[/]'}")
    return "\n".join(lines)


def _bounds(result: Result) -> str:
    return "\n".join(
        f"{target}: [{_COLOURS[verdict]}]{verdict}[/]" for target, verdict in result.verdicts()
    )


def _growth(findings: Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what grows with the number of modules")
    table.add_column("size: value")
    table.add_column("k of n^k", justify="right")
    for curve in curves(findings.points):
        points = ", ".join(f"{size:,}: {figure(value)}" for size, value in curve.points)
        k = "" if curve.exponent is None else f"{curve.exponent:.2f}"
        table.add_row(f"{curve.family}: {escape(curve.measure)} ({curve.unit})", points, k)
    return table
