"""Figures as the lines of a screen, or as a plain table.

On a narrow screen long names are cut, then columns are left out in the order of `_LEAVE_OUT`; the
trend takes the rest of the width. The screen cuts lines that are too long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import click
import msgspec

from supervisor.cli.quantities import count, duration, held_words, latency, size, stall_words
from supervisor.cli.terminal import (
    GAP,
    cells,
    column_widths,
    dim,
    one_line,
    row_width,
    state_word,
    table_line,
)
from supervisor.cli.top.figures import Figures, ModuleFigures, Order, Trend, in_order

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.:-=+*#"
"""For a terminal whose encoding has no blocks."""


def sparkline(values: Sequence[float | None], width: int, bars: str = BLOCKS) -> str:
    """Draw the last `width` values, the newest at the right end.

    The largest has the full height. 0 has the lowest bar; None is blank.
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


_NONE = "-"
_NAME, _STATE = "NAME", "STATE"
TREND = "TREND"
COLUMNS: dict[str, Callable[[ModuleFigures], str]] = {
    _NAME: lambda one: one_line(one.name),
    _STATE: lambda one: one.state,
    "CALLS/S": lambda one: rate(one.invocations_per_s),
    "FAIL/S": lambda one: rate(one.failures_per_s),
    "P50": lambda one: _NONE if one.p50_ms is None else latency(one.p50_ms),
    "P99": lambda one: _NONE if one.p99_ms is None else latency(one.p99_ms),
    "CPU": lambda one: _NONE if one.cpu_percent is None else f"{one.cpu_percent:.0f}%",
    "RSS": lambda one: _NONE if one.rss_bytes is None else size(one.rss_bytes),
    "RESTARTS": lambda one: str(one.restarts),
    "IN-FLIGHT/QUEUED": lambda one: f"{one.in_flight}/{one.queued}",
}
_RIGHT = COLUMNS.keys() - {_NAME, _STATE}
_LEAVE_OUT = (
    "IN-FLIGHT/QUEUED", TREND, "P50", "RESTARTS", "FAIL/S", "P99", "RSS", "CPU", "CALLS/S", _STATE,
)  # fmt: skip
_NARROW = {_STATE: 8, "CALLS/S": 7, "FAIL/S": 6, "P50": 6, "P99": 6, "CPU": 4, "RSS": 8, TREND: 6}
"""Wide enough for usual figures, so that columns do not move as they change."""
_NARROW_NAME = 12
"""Names are cut to this before a column is left out."""
_WIDE_TREND = 60

_MARK, _NO_MARK = "> ", "  "
"""The mark of the selected module and of all others: colours may be off."""

_LINES_AROUND = 5
"""The lines above and below the modules."""
_ROOMY = 60
"""On a narrower screen, keys stand closer together."""


class Look(msgspec.Struct, kw_only=True):
    interval_s: float
    order: Order = Order.TROUBLE
    top_row: int = 0
    """The number of rows scrolled away."""
    selected: str | None = None
    """The selected module; None for the first."""
    message: str = ""
    """An error, the result of a key, or a question."""
    bars: str = BLOCKS


def view(
    now: Figures, trend: Callable[[str], Trend], look: Look, width: int, height: int
) -> list[str]:
    """Return the lines of a screen, at most `height`."""
    rows = in_order(now.modules, look.order)
    at = selected_row(rows, look.selected)
    first = first_row(look.top_row, at, len(rows), height)
    shown = rows[first : first + rows_shown(height)]
    keys = [f"s sort: {look.order}", "r restart", "l logs", "q quit"]
    if len(rows) > len(shown):
        keys.append(f"up, down: {first + 1 if shown else 0}-{first + len(shown)} of {len(rows)}")
    lines = [
        click.style(_daemon(now), bold=True),
        _summary(now),
        attention(look.message),
        *_screen_table(shown, rows, trend, look.bars, width - len(_MARK), marked=at - first),
    ]
    return page(lines, [*keys, f"every {look.interval_s:g} s"], width, height)


def attention(message: str) -> str:
    return click.style(one_line(message), fg="yellow") if message else ""


def page(lines: list[str], keys: Sequence[str], width: int, height: int) -> list[str]:
    """Return `height` lines, the last one with as many keys as there is room for."""
    gap = GAP if width >= _ROOMY else " "
    said, *others = keys
    for one in others:
        if cells(said + gap + one) > width:
            break
        said += gap + one
    blank = [""] * (height - 1 - len(lines))
    return [*(lines + blank)[: max(0, height - 1)], dim(said)]


