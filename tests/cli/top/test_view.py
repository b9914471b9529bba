from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.quantities import latency
from supervisor.cli.terminal import cells
from supervisor.cli.top.figures import Figures, Order, Trend, figures
from supervisor.cli.top.view import (
    BLOCKS,
    PLAIN,
    Look,
    first_row,
    rate,
    sparkline,
    table,
    view,
)
from tests.cli.top.statuses import module, status

NAMES = ["blobs", "a-module-with-quite-a-long-name-of-its-own", "\u6f22\u5b57", "kv"]


def fleet(*names: str) -> Figures:
    before = status(*map(module, names), uptime_s=1.0)
    after = status(
        *(
            module(
                name,
                invocations=number * 100,
                failures=number,
                histogram=[(64 << number, number)] if number else [],
                restarts=9 - number,
                state="failed" if number == 1 else "ready",
                instances=[{"id": "x#1", "rss_bytes": number << 20, "cpu_s": number / 2}],
            )
            for number, name in enumerate(names)
        ),
        uptime_s=3.0,
    )
    return figures(before, after)


def rising(name: str) -> Trend:
    return tuple(map(float, range(60)))


def shown(now: Figures, width: int = 120, height: int = 20, **look: Any) -> list[str]:
    lines = view(now, rising, Look(interval_s=1.0, **look), width, height)
    return [click.unstyle(line) for line in lines]


def test_a_stall_that_others_can_have_noticed_stands_in_the_first_line() -> None:
    before, after = status(uptime_s=1.0), status(uptime_s=3.0)
    after["daemon"]["longest_stall"] = {"ms": 80.0, "culprit": None, "doing": None, "ts": 1.0}
    now = figures(before, after)
    assert shown(now)[0].endswith(", longest stall 80.0ms")
    after["daemon"]["longest_stall"]["ms"] = 20.0
    assert "stall" not in shown(figures(before, after))[0]


def test_what_is_held_for_others_stands_in_the_first_line_with_who_has_most() -> None:
    before, after = status(uptime_s=1.0), status(uptime_s=3.0)
    most = {"party": "client 7", "total": 30 << 20}
    held = {"total": 45 << 20, "limit": 256 << 20, "parties": [most, {"party": "client 8"}]}
    after["daemon"]["held_bytes"] = held
    now = figures(before, after)
    assert now.held_bytes == {"total": 45 << 20, "limit": 256 << 20, "parties": [most]}
    assert ", holds 45.0 MiB of 256.0 MiB for others, most for client 7" in shown(now)[0]
    held["total"] = 1000
    assert "holds" not in shown(figures(before, after))[0]


@given(
    width=st.integers(16, 200),
    height=st.integers(1, 60),
    names=st.lists(st.sampled_from(NAMES), unique=True),
    order=st.sampled_from(Order),
    top_row=st.integers(0, 9),
    selected=st.sampled_from([None, "kv", "nobody"]),
)
def test_a_page_fills_the_screen_and_no_row_is_wider(
    *, width: int, height: int, names: list[str], **look: Any
) -> None:
    lines = shown(fleet(*names), width, height, **look)
    assert len(lines) == height
    assert all(cells(line) <= width for line in lines[3:-1])


def test_a_wide_screen_has_everything() -> None:
    lines = shown(fleet("dice", "kv"))
    assert lines[0] == "stdiod 0.1.0, pid 99, up 3.0s, 1 B"
    assert lines[1] == "2 modules: 1 ready, 1 failed; 50.0 calls/s, 0.50 failures/s"
    assert lines[3].split() == [
        "NAME", "STATE", "CALLS/S", "FAIL/S", "P50", "P99", "CPU", "RSS", "RESTARTS",
        "IN-FLIGHT/QUEUED", "TREND",
    ]  # fmt: skip
    *figures_of_kv, trend = lines[4].split()
    assert figures_of_kv == [
        ">", "kv", "failed", "50.0", "0.50", "0.14ms", "0.14ms", "25%", "1.0", "MiB", "8", "0/0",
    ]  # fmt: skip
    assert trend.endswith("▇█████")
    assert lines[5].startswith("  dice ")
    assert lines[-1] == "s sort: trouble  r restart  l logs  q quit  every 1 s"


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, "NAME STATE CALLS/S FAIL/S P50 P99 CPU RSS RESTARTS"),
        (60, "NAME STATE CALLS/S FAIL/S P99 CPU RSS"),
        (40, "NAME STATE CALLS/S CPU"),
        (24, "NAME STATE"),
        (12, "NAME"),
    ],
)
def test_a_narrow_screen_leaves_columns_out(width: int, columns: str) -> None:
    assert " ".join(shown(fleet("dice"), width)[3].split()) == columns


