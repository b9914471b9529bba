"""`stdiod record` with a fake daemon: what it asks, writes, and says."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import results
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, log, not_ok, ok
from tests.protocol.test_transcript import ENDED, HEADER, LINE, MISSING


def entry(document: dict[str, Any]) -> Frame:
    return log("an entry", **document)


def test_entries_are_written_to_a_file_for_its_owner_alone(
    run: Run, serve: Serve, tmp_path: Path
) -> None:
    daemon = serve(lambda frame: [entry(HEADER), entry(LINE), entry(ENDED), ok({})])
    path = tmp_path / "t.jsonl"
    ended = run("record", "dice", "-o", str(path), "--seconds", "2", "--restart")
    assert ended.exit_code == 0
    assert daemon.frames[0]["input"] == {
        "op": "record",
        "args": {"module": "dice", "until_exit": False, "restart": True, "seconds": 2.0},
    }
    written = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert written == [HEADER, LINE, ENDED]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ended.stdout == ""
    assert ended.stderr == f"stdiod: 2 entries in {path}\n"


def test_without_a_file_they_go_to_stdout(run: Run, serve: Serve) -> None:
    serve(lambda frame: [entry(HEADER), entry(MISSING), entry({**ENDED, "missing_bytes": 3}),
                         ok({})])  # fmt: skip
    ended = run("record", "dice", "--until-exit")
    assert len(ended.stdout.splitlines()) == 3
    assert ended.stderr == "stdiod: 2 entries; 3 bytes are missing, it was too fast\n"


@pytest.mark.fault(33)
def test_on_a_terminal_a_transcript_holds_nothing_that_steers_it(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "is_terminal", lambda _: True)
    said = {**LINE, "line": "\x9b31m\u202e"}
    serve(lambda frame: [entry(HEADER), entry(said), entry(ENDED), ok({})])
    printed = run("record", "dice").stdout
    assert "\x9b" not in printed
    assert "\u202e" not in printed
    assert json.loads(printed.splitlines()[1]) == said


def test_a_daemon_that_goes_away_leaves_a_transcript_with_an_end(
    run: Run, serve: Serve, tmp_path: Path
) -> None:
    serve(lambda frame: [entry(HEADER), entry(LINE)]).close_after_reply = True
    path = tmp_path / "t.jsonl"
    ended = run("record", "dice", "-o", str(path))
    assert ended.exit_code == 3
    last = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert (last["event"], last["why"]) == ("ended", "the daemon went away")


def test_more_than_one_module_is_refused_in_words(run: Run) -> None:
    ended = run("record", "dice", "moon")
    assert ended.exit_code == 2
    assert "a transcript is of one module; record the others beside it" in ended.stderr


def test_a_refusal_is_told(run: Run, serve: Serve) -> None:
    serve(lambda frame: [not_ok("bad_request", "there is no module 'x'", reason="unknown_module")])
    ended = run("record", "x")
    assert ended.exit_code == 1
    assert "there is no module 'x'" in ended.stderr


def test_a_file_that_cannot_be_made_is_named(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve(lambda frame: [entry(HEADER), ok({})])
    ended = run("record", "dice", "-o", str(tmp_path / "none" / "t"))
    assert ended.exit_code == 1
    assert "cannot be written: No such file or directory" in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_told(run: Run, serve: Serve) -> None:
    serve(lambda frame: [entry(HEADER), ok({})])
    ended = run("record", "dice", "-o", "/dev/full")
    assert ended.exit_code == 1
    assert "/dev/full cannot be written: No space left on device" in ended.stderr
