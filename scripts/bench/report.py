"""Show results: a table for people, one JSON object per row for programs."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts.bench.rows import OURS, Result, Verdict

PLAIN_WIDTH = 170
"""Where there is no terminal, nothing is cut."""

_COLOURS = {Verdict.MET: "green", Verdict.SHORT: "red", Verdict.UNKNOWN: "dim"}


def document(result: Result) -> dict[str, Any]:
    """Return a row as JSON shows it."""
    return {
        "row": result.row.title,
        "unit": result.row.unit,
        "figures": {
            name: {
                "median": figures.median,
                "spread": figures.spread,
                "samples": list(figures.samples),
            }
            for name, figures in result.figures.items()
        },
        "ratios": dict(result.ratios),
        "targets": [
            {"target": str(target), "verdict": str(verdict)}
            for target, verdict in result.verdicts()
        ],
        "not_measured": list(result.row.not_measured),
    }


def print_json(results: list[Result]) -> None:
    """Print an object per line."""
    for result in results:
        print(json.dumps(document(result)))


def print_table(results: list[Result]) -> None:
    """Print a table; plain where nobody looks."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what")
    table.add_column("stdiod", justify="right")
    table.add_column("spread", justify="right", style="dim")
    table.add_column("peers: median, spread, ratio of stdiod to it")
    table.add_column("target")
    for result in results:
        ours = result.figures[OURS]
        table.add_row(
            result.row.title,
            f"{_number(ours.median)} {result.row.unit}",
            f"{ours.spread:.0%}",
            "\n".join(_peer(result, name) for name in result.figures if name != OURS),
            _targets(result),
        )
    console.print(table)


def _peer(result: Result, name: str) -> str:
    figures = result.figures[name]
    ratio = result.ratios[name]
    return f"{name} {_number(figures.median)} ({figures.spread:.0%}), {ratio:.2f} x"


def _targets(result: Result) -> str:
    lines = [
        f"{target}: [{_COLOURS[verdict]}]{verdict}[/]" for target, verdict in result.verdicts()
    ]
    if result.row.not_measured:
        lines.append(f"[dim]not measured here: {', '.join(result.row.not_measured)}[/]")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - four digits
