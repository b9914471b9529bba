"""What principals see of each other: their modules', and their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.events import Log
from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from supervisor.kernel.operations import OPS
from supervisor.policy.lifecycle import State
from supervisor.policy.principals import ALL_SCOPES, EVERYTHING, Principal, Scope
from tests.factories import actor
from tests.kernel.conftest import Asker, begin, daemon_with, own
from tests.kernel.hooks.parties import hook
from tests.kernel.host_calls import allowing, caller, payload
from tests.principals import ADA

USER = frozenset({Scope.READ, Scope.INVOKE})
MAX = Principal("max", "http", USER, ("kv", "a"))
EVE = Principal("eve", "http", USER, EVERYTHING)
BOSS = Principal("boss", "http", ALL_SCOPES, ("x*",))
"""An admin, but not of `kv`."""


@asynccontextmanager
async def world(folder: Path, **options: Any) -> AsyncIterator[Kernel]:
    parties = [actor(folder, name=name) for name in ("kv", "x1")]
    async with daemon_with(folder, *parties, **options) as daemon:
        yield daemon


# Sessions.


@pytest.mark.parametrize(
    ("op", "more"),
    [
        ("session.show", {}),
        ("session.fork", {}),
        ("session.end", {}),
        ("session.patch", {"patch": {}}),
        ("session.cancel", {}),
        ("invoke", {"module": "kv", "op": "echo"}),
    ],
)
async def test_the_session_of_another_is_not_there(
    tmp_path: Path, op: str, more: dict[str, Any]
) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        await own(daemon, EVE, "session.new", session_id="hers")
        found = await own(daemon, MAX, op, session_id="hers", **more)
        of_none = await own(daemon, MAX, op, session_id="nobodys", **more)
        assert found.replace("hers", "nobodys") == of_none == "there is no session 'nobodys'"
        shown = await own(daemon, EVE, "session.show", session_id="hers")
        assert (shown["revision"], shown["ended"], shown["invocations"]) == (0, None, 0)
        assert shown["owner"] == "eve"
        assert isinstance(await own(daemon, EVE, op, session_id="hers", **more), dict)


async def test_a_session_says_nothing_of_modules_that_may_not_be_seen(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        await own(daemon, ADA, "session.new", session_id="s")
        for module in ("kv", "x1"):
            content = {"op": "echo", "session_id": "s"}
            assert (await begin(daemon, module, "invoke", content, ADA).document())["ok"]
        for who, seen in (
            (ADA, ["kv", "x1"]),
            (BOSS, ["x1"]),
            (ADA.narrowed(None, ["kv"]), ["kv"]),
        ):
            shown = await own(daemon, who, "session.show", session_id="s")
            assert [one["module"] for one in shown["history"]] == seen


async def test_sessions_are_listed_and_counted_for_their_owner(tmp_path: Path) -> None:
    def ids(page: dict[str, Any]) -> list[str]:
        return [one["session_id"] for one in page["sessions"]]

    async with world(tmp_path, memory=JournalOptions()) as daemon:
        for who, names in ((MAX, "ac"), (EVE, "b"), (MAX, "d")):
            for name in names:
                await own(daemon, who, "session.new", session_id=name)
        await own(daemon, MAX, "session.end", session_id="a")
        found = await own(daemon, MAX, "session.list", ended=True)
        assert ids(found) == ["d", "c", "a"]
        assert (found["live"], found["ended"]) == (2, 1)
        found = await own(daemon, MAX, "session.list", limit=1)
        assert (ids(found), found["next"]) == (["d"], "d")
        assert ids(await own(daemon, MAX, "session.list", after="d")) == ["c"]
        words = "there is no session 'b'; did you mean "
        assert (await own(daemon, MAX, "session.list", after="b")) in {
            "there is no session 'b'",
            *(f"{words}{one!r}?" for one in "acd"),
        }
        assert ids(await own(daemon, BOSS, "session.list")) == ["d", "b", "c"]
        assert (await own(daemon, EVE, "status"))["daemon"]["sessions"]["live"] == 1


async def test_whoever_forks_a_session_owns_the_fork(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        await own(daemon, MAX, "session.new", session_id="a")
        assert (await own(daemon, BOSS, "session.fork", session_id="a", new_id="b"))[
            "owner"
        ] == "boss"
        assert (await own(daemon, MAX, "session.show", session_id="b")).startswith("there is no")


# Assets.


async def asset_of(
    daemon: Kernel, folder: Path, who: Principal, session_id: str | None = None
) -> str:
    """Have `kv` hand over an asset for somebody; returns the daemon's id of it."""
    (folder / "file").write_text("x")
    about = {"assetId": "chart", "kind": "k", "mediaType": "text/plain"}
    lines = [
        {"version": "0", "type": "asset", "path": str(folder / "file"), **about},
        {"version": "0", "type": "done", "ok": True},
    ]
    args = {"lines": [json.dumps(one) for one in lines]}
    content = {"op": "say", "args": args, "session_id": session_id}
    asker = begin(daemon, "kv", "invoke", content, who)
    assert (await asker.response()).ok
    (event,) = asker.events
    found: str = event.registered.id  # type: ignore[union-attr]
    return found


