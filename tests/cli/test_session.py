"""`stdiod session`: what is asked of the daemon, and what people and programs get to see."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import pytest

from supervisor.cli.verbs.sessions import table
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, Reply, log, not_ok, ok, status

PLAN = {"goal": "light the hall", "inputs": {"room": "hall"}}


def summary(session_id: str = "s-1", **others: Any) -> Frame:
    return {
        "session_id": session_id,
        "title": None,
        "cwd": None,
        "roles": {},
        "status": "idle",
        "revision": 3,
        "created": time.time() - 90,
        "updated": time.time() - 30,
        "ended": None,
        "parent": None,
        "in_flight": 0,
        "invocations": 2,
        **others,
    }


def shown(session_id: str = "s-1", **others: Any) -> Frame:
    past = {
        "request_id": "r3", "module": "torch", "op": "light", "ok": True, "code": None,
        "duration_ms": 12, "ts": time.time() - 30,
    }  # fmt: skip
    failed = {**past, "ok": False, "code": "timeout"}
    return {
        **summary(session_id),
        "plan": PLAN,
        "state": {"flags": {"torchLit": True}},
        "history": [past, failed],
        **others,
    }


def asked(frame: Frame) -> tuple[str, Any]:
    assert (frame["tool"], frame["operation"]) == ("supervisor", "invoke")
    return frame["input"]["op"], frame["input"]["args"]


@pytest.mark.parametrize(
    ("arguments", "op", "args"),
    [
        (("new",), "session.new", {}),
        (
            ("new", "--id", "a", "--title", "T", "--plan", json.dumps(PLAN), "--state", '{"n":1}'),
            "session.new",
            {"session_id": "a", "title": "T", "plan": PLAN, "state": {"n": 1}},
        ),
        (("fork", "a"), "session.fork", {"session_id": "a"}),
        (
            ("fork", "a", "--id", "b", "--title", "T"),
            "session.fork",
            {"session_id": "a", "new_id": "b", "title": "T"},
        ),
        (("list",), "session.list", {"ended": False, "limit": 100}),
        (
            ("list", "-a", "--limit", "5", "--after", "x"),
            "session.list",
            {"ended": True, "limit": 5, "after": "x"},
        ),
        (("show", "a"), "session.show", {"session_id": "a"}),
        (("end", "a"), "session.end", {"session_id": "a"}),
        (("patch", "a", '{"n":null}'), "session.patch", {"session_id": "a", "patch": {"n": None}}),
        (
            ("patch", "a", "{}", "--if-revision", "0"),
            "session.patch",
            {"session_id": "a", "patch": {}, "if_revision": 0},
        ),
    ],
)
def test_a_verb_asks_for_what_was_typed_and_prints_the_result_for_programs(
    run: Run, serve: Serve, arguments: tuple[str, ...], op: str, args: Any
) -> None:
    daemon = serve(
        lambda frame: [ok({"any": "thing", "session_id": "s", "revision": 1, "cancelled": 0})]
    )
    ended = run("session", *arguments, "--json")
    assert ended.exit_code == 0, ended.output
    assert asked(daemon.frames[0]) == (op, args)
    assert json.loads(ended.stdout)["any"] == "thing"
    assert ended.stderr == ""


@pytest.mark.parametrize("verb", [("new",), ("fork", "a")])
def test_the_id_of_what_began_stands_alone_for_a_shell_to_take(
    run: Run, serve: Serve, verb: tuple[str, ...]
) -> None:
    serve(lambda frame: [ok(summary("s-9"))])
    assert run("session", *verb).stdout == "s-9\n"


def test_the_list_is_a_table(run: Run, serve: Serve) -> None:
    found = [
        summary("evening", title="Walk\nhome", status="busy", revision=12),
        summary("s-1", invocations=100),
    ]
    counts = {"live": 2, "busy": 1, "ended": 0}
    serve(lambda frame: [ok({"sessions": found, "next": "s-1", **counts})])
    ended = run("session", "list")
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "REVISION", "INVOCATIONS", "CHANGED", "TITLE"]
    assert lines[1].split() == ["evening", "busy", "12", "2", "30s", "ago", "Walk", "home"]
    assert lines[2].split() == ["s-1", "idle", "3", "100", "30s", "ago"]
    assert ended.stderr == "there are more: --after s-1\n"


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, "ID STATUS REVISION INVOCATIONS CHANGED TITLE"),
        (40, "ID STATUS CHANGED TITLE"),
        (20, "ID STATUS TITLE"),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_shorter_titles(width: int, columns: str) -> None:
    found = [summary("walk", title="A walk around the house at night"), summary("s-1")]
    lines = table(found, width).splitlines()
    plain = [click.unstyle(line) for line in lines]
    assert max(map(len, plain)) <= width
    assert plain[0].split() == columns.split()
    assert plain[1].split()[:2] == ["walk", "idle"]


@pytest.mark.parametrize(
    ("ended", "words"), [(0, "no sessions\n"), (2, "no sessions but ended ones\n")]
)
def test_an_empty_list_is_a_sentence(run: Run, serve: Serve, ended: int, words: str) -> None:
    serve(lambda f: [ok({"sessions": [], "next": None, "live": 0, "busy": 0, "ended": ended})])
    assert run("session", "list").stdout == words


def test_a_session_is_a_page_with_its_state_last(run: Run, serve: Serve) -> None:
    parent = {"session_id": "s-0", "revision": 7}
    roles = {"orchestrator": "o", "tools": ["dice", "torch"]}
    serve(lambda _: [ok(shown(title="Hall", parent=parent, roles=roles, cwd="/srv/hall"))])
    lines = run("session", "show", "s-1").stdout.splitlines()
    assert lines[:2] == ["s-1: idle", "Hall"]
    text = "\n".join(lines)
    for words in (
        "folder      /srv/hall",
        "roles       orchestrator o; tools dice, torch",
        "fork of     s-0 at revision 7",
        "goal        light the hall",
        'inputs      {"room":"hall"}',
        "requests    0 in flight, 2 invocations ended",
        "history     torch.light ok (30s ago, took 12ms)",
        "            torch.light timeout (30s ago, took 12ms)",
        "state at revision 3",
    ):
        assert words in text
    assert lines[-1] == '{"flags": {"torchLit": true}}'


def test_nothing_of_a_session_steers_the_terminal(run: Run, serve: Serve) -> None:
    evil = "a\x1b[2Jb"
    told = shown(evil, title=evil, plan={"goal": evil, "inputs": {"x": evil}}, state={"x": evil})
    serve(lambda frame: [ok(told)])
    assert "\x1b" not in run("session", "show", "s-1").output


@pytest.mark.parametrize(
    ("cancelled", "words"),
    [(0, "s-1 has ended\n"), (1, "s-1 has ended; 1 invocation cancelled\n")],
)
def test_the_end_says_how_many_it_cancelled(
    run: Run, serve: Serve, cancelled: int, words: str
) -> None:
    serve(lambda frame: [ok({**summary(), "cancelled": cancelled})])
    assert run("session", "end", "s-1").stdout == words


def test_a_refusal_is_said_with_what_to_do(run: Run, serve: Serve) -> None:
    words = "the state has revision 4, the patch was made for 3"
    serve(lambda f: [not_ok("bad_request", words, reason="revision_conflict", revision=4)])
    ended = run("session", "patch", "s-1", "{}", "--if-revision", "3")
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"supervisor.session.patch failed: {words}\n")
    assert "stdiod session show" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("new", "--plan", "[1]"), "--plan: is an array, must be one JSON object"),
        (("new", "--state", "{"), "--state:"),
        (("new", "--state", "@/gone"), "--state: /gone cannot be read"),
        (("patch", "a", "5"), "the patch: is a number, must be one JSON object"),
        (("patch", "a"), "Missing argument"),
        (("patch", "a", "{}", "--if-revision", "-1"), "-1 is not in the range"),
        (("list", "--limit", "0"), "0 is not in the range"),
        (("forc", "a"), "there is no verb 'session forc'; did you mean 'fork'?"),
        (("x",), "there are new, list, show, fork, end, cancel, patch, watch"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_and_no_daemon_is_asked(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    ended = run("session", *arguments)
    assert ended.exit_code == 2, ended.output
    assert words in ended.stderr


def test_a_file_or_stdin_can_hold_a_plan_or_a_state(run: Run, serve: Serve, tmp_path: Path) -> None:
    daemon = serve(lambda frame: [ok(summary())])
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    arguments = ("--plan", f"@{tmp_path / 'plan.json'}", "--state", "-")
    assert run("session", "new", *arguments, input='{"n":1}').exit_code == 0
    assert asked(daemon.frames[0])[1] == {"plan": PLAN, "state": {"n": 1}}


def entry(event: str, seq: int, **others: Any) -> Frame:
    fields = {"id": f"e{seq}", "ts": 1e9, "event": event, "component": "supervisor", **others}
    return log("in words", seq=seq, session_id="s-1", **fields)


def patched(revision: int, value: Any, **others: Any) -> Frame:
    return entry("session:patch", revision, data={"revision": revision, "patch": value}, **others)


def watched(*events: Reply) -> Any:
    def script(frame: Frame) -> list[Reply]:
        op, _ = asked(frame)
        if op == "status":
            found = status()
            found["daemon"]["journal"] = {"last_seq": 41}
            return [ok(found)]
        return [ok(shown())] if op == "session.show" else list(events)

    return script


END = entry("session:end", 9, data={})


def test_a_watch_prints_each_later_patch_once_and_returns_when_the_session_ends(
    run: Run, serve: Serve
) -> None:
    daemon = serve(
        watched(
            log("the journal holds entries up to 41", journal="x", last_seq=41),
            patched(3, {"seen": "already"}),
            patched(4, {"lit": True}, module="torch", request_id="r7"),
            patched(5, {"by": "hand\x1b"}),
            END,
        )
    )
    ended = run("session", "watch", "s-1")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == [
        '#4 torch r7 {"lit":true}',
        '#5 a client {"by":"hand\\u001b"}',
    ]
    assert ended.stderr == "s-1 is idle at revision 3\nthe session has ended\n"
    assert asked(daemon.frames[-1]) == (
        "events",
        {"session_id": "s-1", "event": "session:*", "follow": True, "since": 41},
    )


def test_a_watch_for_programs_prints_the_entries_of_the_journal(run: Run, serve: Serve) -> None:
    serve(watched(patched(4, {"lit": True}), END))
    lines = [
        json.loads(one)
        for one in run("session", "watch", "s-1", "--json").stdout.split("\n")
        if one
    ]
    assert [one["event"] for one in lines] == ["session:patch", "session:end"]
    assert lines[0]["seq"] == 4


def test_a_watch_that_cannot_be_is_refused(run: Run, serve: Serve) -> None:
    serve(watched(not_ok("unsupported_op", "the daemon has no op 'events'", reason="unknown_op")))
    ended = run("session", "watch", "s-1")
    assert ended.exit_code == 1
    assert "the daemon has no op 'events'" in ended.stderr


def test_an_ended_session_has_nothing_to_watch(run: Run, serve: Serve) -> None:
    def script(frame: Frame) -> list[Reply]:
        return [ok(status()) if asked(frame)[0] == "status" else ok(shown(status="ended"))]

    serve(script)
    ended = run("session", "watch", "s-1")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert ended.stderr == "s-1 is ended at revision 3\n"


def test_a_daemon_that_goes_away_ends_a_watch(run: Run, serve: Serve) -> None:
    def script(frame: Frame) -> list[Reply] | None:
        answer: list[Reply] = watched()(frame)
        return None if asked(frame)[0] == "events" else answer

    serve(script)
    ended = run("session", "watch", "s-1")
    assert ended.exit_code == 3
    assert "the daemon closed the connection" in ended.stderr
