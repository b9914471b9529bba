"""The findings of a run, as JSON and as docs/benchmarks.md, the whole of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from scripts.bench.scene import OURS, Bound, Row, Sample, Scene
from scripts.bench.table import SCENES
from scripts.checkout import ROOT

DOCS: Final = ROOT / "docs"
PAGE: Final = "benchmarks.md"
DATA: Final = "benchmarks.json"

TEMPLATE: Final = Path(__file__).with_name("page.md")
"""The text of the page: a section for each row, by its title, in the order of the page."""
GROWTH: Final = "What grows with the number of modules"
GROUPED: Final = 999.5
"""What rounds to a thousand or more is shown whole."""


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
            mine = ours.get(sample.row)
            if mine is None or mine is sample:
                continue
            if mine.value is not None and sample.value:
                figures.ratios.append(mine.value / sample.value)
            if mine.cpu_us is not None and sample.cpu_us:
                figures.cpu_ratios.append(mine.cpu_us / sample.cpu_us)
    return found


def reached(bound: Bound, result: Result) -> list[float]:
    """Return the values that a bound is on."""
    figures = result.get(bound.peer or OURS, Figures())
    if bound.peer is None:
        return figures.values
    return figures.cpu_ratios if bound.of_cpu else figures.ratios


def verdict(bound: Bound, result: Result) -> str:
    if not (values := reached(bound, result)):
        return "not measured"
    middle = median(values)
    is_met = middle >= bound.value if bound.at_least else middle <= bound.value
    return "pass" if is_met else "falls short"


# --- The page ----------------------------------------------------------------


def files(findings: Findings) -> dict[str, str]:
    """Return the texts of all files, by name."""
    return {PAGE: page(findings), DATA: to_json(findings)}


def page(findings: Findings) -> str:
    """Return the page as Markdown: the text of the template with what was measured."""
    found = results(findings.rounds)
    rows = {heading(row): (row, scene) for scene in SCENES for row in scene.rows}
    growing = [scene for scene in SCENES if scene.grows and scene.rows[0].title in found]
    head, bounds, *sections = TEMPLATE.read_text(encoding="utf-8").split("\n## ")
    parts = [head, *_about(findings), f"## {bounds}", _bounds(found)]
    if left_out := [row.title for row, _ in rows.values() if row.title not in found]:
        parts.append(f"Not measured in this run: {'; '.join(left_out)}.\n")
    for section in sections:
        title, text = section.partition("\n")[0], f"## {section.strip()}\n"
        if title == GROWTH:
            parts += [text, *(_growth(scene, found) for scene in growing)] if growing else ()
            continue
        row, scene = rows[title]
        if row.title in found:
            parts += [text, _figures(row, scene, found[row.title])]
    return "\n".join(parts)


def heading(row: Row) -> str:
    return row.title[0].upper() + row.title[1:]


def _bounds(found: Mapping[str, Result]) -> str:
    lines = [
        (
            heading(row),
            str(bound),
            ranged(reached(bound, found[row.title]), "x" if bound.peer else row.unit, whole=True),
            verdict(bound, found[row.title]),
        )
        for scene in SCENES
        for row in scene.rows
        if row.title in found
        for bound in row.bounds
    ]
    return _table(("Work", "Bound", "Reached", "Verdict"), lines)


def _figures(row: Row, scene: Scene, result: Result) -> str:
    lines = []
    for name in scene.parties:
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
    sizes = [name.removeprefix(f"{OURS}, ") for name in scene.parties]
    lines = []
    for row in scene.rows:
        cells = [found.get(row.title, {}).get(name, Figures()) for name in scene.parties]
        ends = cells[0].values + cells[-1].values
        k = exponent(sizes[0], sizes[-1], ends)
        measure = f"{row.title.partition(': ')[2]} [{row.unit}]"
        lines.append([measure, *(ranged(cell.values) or cell.why for cell in cells), k])
    family = heading(scene.rows[0]).partition(": ")[0]
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
