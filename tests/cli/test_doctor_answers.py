"""What `doctor` says of a socket whose owner does not answer, and of descriptors without one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from supervisor.cli.checked import check
from supervisor.cli.examination import examine, examine_daemon
from supervisor.cli.machine import bad, ok, warn
from tests.cli.conftest import Run
from tests.cli.fake_daemon import Reply, serving, status


@pytest.mark.parametrize("replies", [None, [b"hello\n"]], ids=["closes", "chatters"])
def test_who_accepts_and_does_not_answer_is_bad(
    tmp_path: Path, replies: list[Reply] | None
) -> None:
    path = tmp_path / "socket"
    with serving(path, lambda _frame: replies):
        found = examine([], path, tmp_path / "data")
    (one,) = [one for one in found if one.area == "daemon"]
    assert (one.level, bool(one.hint)) == ("bad", True)
    assert "gives no answer" in one.message


def test_that_nobody_would_end_what_a_killed_daemon_left_is_bad() -> None:
    document = status()
    document["daemon"]["guardian_problem"] = "there is no guardian (it died)"
    (found,) = [one for one in examine_daemon(document) if one.area == "guardian"]
    assert (found.level, found.message) == ("bad", "there is no guardian (it died)")
    assert "tries again" in str(found.hint)


def test_that_nobody_listens_is_no_fault(tmp_path: Path) -> None:
    found = examine([], tmp_path / "socket", tmp_path / "data")
    (one,) = [one for one in found if one.area == "daemon"]
    assert one.level == "ok"


def test_what_is_advised_for_a_descriptor_that_is_not_valid_shows_the_problem(
    tmp_path: Path,
) -> None:
    fleet = tmp_path / "my fleet"
    fleet.mkdir()
    form = {"name": "twin", "kind": "tool", "capabilities": []}
    transport = {"type": "stdio", "command": ["cat"]}
    for name in ("a", "b"):
        (fleet / f"{name}.json").write_text(json.dumps({**form, "transport": transport}))
    found = examine([fleet], tmp_path / "socket", tmp_path / "data")
    (one,) = [one for one in found if one.level == "bad"]
    assert one.subject == str(fleet / "b.json")
    assert one.hint is not None
    command, *paths = shlex.split(one.hint.split("`")[1])[1:]
    assert command == "validate"
    (shown,) = [one for one in check([Path(path) for path in paths]).descriptors if not one.ok]
    assert [problem.message for problem in shown.problems] == [one.message]


@pytest.mark.parametrize("well", [True, False])
def test_what_is_well_is_shown_with_all_and_in_json_alone_and_counted_all_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch, well: bool
) -> None:
    found = [ok("machine", "it runs"), *([] if well else [warn("a", "b", "c"), bad("d", "e", "f")])]
    monkeypatch.setattr("supervisor.cli.examination.examine", lambda *_, **__: found)
    for words in ((), ("--problems",), ("--all",)):
        ended = run("doctor", *words)
        assert ended.exit_code == (0 if well else 1)
        assert ("it runs" in ended.stdout) == ("--all" in words)
        assert ("  bad  e" in ended.stdout) != well
        assert ("nothing is wrong; --all" in ended.stdout) == (well and "--all" not in words)
        counts = f"1 ok, {0 if well else 1} warn, {0 if well else 1} bad"
        assert ended.stdout.splitlines()[-1] == counts
    assert len(json.loads(run("doctor", "--json").stdout)["findings"]) == (1 if well else 3)
    told = json.loads(run("doctor", "--problems", "--json").stdout)
    assert told["ok"] is well
    assert [one["level"] for one in told["findings"]] == ([] if well else ["warn", "bad"])
