from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scripts.bench.__main__ import NAMES, main
from scripts.bench.page import Findings, from_json, results, to_json
from scripts.bench.scene import OURS
from scripts.bench.table import SCENES
from tests.scripts.checkout import WITHIN_S, run

pytestmark = pytest.mark.bound(WITHIN_S)

ROWS = {row.title: (row, scene) for scene in SCENES for row in scene.rows}
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("gcc") is None and shutil.which("cc") is None, reason="there is no C compiler here"
)
TITLES = {
    "stream": ("event stream of one module, validated",),
    "relayed": ("event stream of one module, to a client",),
    "invoke": ("invoke, one at a time, in", "invoke, 64 at a time, in", "invoke, those"),
    "socket": ("invoke, one at a time, over", "invoke, 64 at a time, over"),
    "hosted": ("hosted MCP server",),
    "http": ("invoke, one at a time, over", "invoke, 64 at a time, over", "events of a session"),
    "asset": ("an asset of 1 GB", "invoke over the control socket, while an asset"),
    "neighbour": ("invoke over the control socket, while 64 HTTP",),
    "crowd": ("invoke over the control socket, while 64 clients",),
    "tool": ("per-invocation native",),
    "warm": ("per-invocation Python",),
    "crash": ("crash",),
    "fleet": ("200 persistent modules:",),
    "inputs": ("200 persistent modules with `inputs`",),
    "gateway": ("200 persistent modules with `--http",),
    "command": ("`stdiod",),
    "up": ("`stdiod up`",),
    "clients": ("20 MCP clients",),
    "patch": ("state patches",),
    "journal": ("journal",),
    "scale": ("persistent modules, all running:", "descriptors of lazy modules"),
}
"""How the titles of each scene's rows begin."""


def measured(*arguments: str) -> Findings:
    done = run("bench", *arguments, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    return from_json(done.stdout)


def test_each_row_belongs_to_a_scene() -> None:
    assert set(TITLES) == set(NAMES)
    beginnings = tuple(beginning for titles in TITLES.values() for beginning in titles)
    assert all(title.startswith(beginnings) for title in ROWS)


@NEEDS_COMPILER
def test_each_scene_measures_its_rows_with_us_and_whoever_is_there() -> None:
    found = measured()
    by_title = results(found.rounds)
    assert list(by_title) == list(ROWS)
    for title, result in by_title.items():
        row, scene = ROWS[title]
        assert set(result) <= set(scene.parties)
        assert next(iter(scene.parties)) in result
        assert set(result) == set(scene.parties) or not scene.grows
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
