from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scripts.bench.__main__ import CONTENDERS, main
from scripts.bench.loads import LOADS
from scripts.bench.page import Findings, from_json, results, to_json
from scripts.bench.table import OURS, SCENES, modules_named
from tests.scripts.checkout import WITHIN_S, run

pytestmark = pytest.mark.bound(WITHIN_S)

ROWS = {row.title: (row, scene) for scene in SCENES for row in scene.rows}
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("gcc") is None and shutil.which("cc") is None, reason="there is no C compiler here"
)


def measured(*arguments: str) -> Findings:
    done = run("bench", *arguments, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    return from_json(done.stdout)


def test_the_table_names_contenders_loads_and_modules_that_there_are() -> None:
    for scene in SCENES:
        parties = list(scene.who().values())
        assert all(party["by"] in CONTENDERS for party in parties)
        busy = {party["busy"] for party in parties if "busy" in party}
        assert {scene.load} - {""} | busy <= LOADS.keys()
        assert modules_named(*scene.modules) or not scene.modules


@NEEDS_COMPILER
def test_each_scene_measures_its_rows_with_us_and_whoever_is_there() -> None:
    found = measured()
    by_title = results(found.rounds)
    assert list(by_title) == list(ROWS)
    for title, result in by_title.items():
        row, scene = ROWS[title]
        assert set(result) <= set(scene.who())
        assert next(iter(scene.who())) in result
        assert set(result) == set(scene.who()) or not scene.grows
        for contender, figures in result.items():
            assert len(figures.values) == (not figures.why)
            if figures.values and row.unit.endswith("/s"):
                assert figures.cpu_us, f"no CPU time of {contender} beside the rate of {title}"


def test_a_row_that_fails_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\nexit 7\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = run("bench", "stream", "journal", "--quick", "--json")
    failed, *others = [title for title in ROWS if ROWS[title][1].name in ("stream", "journal")]
    assert f"FAILED: {failed}, stdiod: " in done.stderr
    assert done.stderr.endswith(f"failed: {failed}\n")
    assert done.returncode == 1
    found = results(from_json(done.stdout).rounds)
    assert "exit status 7" in found[failed][OURS].why
    assert others
    assert all(found[title][OURS].values for title in others)


@NEEDS_COMPILER
def test_rounds_can_be_chosen_and_their_findings_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured("stream", "--rounds", "2")
    assert [len({sample.row for sample in samples}) for samples in found.rounds] == [1, 1]
    kept = tmp_path / "found.json"
    kept.write_text(to_json(found))
    monkeypatch.setattr("sys.argv", ["bench", "--read", str(kept)])
    main()
    printed = capsys.readouterr().out
    assert "Event stream of one module" in printed
    for name, version in found.parties.items():
        assert f"| {name} | {version} |" in printed


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