async def test_assets_are_their_owners(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        his, hers = await asset_of(daemon, tmp_path, MAX), await asset_of(daemon, tmp_path, EVE)
        for who, seen, unseen in ((MAX, his, hers), (EVE, hers, his)):
            listed = (await own(daemon, who, "asset.list"))["assets"]
            assert [one["asset"] for one in listed] == [seen]
            for op in ("asset.show", "asset.read", "asset.content"):
                words = await own(daemon, who, op, asset=unseen)
                assert words.replace(unseen, "?") == (
                    await own(daemon, who, op, asset="f" * len(unseen))
                ).replace("f" * len(unseen), "?")
                # By the module's own id, and by how it begins, only what may be seen is found.
                named = await own(daemon, who, op, asset="chart")
                assert named == await own(daemon, who, op, asset=seen)
        assert {one["asset"] for one in (await own(daemon, ADA, "asset.list"))["assets"]} == {
            his,
            hers,
        }
        assert (await own(daemon, BOSS, "asset.list"))["assets"] == []  # they are of `kv`


async def test_what_comes_of_a_session_is_the_owners_of_the_session(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        await own(daemon, MAX, "session.new", session_id="s")
        asset = await asset_of(daemon, tmp_path, ADA, "s")
        shown = await own(daemon, MAX, "asset.show", asset=asset)
        assert shown["owner"] == "max"


# Questions to people.


async def test_who_may_not_see_a_question_cannot_answer_it(tmp_path: Path) -> None:
    gate = hook(
        tmp_path, answers={"tool:pre": {"action": "ask_user"}}, gate=["tool:pre"], modules=["kv"]
    )
    parties = actor(tmp_path, name="kv"), gate
    async with daemon_with(tmp_path, *parties) as daemon:
        followers = {
            who.name: begin(daemon, "supervisor", "approvals", {"follow": True}, who)
            for who in (MAX, EVE, BOSS)
        }
        asker = begin(daemon, "kv", "invoke", {"op": "echo"}, MAX)
        while not (waiting := await own(daemon, MAX, "approvals"))["approvals"]:
            await trio.lowlevel.checkpoint()
        (question,) = waiting["approvals"]
        for who in (EVE, BOSS):
            assert await own(daemon, who, "approvals") == {"approvals": []}
            refused = await own(daemon, who, "approve", id=question["id"])
            assert refused.startswith(f"no question {question['id']!r} waits")
            assert (await own(daemon, who, "status"))["daemon"]["approvals"]["waiting"] == 0
        assert (await own(daemon, MAX, "approve", id=question["id"]))["allowed"]
        assert (await asker.response()).ok
        await followers["max"].heard(2)
        assert not followers["eve"].events
        assert not followers["boss"].events


async def test_what_the_policy_asks_is_an_admins_to_answer(tmp_path: Path) -> None:
    operator = allowing(tmp_path, 'mode = "prompt"\n')
    async with daemon_with(tmp_path, caller(tmp_path, "a"), operator=operator) as daemon:
        args = {"calls": [payload("log", message="x")], "lines": []}
        asker = begin(daemon, "a", "invoke", {"op": "calls", "args": args}, MAX)
        while not (waiting := await own(daemon, MAX, "approvals"))["approvals"]:
            await trio.lowlevel.checkpoint()
        (question,) = waiting["approvals"]
        for answer in ("allow", "allow always"):
            words = await own(daemon, MAX, "approve", id=question["id"], answer=answer)
            assert "that needs the scope admin, and it has read, invoke" in words
        assert not daemon.grants.answers.find("a", "log")
        assert (await own(daemon, ADA, "approve", id=question["id"], answer="allow"))["allowed"]
        assert (await asker.response()).ok


async def test_who_follows_is_sent_what_may_be_seen(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        args = {"follow": True, "last": 0, "event": "module:invoke"}
        follower = begin(daemon, "supervisor", "events", args, MAX)
        await follower.heard(1)
        for who in (EVE, MAX, EVE, MAX):
            await begin(daemon, "kv", "invoke", {"op": "echo"}, who).response()
        await follower.heard(3)
        by = [one.fields["by"] for one in follower.events[1:]]  # type: ignore[union-attr, index, call-overload]
        assert by == [{"name": "max", "face": "http"}] * 2


# Modules, and what they say.


async def test_a_module_is_not_said_to_wait_for_one_that_may_not_be_seen(tmp_path: Path) -> None:
    lazy = {"start": "lazy", "timeouts": {"stop_s": 0.05, "exit_s": 0.05}}
    parties = [
        actor(tmp_path, name="kv", supervision={**lazy, "depends_on": ["x1"]}),
        actor(tmp_path, "never-ready", name="x1", supervision=lazy),
    ]
    async with daemon_with(tmp_path, *parties) as daemon:
        kv = daemon.fleet.modules["kv"]
        kv.start("the test")
        assert kv.waits_for == ("x1",)
        for who, named in ((ADA, ["x1"]), (MAX, [])):
            assert (await own(daemon, who, "status", module="kv"))["waits_for"] == named


async def test_no_failure_names_a_module_that_may_not_be_seen_as_one_that_is_waited_for(
    tmp_path: Path,
) -> None:
    lazy = {"start": "lazy", "timeouts": {"stop_s": 0.05, "exit_s": 0.05}}
    parties = [
        actor(tmp_path, name="kv", supervision={**lazy, "depends_on": ["x1"]}),
        actor(tmp_path, "never-ready", name="x1", supervision=lazy),
    ]
    async with daemon_with(tmp_path, *parties) as daemon:
        x1 = daemon.fleet.modules["x1"]
        for stopped in (False, True):  # it may still come, or it may not
            for who, sees in ((ADA, True), (MAX, False)):
                said = [
                    await begin(daemon, "kv", "invoke", content, who).document()
                    for content in ({"op": "echo", "timeout_s": 0.05},)
                ]
                said += [await begin(daemon, "kv", "describe", {}, who).document()]
                if stopped:
                    content = {"op": "wait", "args": {"modules": ["kv"]}}
                    said += [await begin(daemon, "supervisor", "invoke", content, who).document()]
                assert not any(one["ok"] for one in said)
                assert ["x1" in json.dumps(one["error"]) for one in said] == [sees] * len(said)
            x1.stop("the test")
            await daemon.fleet.wait_until(lambda: x1.state is State.DOWN or None)


async def test_who_may_not_ask_all_of_a_module_is_not_told_what_others_ask_of_it(
    tmp_path: Path,
) -> None:
    some = Principal("some", "http", USER, ("kv.echo",))
    async with daemon_with(tmp_path, actor(tmp_path, name="kv")) as daemon:
        begin(daemon, "kv", "invoke", {"op": "hang"}, ADA)
        for who, sees in ((MAX, True), (some, False)):
            content = {"op": "echo", "timeout_s": 0.05}
            error = (await begin(daemon, "kv", "invoke", content, who).document())["error"]
            assert "waiting for its turn" in error["message"]
            assert ("hang" in json.dumps(error)) is sees


async def test_status_and_wait_are_about_the_modules_that_may_be_seen(tmp_path: Path) -> None:
    async with world(tmp_path) as daemon:
        status = await own(daemon, MAX, "status")
        assert [one["name"] for one in status["modules"]] == ["kv"]
        assert status["quarantined"] == []
        assert status["daemon"]["policy"] is None
        assert await own(daemon, MAX, "wait") == {"modules": {"kv": "ready"}}
        assert await own(daemon, BOSS, "wait") == {"modules": {"x1": "ready"}}
        unknown = await own(daemon, MAX, "wait", modules=["x1"])
        assert unknown == "there is no module 'x1'"


async def test_ui_events_are_for_whose_they_are(tmp_path: Path) -> None:
    async with world(tmp_path) as daemon:
        watchers = {
            who.name: begin(daemon, "supervisor", "ui.subscribe", {}, who)
            for who in (ADA, MAX, EVE, BOSS)
        }
        for one in watchers.values():
            await one.heard(1)
        lines = [
            {"version": "0", "type": "ui_event", "event": "toast"},
            {"version": "0", "type": "done", "ok": True},
        ]
        args = {"lines": [json.dumps(one) for one in lines]}
        for who in (EVE, MAX):
            content = {"op": "say", "args": args}
            assert (await begin(daemon, "kv", "invoke", content, who).response()).ok
        await watchers["ada"].heard(3)
        await trio.testing.wait_all_tasks_blocked()
        assert {name: len(one.events) - 1 for name, one in watchers.items()} == {
            "ada": 2,
            "max": 1,
            "eve": 1,
            "boss": 0,
        }


async def test_a_module_serves_an_admin_in_the_session_of_another(tmp_path: Path) -> None:
    operator = allowing(tmp_path)
    parties = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(
        tmp_path, *parties, operator=operator, memory=JournalOptions()
    ) as daemon:
        await own(daemon, MAX, "session.new", session_id="s")
        calls = [
            payload("invoke", "1", module="b", op="echo", args={}, session_id="s"),
            payload("session.read", "2"),
        ]
        content = {"op": "calls", "args": {"calls": calls}, "session_id": "s"}
        document = await begin(daemon, "a", "invoke", content, ADA).document()
        assert [one["is_error"] for one in document["result"]["results"]] == [False, False]


# A connection that narrows itself.


async def test_a_connection_is_narrowed_from_the_next_request_on(tmp_path: Path) -> None:
    async with world(tmp_path) as daemon:
        party = Party(ADA)

        async def asked(tool: str, operation: str, **content: Any) -> dict[str, Any]:
            asker = Asker()
            daemon.begin(party, tool, operation, content, asker)
            return await asker.document()

        before = Asker()
        daemon.begin(party, "supervisor", "logs", {"module": "x1", "follow": True}, before)
        narrowed = await asked(
            "supervisor", "narrow", scopes=["read", "invoke"], modules=["kv.echo"]
        )
        assert narrowed["result"] == {
            "name": "ada",
            "face": "test",
            "scopes": ["read", "invoke"],
            "modules": ["kv.echo"],
        }
        assert (await asked("kv", "invoke", op="echo"))["ok"]
        assert not (await asked("kv", "invoke", op="whoami"))["ok"]
        assert not (await asked("x1", "invoke", op="echo"))["ok"]
        # What was begun before goes on.
        daemon.fleet.modules["x1"].log.stderr_lines("x1#1", ["later"])
        while not any(isinstance(one, Log) and one.message == "later" for one in before.events):
            await before.heard(len(before.events) + 1)
        again = await asked("supervisor", "narrow", scopes=["read", "admin"], modules=["*"])
        assert (again["result"]["scopes"], again["result"]["modules"]) == (["read"], ["kv.echo"])
        assert party.principal.name == "ada"
        other = await begin(daemon, "x1", "invoke", {"op": "echo"}).document()
        assert other["ok"]  # another connection of hers is as it was


async def test_a_bad_narrowing_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as daemon:
        party = Party(ADA)
        for args in ({"scopes": ["root"]}, {"modules": [""]}, {"modules": "kv"}, {"x": 1}):
            asker = Asker()
            daemon.begin(party, "supervisor", "narrow", args, asker)
            assert (await asker.document())["error"]["details"]["reason"] == "invalid_args"
        assert party.principal is ADA


def test_the_table_has_been_looked_at_with_owners_in_mind() -> None:
    # What shows or takes something that has an owner is held to it above; a new op comes here.
    owned = {op for op in OPS if op.split(".")[0] in {"session", "asset", "ui"}}
    assert owned | {"approvals", "approve", "events", "status", "invoke"} == {
        *("session.new", "session.list", "session.show", "session.fork", "session.end"),
        *(
            "session.patch",
            "session.prompt",
            "session.cancel",
            "asset.list",
            "asset.show",
            "asset.read",
            "asset.content",
            "ui.subscribe",
        ),
        *("approvals", "approve", "events", "status", "invoke"),
    }
