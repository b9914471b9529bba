from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.compare.faults import FAULTS, Value
from scripts.compare.report import (
    BEGIN,
    END,
    Machine,
    better_than_ours,
    document,
    from_document,
    middle,
    shown,
    words,
    written_into,
)
from tests.scripts.checkout import WITHIN_S, documents, run

BY_KEY = {fault.key: fault for fault in FAULTS}
HERE = Machine("2030-01-02", "1 core", 3, {"stdiod": "1", "s6": "2"}, ["circus"])
SAMPLES: dict[str, dict[str, list[Value]]] = {
    "latency": {"stdiod": [20.0, 30.0, 25.0], "s6": [1000.0, 1010.0, 990.0]},
    "memory50": {"stdiod": [30.0, 30.0, 30.0], "s6": [5.0, 5.0, 5.0]},
    "gives_up": {"stdiod": ["gives up"], "s6": ["goes on"]},
}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([3.0, 1.0, 2.0], 2.0),
        ([1, 1], 1),
        (["hangs", "hangs"], "hangs"),
        (["hangs", "goes on"], "goes on or hangs"),
        ([2.0, "never"], "2.0 or never"),
    ],
)
def test_the_middle_of_figures_is_their_median_and_no_odd_one_out_is_hidden(
    values: list[Value], found: Value
) -> None:
    assert middle(values) == found


def test_a_cell_has_the_median_its_unit_and_the_range() -> None:
    assert shown(BY_KEY["latency"], SAMPLES["latency"]["stdiod"]) == "25 ms (20 to 30)"
    assert shown(BY_KEY["memory50"], SAMPLES["memory50"]["s6"]) == "5 MB"
    assert shown(BY_KEY["escapee"], [0, 1]) == "0.5 (0 to 1)"
    assert shown(BY_KEY["gives_up"], ["goes on"]) == "goes on"
    assert shown(BY_KEY["latency"], []) == ""


@pytest.mark.parametrize(
    ("key", "ours", "theirs", "better"),
    [
        ("latency", [100.0], [50.0], ["s6"]),
        ("latency", [100.0], [95.0], []),
        ("grandchild", [1], [0], ["s6"]),
        ("grandchild", [0], [0], []),
        ("stubborn", ["never"], [5.0], ["s6"]),
        ("stubborn", [5.0], ["never"], []),
        ("cause", ["exit code"], ["exit code and signal"], ["s6"]),
        ("cause", ["exit code"], ["not measured (TimeoutError)"], []),
    ],
)
def test_who_does_better_is_said(
    key: str, ours: list[Value], theirs: list[Value], better: list[str]
) -> None:
    assert better_than_ours(BY_KEY[key], {"stdiod": ours, "s6": theirs}) == better


def test_the_words_have_what_was_measured_who_is_missing_and_who_is_better() -> None:
    said = words(SAMPLES, HERE)
    assert "Measured 2030-01-02 on 1 core, 3 rounds: stdiod 1, s6 2." in said
    assert "Not installed: circus." in said
    assert "| Fault | stdiod | s6 |" in said
    assert f"- {BY_KEY['memory50'].title}: s6" in said
    assert f"- {BY_KEY['latency'].title}" not in said


def test_the_json_is_enough_to_write_the_page_again() -> None:
    found = json.loads(json.dumps(document(SAMPLES, HERE)))
    assert words(*from_document(found)) == words(SAMPLES, HERE)


def test_what_is_written_replaces_what_stood_between_the_markers_and_no_more() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    new = written_into(page, "new")
    assert new == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert written_into(new, "new") == new
    with pytest.raises(ValueError, match="markers"):
        written_into("nothing", "new")


@pytest.mark.bound(WITHIN_S)
def test_the_column_of_stdiod_is_measured_alone(tmp_path: Path) -> None:
    keys = ["grandchild", "escapee", "kill9", "latency", "unread", "cause"]
    done = run("compare_supervisors", *keys, "--only", "stdiod", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = documents(done.stdout)
    samples = {fault["key"]: fault["samples"]["stdiod"] for fault in found["faults"]}
    assert list(samples) == keys
    assert samples["grandchild"] == samples["escapee"] == samples["kill9"] == [0]
    assert samples["cause"] == ["exit code and signal"]
    assert samples["unread"] == ["goes on"]
    assert samples["latency"][0] > 0
    printed = tmp_path / "found.json"
    printed.write_text(done.stdout)
    again = run("compare_supervisors", "--read", str(printed))
    assert "| Fault | stdiod |" in again.stdout
