from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import pytest

from scripts.bench.findings import (
    Curve,
    Figures,
    Findings,
    Machine,
    Party,
    from_json,
    to_json,
)
from scripts.bench.page import ONE_CPU, figure, files, page, ranged
from scripts.bench.plot import svg
from scripts.bench.rows import (
    CRASH,
    INVOKE_MANY,
    INVOKE_ONE,
    MCP,
    NODE,
    OURS,
    ROWS,
    S6,
    STREAM,
    TOOL,
    WARM,
    C,
    Sample,
)

MACHINE = Machine("A CPU", 2, 8_000_000_000, "Linux 6", "3.11.7", 0.1)
PARTIES = (Party(OURS, "1"), Party(MCP, None, "no network"))
ROUNDS = tuple(
    (
        Sample(TOOL.title, OURS, ours, cpu_us=700.0),
        Sample(TOOL.title, C, 1.0),
        Sample(WARM.title, OURS, None, "not supported yet"),
        Sample(CRASH.title, OURS, 20.0),
        Sample(CRASH.title, S6, None, "only 0 of 2 processes came"),
    )
    for ours in (1.2, 1.0, 1.4)
)
GROWTH = (
    Curve("modules", "start (`up`)", "s", ((10, 0.05), (100, 0.5))),
    Curve("modules", "memory", "MB", ((10, 40.0), (100, 40.0))),
    Curve("modules", "idle", "%", ((10, 0.0), (100, 0.0))),
)
FOUND = Findings("2030-01-02", MACHINE, PARTIES, quick=False, rounds=ROUNDS, growth=GROWTH)


def test_the_page_has_bounds_verdicts_figures_and_who_is_missing() -> None:
    text = page(FOUND)
    assert "Measured 2030-01-02, 3 rounds: A CPU, 2 cores, 8 GB, Linux 6, Python 3.11.7." in text
    assert "| MCP SDK | missing: no network |" in text
    bound = (
        "| Per-invocation native tool | 1.2 (1-1.4) ms | at most 2.5 x C | 1.2 (1-1.4) x | pass |"
    )
    assert bound in text
    assert "| Crash (SIGKILL) to running again | 20 ms | at most 8 | 20 ms | falls short |" in text
    assert "| stdiod | not supported yet |  |" in text
    assert "| stdiod | 1.2 (1-1.4) |  | 700 |" in text
    assert "| C | 1 | 1.2 (1-1.4) x |  |" in text
    assert "| s6 | only 0 of 2 processes came |  |" in text
    assert f"| {NODE} | missing |  |" in text
    assert "| start (`up`) [s] | 0.05 | 0.5 | 1.00 |" in text
    assert "| idle [%] | 0 | 0 |  |" in text


def test_rows_of_one_call_at_a_time_say_that_they_were_measured_on_one_cpu() -> None:
    alone = {row.title for row in ROWS if row.one_cpu}
    assert alone == {
        row.title for row in ROWS if "one at a time" in row.title and row.unit == "calls/s"
    }
    rounds = ((Sample(INVOKE_ONE.title, OURS, 1.0), Sample(INVOKE_MANY.title, OURS, 1.0)),)
    assert page(msgspec.structs.replace(FOUND, rounds=rounds)).count(ONE_CPU) == 1


def test_the_page_names_the_rows_that_a_run_left_out() -> None:
    (line,) = (
        one for one in page(FOUND).splitlines() if one.startswith("Not measured in this run")
    )
    assert STREAM.title in line
    assert CRASH.title not in line


@pytest.mark.parametrize(("load", "busy"), [(0.9, False), (1.1, True)])
def test_the_page_says_when_the_machine_was_busy(load: float, busy: bool) -> None:
    machine = Machine("A CPU", 2, 8_000_000_000, "Linux 6", "3.11.7", load)
    found = Findings("2030-01-02", machine, PARTIES, quick=False, rounds=ROUNDS)
    assert ("was busy with other things" in page(found)) is busy


def test_the_page_says_when_it_was_a_quick_run() -> None:
    found = Findings("2030-01-02", MACHINE, PARTIES, quick=True, rounds=ROUNDS)
    assert "**A quick run**" in page(found)
    assert "**A quick run**" not in page(FOUND)


def test_the_json_is_enough_to_write_all_again() -> None:
    assert from_json(to_json(FOUND)) == FOUND
    texts = files(FOUND)
    assert list(texts) == ["benchmarks.md", "benchmarks.json", "benchmarks-scale.svg"]
    assert texts == files(from_json(texts["benchmarks.json"]))


def test_a_power_law_is_found_from_the_first_and_the_last_size() -> None:
    start, memory, idle = GROWTH
    assert start.exponent == pytest.approx(1.0)
    assert memory.exponent == pytest.approx(0.0)
    assert idle.exponent is None
    assert Curve("modules", "start", "s", ((10, 1.0),)).exponent is None


def test_the_plot_has_a_line_per_measure_within_its_drawing_and_one_of_linear_growth() -> None:
    root = ET.fromstring(svg(GROWTH))
    space = "{http://www.w3.org/2000/svg}"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    lines = [line.attrib["points"].split() for line in root.iter(f"{space}polyline")]
    assert len(lines) == 3  # nought has no place on a logarithmic axis
    assert lines[1] == lines[0] != lines[2]
    for x, y in (map(float, point.split(",")) for line in lines for point in line):
        assert 0 < x < width
        assert 0 < y < height
    words = [text.text for text in root.iter(f"{space}text")]
    assert words == ["modules", "10 modules", "100", "start (up): x 10", "memory: x 1"]


def test_a_plot_of_one_size_is_drawn() -> None:
    assert svg([Curve("modules", "start", "s", ((10, 1.0),))]).count("<polyline") == 2


def test_there_is_no_plot_of_nothing() -> None:
    found = msgspec.structs.replace(FOUND, growth=())
    assert list(files(found)) == ["benchmarks.md", "benchmarks.json"]


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
    assert ranged(Figures(2.0, 1.0, 3.0)) == "2 (1-3)"
    assert ranged(Figures(2.0, 2.0, 2.0)) == "2"
