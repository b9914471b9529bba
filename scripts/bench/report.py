"""Show what was found to people: a paragraph for each row, with its bounds."""

from __future__ import annotations

from collections.abc import Iterator

import click

from scripts.bench.findings import Findings
from scripts.bench.growth import curves
from scripts.bench.results import Result, Verdict
from scripts.bench.rows import OURS
from scripts.bench.wording import figure, ranged

_COLOURS = {Verdict.MET: "green", Verdict.SHORT: "red", Verdict.UNKNOWN: "yellow"}


def print_report(findings: Findings) -> None:
    """Print all; in colours on a terminal."""
    for result in findings.results():
        click.secho(f"\n{result.row.title}", bold=True)
        lines = [(OURS, _ours(result)), *_peers(result)]
        width = max(len(name) for name, _ in lines)
        for name, words in lines:
            click.echo(f"  {name.ljust(width)}  {words}")
        for target, verdict in result.verdicts():
            click.echo(f"  {target}: {click.style(str(verdict), fg=_COLOURS[verdict])}")
        parts = findings.shares_of(result)
        if parts:
            words = ", ".join(f"{part.part} {figure(part.cpu_us)}" for part in parts)
            click.echo(f"  our CPU time (us): {words}")
    if findings.points:
        _print_growth(findings)
    for party in findings.parties:
        if party.version is None:
            click.echo(f"missing: {party.name}: {party.why}")


def _ours(result: Result) -> str:
    ours = result.figures.get(OURS)
    if ours is None:
        return result.failures.get(OURS, "not measured")
    return f"{ranged(ours)} {result.row.unit}{_cpu(result, OURS)}"


def _cpu(result: Result, name: str) -> str:
    found = result.cpu.get(name)
    return "" if found is None else f", {ranged(found)} us of CPU each"


def _peers(result: Result) -> Iterator[tuple[str, str]]:
    """Give each peer with its median (range), and the ratio of ours to it."""
    for name in result.row.contenders:
        if name == OURS:
            continue
        ratio = result.ratios.get(name)
        words = [ranged(result.figures[name])] if name in result.figures else []
        words += [] if ratio is None else [f"stdiod is {ranged(ratio)} x"]
        words += [result.failures[name]] if name in result.failures else []
        yield name, (", ".join(words) or "missing") + _cpu(result, name)


def _print_growth(findings: Findings) -> None:
    click.secho("\nwhat grows with the number of modules, as n^k", bold=True)
    for curve in curves(findings.points):
        points = ", ".join(f"{size:,}: {figure(value)}" for size, value in curve.points)
        k = "" if curve.exponent is None else f"; k is {curve.exponent:.2f}"
        click.echo(f"  {curve.family}: {curve.measure} ({curve.unit}): {points}{k}")
