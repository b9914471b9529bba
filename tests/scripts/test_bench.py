from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.__main__ import SCENES, main
from scripts.bench.findings import from_json
from scripts.bench.fleets import LAZY, RUNNING
from scripts.bench.page import files
from scripts.bench.rows import OURS, ROWS
from tests.scripts.checkout import WITHIN_S, run

pytestmark = pytest.mark.bound(WITHIN_S)

BY_TITLE = {row.title: row for row in ROWS}
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("gcc") is None and shutil.which("cc") is None, reason="there is no C compiler here"
)
TITLES = {
    "stream": ("event stream of one module, validated",),
    "relayed": ("event stream of one module, to a client",),
    "invoke": ("invoke, one at a time, in", "invoke, 64 at a time, in", "invoke, those"),
    "socket": ("invoke, one at a time, over", "invoke, 64 at a time, over"),
    "hosted": ("hosted MCP server",),
    "http": ("invoke, one at a time, over", "events of a session"),
    "tool": ("per-invocation native",),
    "warm": ("per-invocation Python",),
    "crash": ("crash",),
    "fleet": ("200 persistent modules",),
    "command": ("`stdiod",),
    "patch": ("state patches",),
    "journal": ("journal",),
    "scale": (),
}
"""How the titles of each scene's rows begin."""


def measured(*arguments: str) -> dict[str, Any]:
    done = run("bench", *arguments, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_each_row_belongs_to_a_scene() -> None:
    assert set(TITLES) == set(SCENES)
    beginnings = tuple(beginning for titles in TITLES.values() for beginning in titles)
    assert all(row.title.startswith(beginnings) for row in ROWS)


@NEEDS_COMPILER
def test_each_scene_measures_its_rows_with_us_and_whoever_is_there() -> None:
    found = measured(*(scene for scene in TITLES if TITLES[scene]))
    assert [row["row"] for row in found["rows"]] == [row.title for row in ROWS]
    for shown in found["rows"]:
        row = BY_TITLE[shown["row"]]
        assert shown["unit"] == row.unit
        assert {*shown["figures"], *shown["failures"]} <= set(row.contenders)
        assert OURS in {*shown["figures"], *shown["failures"]}
        for figures in shown["figures"].values():
            assert figures["low"] == figures["median"] == figures["high"]
        assert set(shown["ratios"]) <= set(shown["figures"]) - {OURS}
        assert [target["target"] for target in shown["targets"]] == list(map(str, row.targets))
    for title, contender, value, _, cpu_us in (
        one for samples in found["rounds"] for one in samples
    ):
        assert contender in BY_TITLE[title].contenders
        if value is not None and BY_TITLE[title].unit.endswith("/s"):
            assert cpu_us is not None, f"no CPU time of {contender} beside the rate of {title}"
    assert found["growth"] == []


@NEEDS_COMPILER
def test_the_scene_of_scale_measures_at_each_size_and_can_be_drawn() -> None:
    found = measured("scale")
    assert found["rows"] == []
    curves = from_json(json.dumps(found)).growth
    assert {curve.family for curve in curves} == {RUNNING, LAZY}
    assert all(len(curve.points) == 2 for curve in curves)
    written = files(from_json(json.dumps(found)))
    assert list(written) == ["benchmarks.md", "benchmarks.json", "benchmarks-scale.svg"]


@NEEDS_COMPILER
def test_rounds_can_be_chosen_and_their_findings_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured("stream", "--rounds", "2")
    (row,) = found["rows"]
    assert len(found["rounds"]) == 2
    kept = tmp_path / "found.json"
    kept.write_text(json.dumps(found))
    monkeypatch.setattr("sys.argv", ["bench", "--read", str(kept)])
    main()
    printed = capsys.readouterr().out
    assert row["row"].split(",")[0].capitalize() in printed
    for party in found["parties"]:
        if party["version"] is None:
            assert f"| {party['name']} | missing: {party['why']} |" in printed


@pytest.mark.parametrize(
    "wrong", [("nonsense",), ("--rounds", "0"), ("--rounds", "x"), ("--read", "x", "stream")]
)
def test_what_cannot_be_measured_is_refused(
    wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *wrong])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2


def test_what_was_never_found_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "found.json"
    kept.write_text("{}")
    monkeypatch.setattr("sys.argv", ["bench", "--read", str(kept)])
    with pytest.raises(SystemExit, match=f"{kept} is not what --json prints"):
        main()
