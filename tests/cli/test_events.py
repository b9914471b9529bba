"""`stdiod events`: what it asks for, what it shows, and where it goes on after a daemon is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.cli.verbs import feeds
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Reply, not_ok, ok


def heading(journal: str = "j1", since: int = 0, last: int = 9, level: str = "info") -> Reply:
    fields = {"journal": journal, "first_seq": 1, "last_seq": last, "since": since}
    words = "the journal holds entries up to 9"
    return {"type": "log", "level": level, "message": words, "fields": fields}


def entry(seq: int) -> Reply:
    fields = {
        "seq": seq,
        "id": f"e{seq}",
        "ts": 1_700_000_000.25,
        "event": "module:invoke",
        "component": "supervisor",
    }
    return {"type": "log", "message": "module:invoke dice.roll ok 3ms", "fields": fields}


def asked(frame: dict[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = frame["input"]["args"]
    return args


def test_people_see_time_number_and_what_it_was(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [heading(), entry(4), ok({})])
    ended = run("events")
    assert ended.stdout == "2023-11-14T22:13:20.250Z 4 module:invoke dice.roll ok 3ms\n"
    assert ended.stderr == ""
    assert asked(daemon.frames[0]) == {"last": 50}


def test_json_is_the_event_with_its_number(run: Run, serve: Serve) -> None:
    serve(lambda frame: [heading(), entry(4), entry(5), ok({})])
    lines = [json.loads(line) for line in run("events", "--json").stdout.splitlines()]
    assert [line["seq"] for line in lines] == [4, 5]
    assert lines[0]["event"] == "module:invoke"


def test_each_option_is_asked_for(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [heading(), ok({})])
    words = ["--since", "7", "--event", "mount:*", "--module", "dice", "--session", "s1"]
    assert run("events", *words).exit_code == 0
    assert asked(daemon.frames[0]) == {
        "since": 7,
        "event": "mount:*",
        "module": "dice",
        "session_id": "s1",
    }
    assert run("events", "-n", "3").exit_code == 0
    assert asked(daemon.frames[1]) == {"last": 3}


def test_of_what_was_since_a_number_the_last_ones_are_shown(run: Run, serve: Serve) -> None:
    serve(lambda frame: [heading(), *map(entry, (4, 5, 6)), ok({})])
    lines = run("events", "-n", "2", "--since", "3", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [5, 6]


def test_a_number_and_a_count_together_are_refused_where_it_goes_on(run: Run) -> None:
    ended = run("events", "-f", "-n", "3", "--since", "3")
    assert ended.exit_code == 2
    assert "give one" in ended.stderr


def test_a_refusal_is_a_sentence(run: Run, serve: Serve) -> None:
    serve(lambda frame: [not_ok("bad_request", "there is no event 'x'", reason="invalid_args")])
    ended = run("events", "--event", "x")
    assert (ended.exit_code, ended.stderr) == (1, "stdiod: there is no event 'x'\n")


def test_a_warning_goes_to_stderr(run: Run, serve: Serve) -> None:
    serve(lambda frame: [heading(level="warn"), ok({})])
    ended = run("events", "--since", "100")
    assert (ended.stdout, ended.stderr) == ("", "stdiod: the journal holds entries up to 9\n")


def test_a_follower_goes_on_after_what_it_has_seen_whatever_ended_its_connection(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RECONNECT_S", (0.0,))
    answers: list[list[Reply] | None] = [
        [heading(since=2), entry(3), entry(4), not_ok("cancelled", "", reason="shutdown")],
        [heading(since=4), entry(5), not_ok("cancelled", "", reason="disconnect")],
        None,
        [heading("j2", since=0), entry(1), not_ok("internal", "no disk", reason="storage")],
    ]
    daemon = serve(lambda frame: answers.pop(0))
    ended = run("events", "-f", "--since", "2", "--json")
    assert ended.exit_code == 1
    *seen, failed = (json.loads(line) for line in ended.stdout.splitlines())
    assert [one["seq"] for one in seen] == [3, 4, 5, 1]
    assert failed["error"]["message"] == "no disk"
    assert [asked(frame) for frame in daemon.frames] == [
        {"follow": True, "since": 2},
        {"follow": True, "since": 4, "journal": "j1"},
        {"follow": True, "since": 5, "journal": "j1"},
        {"follow": True, "since": 5, "journal": "j1"},
    ]
    assert ended.stderr.count("the daemon went away after 4; waiting for it") == 1
    assert ended.stderr.count("the daemon is back") == 2


def test_a_daemon_that_is_not_there_at_first_is_not_waited_for(run: Run) -> None:
    assert run("events", "-f").exit_code == 3


def test_who_does_not_follow_is_told_that_the_daemon_went_away(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [heading(), entry(1)])
    daemon.close_after_reply = True
    assert run("events").exit_code == 3