def rows_shown(height: int) -> int:
    """Return the number of modules that fit on a screen."""
    return max(0, height - _LINES_AROUND)


def selected_row(rows: Sequence[ModuleFigures], selected: str | None) -> int:
    """Return the row of the selected module; the first if it is gone."""
    return next((number for number, one in enumerate(rows) if one.name == selected), 0)


def first_row(wanted: int, selected: int, rows: int, height: int) -> int:
    """Return the first visible row: the selected one is visible, and the last page is full."""
    room = rows_shown(height)
    first = max(0, min(wanted, rows - room))
    return min(max(first, selected - room + 1), selected)


def table(now: Figures) -> str:
    """Return the figures for a script: always the same columns, as wide as necessary."""
    rows = [_row(one) for one in in_order(now.modules, Order.TROUBLE)]
    widths = column_widths(COLUMNS, rows)
    line = partial(table_line, COLUMNS, widths, right=_RIGHT)
    return "\n".join([_daemon(now), _summary(now), "", line(), *map(line, rows)])


def _row(one: ModuleFigures) -> dict[str, str]:
    return {name: cell(one) for name, cell in COLUMNS.items()}


def _daemon(now: Figures) -> str:
    memory = "" if now.rss_bytes is None else f", {size(now.rss_bytes)}"
    stall = stall_words(now.longest_stall)
    stalled = "" if stall is None else f", {one_line(stall)}"
    held = held_words(now.held_bytes)
    holds = "" if held is None else f", {one_line(held)}"
    project = f" of {one_line(now.project)}" if now.project else ""
    up = f"stdiod {now.version}{project}, pid {now.pid}, up {duration(now.uptime_s)}"
    return f"{up}{memory}{holds}{stalled}"


def _summary(now: Figures) -> str:
    states = Counter(one.state for one in now.modules)
    parts = [f"{number} {state}" for state, number in states.most_common()]
    if now.quarantined:
        parts.append(f"{count(now.quarantined, 'descriptor')} quarantined")
    text = count(len(now.modules), "module")
    text = f"{text}: {', '.join(parts)}" if parts else text
    if now.interval_s is None:
        return text
    calls, failures = rate(now.invocations_per_s), rate(now.failures_per_s)
    return f"{text}; {calls} calls/s, {failures} failures/s"


def _screen_table(
    shown: Sequence[ModuleFigures],
    rows: Sequence[ModuleFigures],
    trend: Callable[[str], Trend],
    bars: str,
    width: int,
    *,
    marked: int,
) -> Iterator[str]:
    """Yield the title and the rows; all rows set the widths, so that scrolling moves no column."""
    widest = column_widths(COLUMNS, [_row(one) for one in rows])
    widths = {name: max(_NARROW.get(name, 0), widest[name]) for name in COLUMNS}
    columns = _layout(widths, width)
    yield dim(_NO_MARK + table_line(columns, widths, right=_RIGHT))
    for number, one in enumerate(shown):
        row = {**_row(one), TREND: sparkline(trend(one.name), widths[TREND], bars)}
        paint = partial(_in_colour, fails=bool(one.failures_per_s))
        mark = _MARK if number == marked else _NO_MARK
        yield mark + table_line(columns, widths, row, right=_RIGHT, paint=paint)


def _layout(widths: dict[str, int], width: int) -> list[str]:
    """Choose the columns; sets the widths of name and trend."""
    columns = [*COLUMNS, TREND]
    widths[TREND] = _NARROW[TREND]
    full = widths[_NAME]
    for name in (None, *_LEAVE_OUT):
        if name is not None:
            columns.remove(name)
        room_for_name = width - (row_width(columns, widths) - full)
        if room_for_name >= min(full, _NARROW_NAME):
            widths[_NAME] = min(full, room_for_name)
            widths[TREND] = min(_WIDE_TREND, widths[TREND] + width - row_width(columns, widths))
            return columns
    widths[_NAME] = max(0, width)
    return columns


def _in_colour(column: str, text: str, *, fails: bool) -> str:
    if column == _STATE:
        return state_word(text)
    return click.style(text, fg="red") if column == "FAIL/S" and fails else text


def rate(per_s: float | None) -> str:
    """Write a rate so that small ones are not 0: 0, 0.25, 12.3, 1234."""
    if per_s is None:
        return _NONE
    for digits, below in ((2, 10), (1, 1000)):
        if 0 < per_s < below and round(per_s, digits) < below:
            return f"{per_s:.{digits}f}"
    return f"{per_s:.0f}"
