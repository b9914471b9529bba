"""Turn samples into a table for people, JSON for programs, and a part of docs/faults.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scripts.compare.faults import FAULTS, Fault, Value

OURS = "stdiod"
BEGIN = "<!-- comparison: written by scripts/compare_supervisors.py --write -->"
END = "<!-- /comparison -->"
CLEARLY = 1.1
"""A figure has to be better by this factor to be called better: less is the machine's mood."""

Samples = Mapping[str, Mapping[str, Sequence[Value]]]
"""Fault, supervisor, and one value per round."""


class Machine(NamedTuple):
    """Where and when it was measured, and what."""

    date: str
    machine: str
    rounds: int
    versions: Mapping[str, str]
    missing: Sequence[str]


def middle(values: Sequence[Value]) -> Value:
    """Return the median of numbers; words are counted, and a rare one is not hidden."""
    numbers = [value for value in values if isinstance(value, float | int)]
    if len(numbers) == len(values):
        return statistics.median(numbers)
    words = sorted({str(value) for value in values})
    return words[0] if len(words) == 1 else " or ".join(words)


def shown(fault: Fault, values: Sequence[Value]) -> str:
    """Write what was measured for a cell: the median, and the range where there is one."""
    if not values:
        return ""
    found = middle(values)
    if isinstance(found, str):
        return found
    low, high = _figure(min(_numbers(values))), _figure(max(_numbers(values)))
    text = f"{_figure(found)} {fault.unit}".rstrip()
    return text if low == high else f"{text} ({low} to {high})"


def better_than_ours(fault: Fault, samples: Mapping[str, Sequence[Value]]) -> list[str]:
    """Return who did clearly better than stdiod."""
    if not samples.get(OURS):
        return []
    ours = rank(fault, middle(samples[OURS]))
    ranks = {peer: rank(fault, middle(values)) for peer, values in samples.items() if values}
    return [peer for peer, one in ranks.items() if one * CLEARLY < ours]


def rank(fault: Fault, value: Value) -> float:
    """Return a number that is lower for a better value."""
    if isinstance(fault.best, tuple):
        return float(fault.best.index(value)) if value in fault.best else float("inf")
    return float(value) if isinstance(value, float | int) else float("inf")


def table(samples: Samples, machine: Machine) -> str:
    """Return a Markdown table, which is a table for people too."""
    peers = list(machine.versions)
    rows = [["Fault", *peers], ["---"] * (len(peers) + 1)]
    for fault in FAULTS:
        found = samples.get(fault.key)
        if found:
            rows.append([fault.title, *(shown(fault, found.get(peer, ())) for peer in peers)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def words(samples: Samples, machine: Machine) -> str:
    """Say what was measured, where, and who is better at what."""
    versions = ", ".join(f"{peer} {version}" for peer, version in machine.versions.items())
    rounds = f"{machine.rounds} round" + "s" * (machine.rounds > 1)
    text = f"Measured {machine.date} on {machine.machine}, {rounds}: {versions}."
    if machine.missing:
        text += f" Not installed: {', '.join(machine.missing)}."
    lines = [text, "", table(samples, machine), ""]
    better = [
        f"- {fault.title}: {', '.join(found)}"
        for fault in FAULTS
        if (found := better_than_ours(fault, samples.get(fault.key, {})))
    ]
    if better:
        lines += ["Better than stdiod, by more than a tenth:", "", *better]
    else:
        lines += ["In no row was another one better than stdiod by more than a tenth."]
    return "\n".join(lines)


def document(samples: Samples, machine: Machine) -> dict[str, Any]:
    """Return everything for programs."""
    return {
        **machine._asdict(),
        "faults": [
            {
                "key": fault.key,
                "title": fault.title,
                "unit": fault.unit,
                "samples": samples[fault.key],
                "better": better_than_ours(fault, samples[fault.key]),
            }
            for fault in FAULTS
            if fault.key in samples
        ],
    }


def from_document(found: Mapping[str, Any]) -> tuple[Samples, Machine]:
    """Return what `document` was made of."""
    samples = {fault["key"]: fault["samples"] for fault in found["faults"]}
    return samples, Machine(**{name: found[name] for name in Machine._fields})


def written_into(page: str, text: str) -> str:
    """Return a page with what stands between the markers replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no markers for the comparison")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _numbers(values: Sequence[Value]) -> list[float]:
    return [value for value in values if isinstance(value, float | int)]


def _figure(number: float) -> str:
    if number == int(number) or number >= 100:  # noqa: PLR2004 - three digits are enough
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2g}"  # noqa: PLR2004
