"""Sessions by their ops: whole documents, bounds from both sides, pages, and restarts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.kernel import JournalOptions
from tests.factories import actor
from tests.kernel.agents import op
from tests.kernel.conftest import begin, daemon_with
from tests.kernel.noted import noted
from tests.principals import ADA

PLAN = {"goal": "light the hall", "inputs": {"room": "hall"}}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def padded(size: int) -> dict[str, Any]:
    """Return an object of so many bytes as JSON."""
    return {"a": "x" * (size - 8)}


async def test_a_session_is_shown_noted_and_found_again_whole(tmp_path: Path) -> None:
    ticks = itertools.count(1000)
    options: dict[str, Any] = {"memory": JournalOptions(), "clock": lambda: float(next(ticks))}
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        state = {"x": 1, "none": None}
        named: dict[str, Any] = {"title": "Hall", "cwd": "/srv", "plan": PLAN, "state": state}
        made = await op(daemon, "session.new", session_id="s", **named)
        patched = await op(daemon, "session.patch", session_id="s", patch={"x": None, "y": [2]})
        assert patched == {"session_id": "s", "revision": 1}
        stale: dict[str, Any] = {"session_id": "s", "patch": {"z": 3}, "if_revision": 0}
        conflict = await op(daemon, "session.patch", **stale)
        assert conflict["message"] == "the state has revision 1, the patch was made for 0"
        details = {name: conflict["details"][name] for name in ("reason", "revision", "expected")}
        assert details == {"reason": "revision_conflict", "revision": 1, "expected": 0}
        content = {"op": "echo", "session_id": "s"}
        response = await begin(daemon, "m", "invoke", content).response()
        forked = await op(daemon, "session.fork", session_id="s", new_id="t")
        ended = await op(daemon, "session.end", session_id="s")
        shown = {name: await op(daemon, "session.show", session_id=name) for name in "st"}
        events = await noted(daemon, "session:*")
    one, other = shown["s"], shown["t"]
    assert one == {
        "session_id": "s",
        "owner": "ada",
        "title": "Hall",
        "cwd": "/srv",
        "plan": PLAN,
        "roles": {},
        "parent": None,
        "created": one["created"],
        "updated": one["ended"],
        "ended": one["ended"],
        "revision": 1,
        "status": "ended",
        "state": {"y": [2]},
        "in_flight": 0,
        "queued": 0,
        "invocations": 1,
        "history": [
            {
                "request_id": response.request_id,
                "module": "m",
                "op": "echo",
                "ok": True,
                "code": None,
                "duration_ms": response.duration_ms,
                "ts": one["history"][0]["ts"],
            }
        ],
    }
    assert 1000 <= one["created"] < one["history"][0]["ts"] < one["ended"]
    assert other == {
        **one,
        "session_id": "t",
        "parent": {"session_id": "s", "revision": 1},
        "created": other["created"],
        "updated": other["created"],
        "ended": None,
        "revision": other["revision"],
        "status": "idle",
        "invocations": 0,
        "history": [],
    }
    summaries = made, forked, ended
    assert [one["session_id"] for one in summaries] == ["s", "t", "s"]
    assert [one["status"] for one in summaries] == ["idle", "idle", "ended"]
    assert ended["cancelled"] == 0
    told = [(one["event"], one["session_id"], one["data"]) for one in events[:4]]
    begun = {"plan": PLAN, "title": "Hall", "cwd": "/srv", "state": {"x": 1}}
    assert told == [
        ("session:start", "s", begun),
        ("session:patch", "s", {"revision": 1, "patch": {"x": None, "y": [2]}}),
        ("session:fork", "t", {"parent": "s", "revision": 1, "plan": PLAN}),
        ("session:end", "s", {"revision": 1, "cancelled": 0}),
    ]
    assert {one["by"]["name"] for one in events} == {"ada"}
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        again = {name: await op(daemon, "session.show", session_id=name) for name in "st"}
        assert again == shown
        late = await op(daemon, "session.patch", session_id="s", patch={})
        assert late["message"] == (
            "the session 's' has ended; fork it to continue from where it was"
        )


MOST = 1 << 20
NEW: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"session_id": "i" * 128}, {"session_id": "i" * 129}, "129"),
    ({"title": "t" * 200}, {"title": "t" * 201}, "the title has 201 characters, may have 200"),
    ({"title": "a b"}, {"title": "a\nb"}, "the title has a control character, must be one line"),
    (
        {"cwd": "/" + "c" * 4095},
        {"cwd": "/" + "c" * 4096},
        "the folder has 4097 characters, may have 4096 at most",
    ),
    ({"cwd": "/a"}, {"cwd": "a"}, "the folder has to be an absolute path"),
    (
        {"plan": {"goal": "g", "inputs": padded(65536 - 22)}},
        {"plan": {"goal": "g", "inputs": padded(65536 - 21)}},
        "the plan has 65537 bytes, may have 65536 at most",
    ),
    (
        {"plan": {"goal": "g", "inputs": nested(63)}},
        {"plan": {"goal": "g", "inputs": nested(64)}},
        "the plan is nested more than 64 levels deep",
    ),
    ({"plan": PLAN}, {"plan": {"goal": "g"}}, "the plan is not valid: /plan/inputs"),
    (
        {"state": nested(64)},
        {"state": nested(65)},
        "the state is nested more than 64 levels deep",
    ),
    (
        {"state": {str(n): n for n in range(10_000)}},
        {"state": {str(n): n for n in range(10_001)}},
        "the state has more than 10000 members, those inside of them included; begin with a part",
    ),
    (
        {"state": padded(MOST)},
        {"state": padded(MOST + 1)},
        f"the state has {MOST + 1} bytes, may have {MOST} at most",
    ),
]


@pytest.mark.parametrize(("fits", "is_too_much", "words"), NEW, ids=[words for _, _, words in NEW])
async def test_what_a_session_begins_with_has_bounds(
    fits: dict[str, Any], is_too_much: dict[str, Any], words: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path) as daemon:
        error = await op(daemon, "session.new", **is_too_much)
        assert words in error["message"]
        assert (await op(daemon, "session.list"))["sessions"] == []
        made = await op(daemon, "session.new", **fits)
        assert made["status"] == "idle"
        forked = await op(daemon, "session.fork", session_id=made["session_id"])
        for name in fits.keys() - {"session_id"}:
            shown = await op(daemon, "session.show", session_id=forked["session_id"])
            assert shown[name] == fits[name]


async def test_a_patch_and_the_state_that_it_would_make_have_bounds(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        await op(daemon, "session.new", session_id="s")
        whole = {"a": "x" * (MOST - 14), "b": 1}
        patches = [
            (whole, ""),
            ({"b": 12}, f"the state would have {MOST + 1} bytes, may have {MOST} at most"),
            (padded(MOST + 1), f"the patch has {MOST + 1} bytes, may have {MOST} at most"),
            (nested(65), "the patch is nested more than 64 levels deep"),
            ({"b": 2}, ""),
            ({"a": None}, ""),
            (padded(MOST - 6), ""),
        ]
        revision = 0
        for patch, words in patches:
            done = await op(daemon, "session.patch", session_id="s", patch=patch)
            revision += not words
            assert done.get("message", "") == words
            assert words or done == {"session_id": "s", "revision": revision}
        shown = await op(daemon, "session.show", session_id="s")
        assert shown["revision"] == 4
        assert shown["state"] == {"b": 2, **padded(MOST - 6)}


async def test_pages_go_from_the_newest_to_the_oldest(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        for number in range(6):
            await op(daemon, "session.new", session_id=f"s{number}")
        await op(daemon, "session.end", session_id="s3")
        for ended, ids in ((False, "s5 s4 s2 s1 s0"), (True, "s5 s4 s3 s2 s1 s0")):
            for limit in range(1, 8):
                pages: list[str] = []
                args: dict[str, Any] = {"limit": limit, "ended": ended}
                while True:
                    page = await op(daemon, "session.list", **args)
                    found = [one["session_id"] for one in page["sessions"]]
                    assert len(found) <= limit
                    pages += found
                    after = args["after"] = page["next"]
                    assert after == (None if len(pages) == len(ids.split()) else found[-1])
                    if after is None:
                        break
                    assert len(found) == limit
                assert pages == ids.split()
        page = await op(daemon, "session.list")
        assert (page["live"], page["busy"], page["ended"]) == (5, 0, 1)
        unknown = await op(daemon, "session.list", after="s33")
        assert unknown["message"] == "there is no session 's33'; did you mean 's3'?"
        same = await op(daemon, "session.new", session_id="s3")
        assert same["message"] == "there is a session 's3' already"
        assert same["details"]["pointer"] == "/session_id"
        forked = await op(daemon, "session.fork", session_id="s0", new_id="s3")
        assert forked["details"]["pointer"] == "/new_id"


async def test_the_newest_hundred_invocations_are_in_the_history_after_a_restart_too(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        await op(daemon, "session.new", session_id="s")
        content = {"op": "echo", "session_id": "s"}
        asked = []
        for _ in range(103):
            response = await begin(daemon, "m", "invoke", content).response()
            asked.append(response.request_id)
        shown = await op(daemon, "session.show", session_id="s")
    assert shown["invocations"] == 103
    assert [one["request_id"] for one in shown["history"]] == asked[3:]
    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        assert await op(daemon, "session.show", session_id="s") == shown


async def test_of_ended_sessions_the_last_thousand_are_kept(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        for number in range(1001):
            await op(daemon, "session.new", session_id=f"s{number}")
        for number in range(1001):
            await op(daemon, "session.end", ADA, session_id=f"s{number}")
        page = await op(daemon, "session.list", ended=True, limit=1000)
        assert (page["ended"], page["next"]) == (1000, None)
        assert page["sessions"][-1]["session_id"] == "s1"
        gone = await op(daemon, "session.show", session_id="s0")
        assert gone["details"]["reason"] == "unknown_session"
