"""The findings of a run, as JSON and as docs/benchmarks.md, the whole of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

import msgspec

from scripts.bench.table import OURS, SCENES, TABLE, Row, Scene
from scripts.checkout import ROOT

DOCS: Final = ROOT / "docs"
PAGE: Final = "benchmarks.md"
DATA: Final = "benchmarks.json"

BOUND: Final = re.compile(r"at (least|most) ([\d.]+)(?: x (.+?)(, CPU)?)?")
"""A bound of the table: on the ratio to a peer, or to its CPU time, or on our own figure."""
GROUPED: Final = 999.5
"""What rounds to a thousand or more is shown whole."""


class Sample(NamedTuple):
    """One figure of one round, or why there is none."""

    row: str
    contender: str
    value: float | None
    why: str = ""
    cpu_us: float | None = None
    """CPU time of the contender for one unit of work, without that of its module."""


class Findings(msgspec.Struct, frozen=True):
    """A whole run."""

    date: str
    machine: str
    cores: int
    load: float
    """The load average (1 min) at the start: above the number of cores, figures say little."""
    parties: dict[str, str]
    """The version of each, or why it is missing."""
    quick: bool
    rounds: tuple[tuple[Sample, ...], ...] = ()


def to_json(findings: Findings) -> str:
    return msgspec.json.format(msgspec.json.encode(findings), indent=1).decode() + "\n"


def from_json(text: str) -> Findings:
    """Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=Findings)


@dataclass
class Figures:
    """What was found of one contender in one row, a value per round."""

    values: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """Of our value to this one, if both were measured in the round."""
    cpu_us: list[float] = field(default_factory=list)
    cpu_ratios: list[float] = field(default_factory=list)
    why: str = ""
    """Why there is no value of at least one round."""


Result = dict[str, Figures]
"""A row's figures, by contender."""


def results(rounds: Iterable[Sequence[Sample]]) -> dict[str, Result]:
    """Return the figures of the rows that were measured, by title."""
    found: dict[str, Result] = {}
    for samples in rounds:
        ours = {sample.row: sample for sample in samples if sample.contender == OURS}
        for sample in samples:
            figures = found.setdefault(sample.row, {}).setdefault(sample.contender, Figures())
            if sample.value is None:
                figures.why = sample.why
                continue
            figures.values.append(sample.value)
            figures.cpu_us += [] if sample.cpu_us is None else [sample.cpu_us]
            mine = ours.get(sample.row, sample)
            if mine is sample:
                continue
            if mine.value is not None and sample.value:
                figures.ratios.append(mine.value / sample.value)
            if mine.cpu_us is not None and sample.cpu_us:
                figures.cpu_ratios.append(mine.cpu_us / sample.cpu_us)
    return found


def judged(bound: str, result: Result, unit: str) -> tuple[str, str]:
    """Return what was reached of a bound, and the verdict."""
    found = BOUND.fullmatch(bound)
    assert found, bound
    which, value, peer, of_cpu = found.groups()
    figures = result.get(peer or OURS, Figures())
    values = figures.cpu_ratios if of_cpu else figures.ratios if peer else figures.values
    if not values:
        return "", "not measured"
    over = median(values) - float(value)
    is_met = over >= 0 if which == "least" else over <= 0
    return ranged(values, "x" if peer else unit, whole=True), "pass" if is_met else "falls short"


# --- The page ----------------------------------------------------------------


def files(findings: Findings) -> dict[str, str]:
    """Return the texts of all files, by name."""
    return {PAGE: page(findings), DATA: to_json(findings)}


