"""Of `test_owners.py`, what is bound to the structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from supervisor.policy.principals import Principal
from tests.factories import actor
from tests.kernel.conftest import Asker, begin, daemon_with, own
from tests.kernel.hooks.parties import hook
from tests.kernel.host_calls import allowing, caller
from tests.kernel.memory import flushed
from tests.kernel.remembering import Remembering
from tests.kernel.test_mcp_servers import served
from tests.kernel.test_owners import BOSS, EVE, MAX, USER, world
from tests.principals import ADA


async def told(daemon: Kernel, who: Principal, op: str, **args: Any) -> list[dict[str, Any]]:
    """Return the fields of all that an op sends, of what happened so far."""
    journal: Any = daemon.facts.journal
    assert await flushed(journal) is None
    asker = begin(daemon, "supervisor", op, args, who)
    assert (await asker.response()).ok
    return [one.fields for one in asker.events]  # type: ignore[union-attr, misc]


async def test_an_owner_is_remembered_and_who_has_none_is_an_admins(tmp_path: Path) -> None:
    recorder = Remembering()
    async with world(tmp_path / "1", recorder=recorder.again()) as daemon:
        await own(daemon, MAX, "session.new", session_id="new")
        await own(daemon, MAX, "session.new", session_id="old")
    revision, body = recorder.kept["session", "old"]
    older = {name: one for name, one in json.loads(body).items() if name != "owner"}
    recorder.kept["session", "old"] = revision, msgspec.json.encode(older)
    async with world(tmp_path / "2", recorder=recorder.again()) as daemon:
        assert (await own(daemon, MAX, "session.show", session_id="new"))["owner"] == "max"
        assert "there is no" in await own(daemon, MAX, "session.show", session_id="old")
        assert (await own(daemon, BOSS, "session.show", session_id="old"))["owner"] is None


# Entries of the journal.


async def test_who_had_a_module_stopped_is_in_the_journal(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        await own(daemon, ADA, "stop", module="kv")
        assert "needs the scope admin" in await own(daemon, MAX, "start", module="kv")
        entry = (await told(daemon, ADA, "events", event="daemon:command"))[-1]
        assert entry["data"] == {"op": "stop", "module": "kv"}
        assert entry["by"]["name"] == ADA.name


async def test_entries_are_seen_by_whose_they_are_and_by_module(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        await own(daemon, MAX, "session.new", session_id="s")
        of = {
            "max kv": (MAX, "kv", None),
            "max kv s": (MAX, "kv", "s"),
            "ada kv s": (ADA, "kv", "s"),
            "eve kv": (EVE, "kv", None),
            "eve x1": (EVE, "x1", None),
        }
        ids: dict[str, str] = {}
        for what, (who, module, session_id) in of.items():
            content = {"op": "echo", "session_id": session_id}
            response = await begin(daemon, module, "invoke", content, who).response()
            assert response.ok
            ids[response.request_id] = what
        await own(daemon, MAX, "session.end", session_id="s")

        async def seen(who: Principal, **args: Any) -> set[str]:
            entries = (await told(daemon, who, "events", last=1000, **args))[1:]
            return {
                ids.get(one.get("request_id", ""))
                or f"{one['event'].partition(':')[0]} {one.get('module', '')}".strip()
                for one in entries
            }

        everything = {*of, "daemon", "session", "mount kv", "mount x1", "module kv", "module x1"}
        assert await seen(ADA) == everything
        assert await seen(MAX) == {
            *("max kv", "max kv s", "ada kv s", "session", "mount kv", "module kv")
        }
        assert await seen(EVE) == everything - {"max kv", "max kv s", "ada kv s", "session"}
        assert await seen(BOSS) == {"eve x1", "session", "mount x1", "module x1"}
        assert await seen(Principal("eve", "http", USER, ("kv.echo",))) == {"eve kv"}
        assert await seen(MAX, event="module:invoke", module="kv") == {
            *("max kv", "max kv s", "ada kv s")
        }


async def test_the_last_entries_are_the_last_that_may_be_seen(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        for who in (MAX, MAX, *[EVE] * 20):
            await begin(daemon, "kv", "invoke", {"op": "echo"}, who).response()
        found = await told(daemon, MAX, "events", last=2, event="module:invoke")
        assert [one["by"]["name"] for one in found[1:]] == ["max", "max"]


async def test_an_entry_that_is_not_understood_is_an_admins(tmp_path: Path) -> None:
    async with world(tmp_path, memory=JournalOptions()) as daemon:
        recorder: Any = daemon.facts.journal
        odd = msgspec.Raw(b'"somebody"')  # as no version wrote it
        recorder.record("daemon:stop", data={"cause": "a test"}, by=odd)
        found = await told(daemon, EVE, "events", event="daemon:stop")
        assert len(found) == 1
        assert len(await told(daemon, ADA, "events", event="daemon:stop")) == 2


async def test_a_module_asks_as_whoever_asked_it(tmp_path: Path) -> None:
    parties = caller(tmp_path, "a"), caller(tmp_path, "b"), actor(tmp_path, name="kv")
    operator = allowing(tmp_path)
    memory = JournalOptions()
    async with daemon_with(tmp_path, *parties, operator=operator, memory=memory) as daemon:

        async def called(who: Principal, *path: str) -> list[dict[str, Any]]:
            args = {"path": list(path)}
            document = await begin(
                daemon, "a", "invoke", {"op": "relay", "args": args}, who
            ).document()
            assert document["ok"], document
            found: list[dict[str, Any]] = document["result"]["results"]
            return found

        (inner,) = await called(EVE, "b")
        assert not inner["is_error"]
        # `b` is not among the modules that max may use, whatever `a` was granted.
        (inner,) = await called(MAX, "b")
        assert inner["is_error"]
        assert inner["error"]["message"].startswith("there is no module 'b'")
        # Nor through somebody who may use it.
        only = Principal("max", "http", USER, ("a", "b.relay"))
        ((inner),) = await called(only, "b", "kv")
        (innermost,) = inner["output"]["result"]["results"]
        assert innermost["error"]["message"].startswith("there is no module 'kv'")
        found = await told(daemon, ADA, "events", event="module:invoke", last=100)
        by = {(one["module"], one["by"]["name"], one["status"]) for one in found[1:]}
        assert by == {
            ("a", "eve", "ok"),
            ("b", "eve", "ok"),
            ("a", "max", "ok"),
            ("b", "max", "error"),
            ("b", "max", "ok"),
            ("kv", "max", "error"),
        }
        decided = await told(daemon, ADA, "events", event="policy:decision", last=100)
        assert {one["by"]["name"] for one in decided[1:]} == {"eve", "max"}


async def test_gates_and_hooks_are_asked_by_the_daemon(tmp_path: Path) -> None:
    gate = hook(tmp_path, gate=["tool:pre"], modules=["kv"], observe=["session:*"])
    parties = actor(tmp_path, name="kv"), gate
    async with daemon_with(tmp_path, *parties, memory=JournalOptions()) as daemon:
        assert (await begin(daemon, "kv", "invoke", {"op": "echo"}, MAX).response()).ok
        found = await told(daemon, ADA, "events", event="module:invoke")
        assert {one["module"]: one["by"] for one in found[1:]} == {
            "h": {"name": "supervisor", "face": "daemon"},
            "kv": {"name": "max", "face": "http"},
        }


async def test_the_journal_says_who_had_the_daemon_end(tmp_path: Path) -> None:
    recorder = Remembering()
    async with world(tmp_path, recorder=recorder) as daemon:
        await own(daemon, ADA, "shutdown")
    (entry,) = [one for one in recorder.entries if one["event"] == "daemon:stop"]
    assert entry["by"] == {"name": "ada", "face": "test"}


async def test_a_narrowing_does_not_wait_for_a_module_that_is_asked_for_its_list(
    tmp_path: Path,
) -> None:
    party = Party(ADA)
    async with daemon_with(tmp_path, served(tmp_path, "legacy", "mute")) as daemon:

        async def said(op: str, **args: Any) -> dict[str, Any]:
            asker = Asker()
            content = {"op": op, "args": args}
            daemon.begin(party, "supervisor", "invoke", content, asker)
            return await asker.document()

        daemon.begin(party, "server", "invoke", {"op": "nope"}, Asker())
        assert party.order
        assert (await said("narrow", scopes=["read"]))["ok"]
        assert (await said("stop", module="server"))["error"]["details"]["reason"] == "scope"
