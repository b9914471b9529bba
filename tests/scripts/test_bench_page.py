from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from scripts.bench.findings import (
    IDLE,
    MEMORY,
    RUNNING,
    START,
    Figures,
    Findings,
    Machine,
    Party,
    Point,
    curves,
    figure,
    from_json,
    ranged,
    to_json,
)
from scripts.bench.page import ONE_CPU, files, page, write
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
    Share,
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
POINTS = (
    Point(RUNNING, START, 100, 0.5),
    Point(RUNNING, START, 10, 0.05),
    Point(RUNNING, MEMORY, 10, 40.0),
    Point(RUNNING, MEMORY, 100, 40.0),
    Point(RUNNING, IDLE, 10, 0.0),
    Point(RUNNING, IDLE, 100, 0.0),
)
SHARES = (
    Share(TOOL.title, "trio", 200.0, "trio/_core/_run.py: unrolled_run"),
    Share(TOOL.title, "who asks", 100.0),
    Share(TOOL.title, "trio", 100.0),
)
FOUND = Findings(
    "2030-01-02", MACHINE, PARTIES, quick=False, rounds=ROUNDS, points=POINTS, shares=SHARES
)


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
    assert "Bound: at most 8: **falls short**." in text
    for line in ("| trio | 300 | 75 |", "| who asks | 100 | 25 |", "| all | 400 |  |"):
        assert line in text


def test_a_row_that_falls_short_comes_with_the_functions_that_take_its_time() -> None:
    line = "| `trio/_core/_run.py: unrolled_run` | 200 | 50 |"
    assert line not in page(FOUND)
    slow = (Sample(TOOL.title, OURS, 9.0), Sample(TOOL.title, C, 1.0))
    assert line in page(msgspec.structs.replace(FOUND, rounds=(slow,)))


def test_rows_of_one_call_at_a_time_say_that_they_were_measured_on_one_cpu() -> None:
    alone = {row.title for row in ROWS if row.one_cpu}
    assert alone == {
        row.title for row in ROWS if "one at a time" in row.title and row.unit == "calls/s"
    }
    rounds = ((Sample(INVOKE_ONE.title, OURS, 1.0), Sample(INVOKE_MANY.title, OURS, 1.0)),)
    found = msgspec.structs.replace(FOUND, rounds=rounds)
    assert ONE_CPU not in page(found)
    assert page(msgspec.structs.replace(found, pinned=True)).count(ONE_CPU) == 1


def test_the_page_names_the_rows_that_a_run_left_out() -> None:
    (line,) = (
        one for one in page(FOUND).splitlines() if one.startswith("Not measured in this run")
    )
    assert STREAM.title in line
    assert CRASH.title not in line


@pytest.mark.parametrize(("load", "busy"), [(0.9, False), (1.1, True)])
def test_the_page_says_when_the_machine_was_busy(load: float, busy: bool) -> None:
    machine = Machine("A CPU", 2, 8_000_000_000, "Linux 6", "3.11.7", load)
    found = Findings("2030-01-02", machine, PARTIES, quick=False, rounds=ROUNDS, points=())
    assert ("was busy with other things" in page(found)) is busy


def test_the_page_says_when_it_was_a_quick_run() -> None:
    found = Findings("2030-01-02", MACHINE, PARTIES, quick=True, rounds=ROUNDS, points=())
    assert "**A quick run**" in page(found)
    assert "**A quick run**" not in page(FOUND)


def test_the_json_is_enough_to_write_all_again(tmp_path: Path) -> None:
    assert from_json(to_json(FOUND)) == FOUND
    written = write(FOUND, tmp_path)
    texts = {path.name: path.read_text(encoding="utf-8") for path in written}
    assert texts == files(from_json(texts["benchmarks.json"]))


def test_a_power_law_is_found_from_the_first_and_the_last_size() -> None:
    start, memory, idle = curves(POINTS)
    assert start.points == ((10, 0.05), (100, 0.5))
    assert start.exponent == pytest.approx(1.0)
    assert memory.exponent == pytest.approx(0.0)
    assert idle.exponent is None
    (alone,) = curves([Point(RUNNING, START, 10, 1.0)])
    assert alone.exponent is None


def test_the_plot_has_a_point_per_figure_within_its_drawing() -> None:
    root = ET.fromstring(svg(curves(POINTS)))
    space = "{http://www.w3.org/2000/svg}"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    circles = list(root.iter(f"{space}circle"))
    assert len(circles) == 4
    assert all(0 < float(circle.attrib["cx"]) < width for circle in circles)
    assert all(0 < float(circle.attrib["cy"]) < height for circle in circles)
    assert [title.text for title in root.iter(f"{space}title")][:2] == ["10: 0.05 s", "100: 0.5 s"]
    words = [text.text for text in root.iter(f"{space}text")]
    assert "s, ~ n^1.00" in words
    assert words[words.index(IDLE) + 1] == "%, 0 at 10, 0 at 100"


def test_a_figure_of_nought_is_named_and_not_drawn() -> None:
    drawn = svg(curves([Point(RUNNING, IDLE, 10, 0.4), Point(RUNNING, IDLE, 100, 0.0)]))
    assert drawn.count("<circle") == 1
    assert "%, 0 at 100" in drawn


def test_there_is_no_plot_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        svg([])
    found = Findings("2030-01-02", MACHINE, PARTIES, quick=False, rounds=ROUNDS, points=())
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
    assert ranged(Figures.of([2.0, 1.0, 3.0])) == "2 (1-3)"
    assert ranged(Figures.of([2.0, 2.0])) == "2"