def page(findings: Findings) -> str:
    """Return the page as Markdown."""
    found = results(findings.rounds)
    rows = [(row, scene) for scene in SCENES for row in scene.rows]
    bounds = [
        (row.heading, bound, *judged(bound, found[row.title], row.unit))
        for row, _ in rows
        if row.title in found
        for bound in row.bounds
    ]
    parts = [TABLE.page, *_about(findings), "## Bounds\n"]
    parts.append(_table(("Work", "Bound", "Reached", "Verdict"), bounds))
    singles = [(row, scene) for row, scene in rows if not scene.grows]
    if left_out := [row.title for row, _ in singles if row.title not in found]:
        parts.append(f"Not measured in this run: {'; '.join(left_out)}.\n")
    for row, scene in singles:
        if row.title in found:
            text = " ".join(filter(None, (row.text, TABLE.shared_cpu * scene.one_cpu)))
            parts += [f"## {row.heading}\n", *([f"{text}\n"] if text else [])]
            parts.append(_figures(row, scene, found[row.title]))
    growing = [scene for scene in SCENES if scene.grows and scene.rows[0].title in found]
    parts += [TABLE.growth, *(_growth(scene, found) for scene in growing)] if growing else []
    return "\n".join(parts)


def _figures(row: Row, scene: Scene, result: Result) -> str:
    lines = []
    for name in scene.who():
        figures = result.get(name, Figures())
        words = "; ".join(filter(None, (ranged(figures.values), figures.why))) or "missing"
        lines.append([name, words, ranged(figures.ratios, "x"), ranged(figures.cpu_us)])
    head = ["Who", row.unit, "stdiod to it", "CPU (us)"]
    shown = [at for at in range(4) if at < 2 or any(line[at] for line in lines)]  # noqa: PLR2004
    return _table([head[at] for at in shown], ([line[at] for at in shown] for line in lines))


def _about(findings: Findings) -> Iterator[str]:
    rounds = sum(map(bool, findings.rounds))
    yield f"Measured {findings.date}, {rounds} round{'s' * (rounds != 1)}: {findings.machine}.\n"
    if findings.load > findings.cores / 2:
        yield (
            f"**The machine was busy with other things** (load average {findings.load:g} on "
            f"{findings.cores} cores at the start): on an idle machine, the figures would differ.\n"
        )
    if findings.quick:
        yield "**A quick run**: it shows only that the benchmark works. Its figures mean nothing.\n"
    yield _table(("Party", "Version"), findings.parties.items())


def _growth(scene: Scene, found: Mapping[str, Result]) -> str:
    """Return a table with a column for each size."""
    sizes = [name.removeprefix(f"{OURS}, ") for name in scene.who()]
    family, lines = scene.rows[0].heading.partition(": ")[0], []
    for row in scene.rows:
        cells = [found.get(row.title, {}).get(name, Figures()) for name in scene.who()]
        k = exponent(sizes[0], sizes[-1], cells[0].values + cells[-1].values)
        measure = f"{row.title.partition(': ')[2]} [{row.unit}]"
        lines.append([measure, *(ranged(cell.values) or cell.why for cell in cells), k])
    return _table((family, *sizes, "k"), lines)


def exponent(first: str, last: str, values: Sequence[float]) -> str:
    """Return the k of the power law size^k through two points.

    0 is constant and 1 linear; nothing where there is nothing to draw a line through.
    """
    if len(values) < 2 or min(values) <= 0:  # noqa: PLR2004 - a line has two ends
        return ""
    low, high = (int(size.replace(",", "")) for size in (first, last))
    return f"{math.log(values[1] / values[0]) / math.log(high / low):.2f}"


def figure(value: float) -> str:
    """Return a number with three digits, or a whole one with its thousands grouped."""
    return f"{value:,.0f}" if abs(value) >= GROUPED else f"{value:.3g}"


def ranged(values: Sequence[float], unit: str = "", *, whole: bool = False) -> str:
    """Return the median, if wanted with the range where there is one; nothing of no values."""
    if not values:
        return ""
    middle, low, high = map(figure, (median(values), min(values), max(values)))
    return f"{middle if not whole or low == high else f'{middle} ({low}-{high})'} {unit}".rstrip()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ((cell.replace("|", "\\|").replace("\n", " ") for cell in line) for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"
