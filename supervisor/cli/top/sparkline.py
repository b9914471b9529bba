"""Draw a row of figures as a row of bars, one cell each."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.:-=+*#"
"""For a terminal whose encoding has no blocks."""


def sparkline(values: Sequence[float | None], width: int, bars: str = BLOCKS) -> str:
    """Draw the last `width` values, the newest at the right end; the largest has the full height.

    Nothing but 0 has the lowest bar; what is not known (None) is blank.
    """
    shown = values[-width:] if width > 0 else ()
    highest = max((value for value in shown if value is not None), default=0.0)
    return "".join(_bar(value, highest, bars) for value in shown).rjust(max(0, width))


def _bar(value: float | None, highest: float, bars: str) -> str:
    if value is None:
        return " "
    if value <= 0:
        return bars[0]
    steps = len(bars) - 1
    return bars[max(1, min(steps, round(value / highest * steps)))]