def test_a_long_name_is_cut_before_a_column_is_left_out() -> None:
    lines = shown(fleet("a-module-with-quite-a-long-name-of-its-own"), 76)
    assert lines[4].startswith("> a-module-")
    assert ".. " in lines[4]
    assert "P99" in lines[3]


def test_modules_that_have_no_room_are_scrolled_to() -> None:
    names = [f"m{number:02}" for number in range(30)]
    first = shown(fleet(*names), 120, 15, order=Order.NAME)
    assert [line[2:].split()[0] for line in first[4:-1]] == names[:10]
    assert "1-10 of 30" in first[-1]
    last = shown(fleet(*names), 120, 15, order=Order.NAME, top_row=99, selected="m25")
    assert [line[2:].split()[0] for line in last[4:-1]] == names[-10:]
    assert [line[2:].split()[0] for line in last if line.startswith("> ")] == ["m25"]
    assert "21-30 of 30" in last[-1]
    assert first_row(-5, 0, 30, 15) == first_row(7, 2, 3, 15) == 0


def test_the_module_that_keys_are_about_is_always_in_sight() -> None:
    assert first_row(0, 29, 30, 15) == 20
    assert first_row(25, 3, 30, 15) == 3
    assert first_row(4, 9, 30, 15) == 4
    assert first_row(0, 0, 0, 2) == 0


@pytest.mark.parametrize(
    ("order", "first"),
    [
        (Order.TROUBLE, "b"),
        (Order.NAME, "a"),
        (Order.RATE, "c"),
        (Order.FAILURES, "c"),
        (Order.P99, "c"),
        (Order.CPU, "c"),
        (Order.MEMORY, "c"),
        (Order.RESTARTS, "a"),
    ],
)
def test_the_order_puts_what_asks_for_attention_first(order: Order, first: str) -> None:
    assert shown(fleet("a", "b", "c"), order=order)[4].split()[:2] == [">", first]


def test_the_orders_come_round() -> None:
    order, seen = Order.TROUBLE, []
    for _ in Order:
        seen.append(order)
        order = order.following
    assert order is Order.TROUBLE
    assert seen == list(Order)


def test_a_message_stands_above_the_last_figures() -> None:
    lines = shown(fleet("dice"), message="no daemon\nlistens")
    assert lines[2] == "no daemon listens"
    assert lines[4].startswith("> dice")


def test_text_of_a_module_cannot_steer_the_screen() -> None:
    nasty = fleet("a\x1b[2Jb\r\n")
    for page in ("".join(shown(nasty)), table(nasty).replace("\n", "")):
        assert not set(page) & set("\x1b\r\n")


def test_what_is_not_known_is_a_dash() -> None:
    now = figures(None, status(module(instances=[])))
    assert shown(now)[1] == "1 module: 1 ready"
    assert shown(now)[4].split()[:11] == [">", "dice", "ready", *"------", "0", "0/0"]


def test_the_table_for_scripts_has_the_same_columns_always() -> None:
    lines = table(fleet("dice")).splitlines()
    assert len(lines[3].split()) == len(lines[4].split()) - 1 == 10  # "0 B" has a space
    empty = table(fleet()).splitlines()
    assert empty[3].split() == lines[3].split()


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ((), 3, "   "),
        ((0.0, 0.0), 3, " ▁▁"),
        ((None, 0.0, 7.0), 3, " ▁█"),
        ((9.0, 0.001, 1.0, 4.0, 7.0), 4, "▂▂▅█"),
        ((1.0,), 0, ""),
    ],
)
def test_a_sparkline_shows_the_newest_at_its_right_end(
    values: Trend, width: int, drawn: str
) -> None:
    assert sparkline(values, width) == drawn
    plain = drawn.translate(str.maketrans(BLOCKS, PLAIN))
    assert sparkline(values, width, PLAIN) == plain


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(None, "-"), (0, "0"), (0.25, "0.25"), (9.999, "10.0"), (123.44, "123.4"), (999.96, "1000")],
)
def test_small_rates_are_not_0(per_s: float | None, text: str) -> None:
    assert rate(per_s) == text


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0.214, "0.21ms"), (0.999, "1.0ms"), (99.97, "100ms"), (3210.0, "3.2s")],
)
def test_latencies_are_in_the_unit_that_fits(value_ms: float, text: str) -> None:
    assert latency(value_ms) == text
