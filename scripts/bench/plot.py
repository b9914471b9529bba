"""Draw curves as SVG: a panel per measure, both axes logarithmic, so that a power law is a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from scripts.bench.findings import Curve, figure

PANEL_WIDTH: Final = 300
PANEL_HEIGHT: Final = 200
COLUMNS: Final = 3
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 44, 34
MARGIN: Final = 10
HEADING: Final = 30
STYLE: Final = (
    "text{font:11px sans-serif;fill:#333}.h{font-size:14px;font-weight:bold}"
    ".t{font-size:12px}.x{text-anchor:middle}.y{text-anchor:end}"
    "line{stroke:#ddd}polyline{fill:none;stroke:#2a6fb0;stroke-width:2}circle{fill:#2a6fb0}"
    "rect{fill:#fff}"
)


def svg(curves: Sequence[Curve]) -> str:
    """Return a drawing of curves, family by family; raises `ValueError` where there is none."""
    if not curves:
        raise ValueError("there is nothing to draw")
    families = list(dict.fromkeys(curve.family for curve in curves))
    parts: list[str] = []
    top = 0
    for family in families:
        panels = [curve for curve in curves if curve.family == family]
        parts.append(_text(MARGIN, top + 20, "h", family))
        for number, curve in enumerate(panels):
            left = number % COLUMNS * PANEL_WIDTH
            down = top + HEADING + number // COLUMNS * PANEL_HEIGHT
            parts.append(f'<g transform="translate({left},{down})">')
            parts += _panel(curve)
            parts.append("</g>")
        top += HEADING + math.ceil(len(panels) / COLUMNS) * PANEL_HEIGHT
    width = COLUMNS * PANEL_WIDTH
    size = f'width="{width}" height="{top}" viewBox="0 0 {width} {top}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{top}"/>',
    )
    return "\n".join([*head, *parts, "</svg>", ""])


def _panel(curve: Curve) -> Iterator[str]:
    sizes = [size for size, _ in curve.points]
    drawn = [(size, value) for size, value in curve.points if value > 0]
    k = curve.exponent
    words = [curve.unit, *([] if k is None else [f"~ n^{k:.2f}"])]
    # A logarithmic axis has no place for it.
    words += [f"0 at {size:,}" for size, value in curve.points if value <= 0]
    yield _text(MARGIN, 18, "t", curve.measure)
    yield _text(MARGIN, 32, "t", ", ".join(words))
    if not drawn:
        return
    ticks = _decades([value for _, value in drawn])
    across = _Axis(sizes, LEFT, PANEL_WIDTH - RIGHT)
    up = _Axis(ticks, PANEL_HEIGHT - BOTTOM, TOP)
    for tick in ticks:
        yield _line(LEFT, up.at(tick), PANEL_WIDTH - RIGHT, up.at(tick))
        yield _text(LEFT - 6, up.at(tick) + 4, "y", figure(tick))
    for size in sizes:
        yield _line(across.at(size), TOP, across.at(size), PANEL_HEIGHT - BOTTOM)
        yield _text(across.at(size), PANEL_HEIGHT - BOTTOM + 16, "x", f"{size:,}")
    dots = [(across.at(size), up.at(value)) for size, value in drawn]
    yield f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in dots)}"/>'
    for (x, y), (size, value) in zip(dots, drawn, strict=True):
        label = f"<title>{size:,}: {figure(value)} {curve.unit}</title>"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5">{label}</circle>'


class _Axis:
    """Map values to places, by their logarithm."""

    def __init__(self, values: Iterable[float], begin: float, end: float) -> None:
        logs = [math.log10(value) for value in values]
        self._low, self._high, self._begin, self._end = min(logs), max(logs), begin, end

    def at(self, value: float) -> float:
        width = self._high - self._low
        share = (math.log10(value) - self._low) / width if width else 0.5
        return self._begin + share * (self._end - self._begin)


def _decades(values: Sequence[float]) -> list[float]:
    """Return the powers of ten around values, two at least."""
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)
    return [10.0**power for power in range(low, high + 1)]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, kind: str, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words.replace("`", ""))}</text>'
