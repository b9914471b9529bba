"""Draw what grows as SVG: a panel per family, a line per measure, both axes logarithmic.

Each line is the measure in proportion to its value at the smallest size, so that a power law is a
straight line, and all of them can be compared with the dashed one, which is linear growth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final

from scripts.bench.findings import Curve

WIDTH: Final = 860
HEIGHT: Final = 280
"""Of a panel."""
LEFT, RIGHT, TOP, BOTTOM = 50, 440, 40, 250
"""Where its axes are."""
COLORS: Final = ("#2a6fb0", "#b0472a", "#3c8c3c", "#8a4fb0", "#b08a2a", "#2aa0a0", "#666")
STYLE: Final = (
    "text{font:12px sans-serif;fill:#333}.h{font-size:14px;font-weight:bold}"
    "polyline{fill:none;stroke-width:2}.linear{stroke:#bbb;stroke-dasharray:4}rect{fill:#fff}"
)


def svg(curves: Sequence[Curve]) -> str:
    """Return a drawing of curves, family by family."""
    families = [(name, list(of)) for name, of in groupby(curves, key=lambda curve: curve.family)]
    size = f'width="{WIDTH}" height="{HEIGHT * len(families)}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{STYLE}</style>"]
    parts.append(f"<rect {size}/>")
    for number, (name, of) in enumerate(families):
        parts.append(f'<g transform="translate(0,{number * HEIGHT})">')
        parts += [f'<text class="h" x="10" y="20">{escape(name)}</text>', *_panel(of), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(curves: Sequence[Curve]) -> Iterator[str]:
    sizes = [size for size, _ in curves[0].points]
    # A logarithmic axis has no place for 0.
    drawn = [curve for curve in curves if all(value > 0 for _, value in curve.points)]
    lines = {curve: [value / curve.points[0][1] for _, value in curve.points] for curve in drawn}
    linear = [size / sizes[0] for size in sizes]
    growths = [growth for line in (linear, *lines.values()) for growth in line]
    low, high, width = math.log(min(growths)), math.log(max(growths)), math.log(linear[-1])

    def line(growths: Sequence[float], attributes: str) -> str:
        points = []
        for size, growth in zip(linear, growths, strict=True):
            x = LEFT + (RIGHT - LEFT) * (math.log(size) / width if width else 0.5)
            y = BOTTOM - (BOTTOM - TOP) * ((math.log(growth) - low) / (high - low) if high else 0.5)
            points.append(f"{x:.1f},{y:.1f}")
        return f'<polyline {attributes} points="{" ".join(points)}"/>'

    yield line(linear, 'class="linear"')
    yield f'<text x="{LEFT}" y="{BOTTOM + 20}">{sizes[0]:,} modules</text>'
    yield f'<text x="{RIGHT}" y="{BOTTOM + 20}" text-anchor="end">{sizes[-1]:,}</text>'
    for number, (curve, growths) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        yield line(growths, f'stroke="{color}"')
        words = f"{curve.measure.replace('`', '')}: x {growths[-1]:.3g}"
        at = f'x="{RIGHT + 20}" y="{TOP + 10 + 20 * number}" style="fill:{color}"'
        yield f"<text {at}>{escape(words)}</text>"
