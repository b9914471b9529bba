from __future__ import annotations

import msgspec
import pytest

from scripts.bench.page import (
    Findings,
    Sample,
    exponent,
    figure,
    files,
    from_json,
    page,
    ranged,
    to_json,
)
from scripts.bench.table import OURS, SCENES

STREAM = "event stream of one module, validated, to one subscriber"
ONE = "invoke, one at a time, in process"
MANY = "invoke, 64 at a time, in process"
TOOL = "per-invocation native tool"
WARM = "per-invocation Python tool, warm"
CRASH = "crash (SIGKILL) to running again"

ONE_CPU = "all processes of a party share one CPU"

MACHINE = "A CPU, 2 cores, 8 GB, Linux 6, Python 3.11.7"
PARTIES = {OURS: "1", "MCP SDK": "missing: no network"}
ROUNDS = tuple(
    (
        Sample(TOOL, OURS, ours, cpu_us=700.0),
        Sample(TOOL, "C", 1.0),
        Sample(WARM, OURS, None, "not supported yet"),
        Sample(CRASH, OURS, 20.0),
        Sample(CRASH, "s6", None, "only 0 of 2 processes came"),
    )
    for ours in (1.2, 1.0, 1.4)
)
GROWING = next(scene for scene in SCENES if scene.grows)
START, MEMORY, IDLE, *_ = GROWING.rows
GROWTH = tuple(
    Sample(row.title, name, value)
    for row, values in ((START, (0.05, 0.1, 0.2)), (MEMORY, (40.0,) * 3), (IDLE, (0.0,) * 3))
    for name, value in zip(GROWING.who(), values, strict=True)
)
FOUND = Findings("2030-01-02", MACHINE, 2, 0.1, PARTIES, False, (ROUNDS[0] + GROWTH, *ROUNDS[1:]))


def test_the_page_has_bounds_verdicts_figures_and_who_is_missing() -> None:
    text = page(FOUND)
    assert "Measured 2030-01-02, 3 rounds: A CPU, 2 cores, 8 GB, Linux 6, Python 3.11.7." in text
    assert "| MCP SDK | missing: no network |" in text
    assert "| Per-invocation native tool | at most 2.5 x C | 1.2 (1-1.4) x | pass |" in text
    assert "| Crash (SIGKILL) to running again | at most 8 | 20 ms | falls short |" in text
    assert "| stdiod | not supported yet |" in text
    assert "| stdiod | 1.2 |  | 700 |" in text
    assert "| C | 1 | 1.2 x |  |" in text
    assert "| s6 | only 0 of 2 processes came |" in text
    assert "| Node | missing |" in text
    assert "| start (`stdiod up`) [s] | 0.05 | 0.1 | 0.2 | 1.00 |" in text
    assert "| idle CPU [%] | 0 | 0 | 0 |  |" in text


def test_rows_of_one_call_at_a_time_say_that_all_of_a_party_share_a_cpu() -> None:
    rows = {row.title: scene for scene in SCENES if not scene.grows for row in scene.rows}
    found = msgspec.structs.replace(FOUND, rounds=(tuple(Sample(row, OURS, 1.0) for row in rows),))
    _, _, *sections = page(found).split("\n## ")
    assert [one.partition("\n")[0].lower() for one in sections] == [one.lower() for one in rows]
    assert [ONE_CPU in one for one in sections] == [scene.one_cpu for scene in rows.values()]


def test_the_page_names_the_rows_that_a_run_left_out() -> None:
    (line,) = (
        one for one in page(FOUND).splitlines() if one.startswith("Not measured in this run")
    )
    assert STREAM in line
    assert CRASH not in line


@pytest.mark.parametrize(("load", "busy"), [(0.9, False), (1.1, True)])
def test_the_page_says_when_the_machine_was_busy(load: float, busy: bool) -> None:
    found = msgspec.structs.replace(FOUND, load=load)
    assert ("was busy with other things" in page(found)) is busy


def test_the_page_says_when_it_was_a_quick_run() -> None:
    found = msgspec.structs.replace(FOUND, quick=True)
    assert "**A quick run**" in page(found)
    assert "**A quick run**" not in page(FOUND)


def test_the_json_is_enough_to_write_all_again() -> None:
    assert from_json(to_json(FOUND)) == FOUND
    texts = files(FOUND)
    assert texts == files(from_json(texts["benchmarks.json"]))


@pytest.mark.parametrize(
    ("values", "k"),
    [((0.05, 0.5), "1.00"), ((40.0, 40.0), "0.00"), ((0.0, 0.0), ""), ((1.0,), "")],
)
def test_a_power_law_is_found_from_the_first_and_the_last_size(
    values: tuple[float, ...], k: str
) -> None:
    assert exponent("100", "1,000", values) == k


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.0, "1"),
        (123.4, "123"),
        (999.4, "999"),
        (999.9, "1,000"),
        (12345, "12,345"),
    ],
)
def test_figures_have_three_digits(value: float, words: str) -> None:
    assert figure(value) == words


def test_a_range_that_is_none_is_not_shown() -> None:
    assert ranged([2.0, 1.0, 3.0], "ms", whole=True) == "2 (1-3) ms"
    assert ranged([2.0, 2.0]) == "2"
    assert ranged([]) == ""
