"""One principal takes all that there is of something: the others keep theirs, and find room."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from supervisor.kernel.kernel import AssetOptions, Capacity, Kernel, UiBounds
from supervisor.policy.principals import EVERYTHING, Principal, Scope
from supervisor.policy.session import SessionLimits
from tests.dialects.registry import speaking
from tests.factories import actor
from tests.kernel.agents import agent
from tests.kernel.conftest import Asker, begin, daemon_with, own

USER = frozenset({Scope.READ, Scope.INVOKE})
EVE = Principal("eve", "http", USER, EVERYTHING)
"""Takes all she can get."""
MAX = Principal("max", "http", USER, EVERYTHING)
BOUNDS = SessionLimits()
DONE = {"version": "0", "type": "done", "ok": True}


async def new(daemon: Kernel, who: Principal, name: str, **args: Any) -> Any:
    return await own(daemon, who, "session.new", session_id=name, **args)


async def shown(daemon: Kernel, who: Principal, name: str) -> Any:
    return await own(daemon, who, "session.show", session_id=name)


@pytest.mark.fault(40)
async def test_who_begins_all_sessions_that_there_may_be_loses_the_oldest_to_others(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path) as daemon:
        await new(daemon, MAX, "his")
        for number in range(BOUNDS.live - 1):
            await new(daemon, EVE, f"e{number}")
        assert "10000 sessions that have not ended" in await new(daemon, EVE, "one-more")
        watcher = begin(daemon, "supervisor", "ui.subscribe", {"events": ["session.*"]}, EVE)
        await watcher.heard(1)
        for number in range(3):
            assert (await new(daemon, MAX, f"his-{number}"))["ended"] is None
        ended = [(await shown(daemon, EVE, f"e{number}"))["ended"] for number in range(4)]
        assert [one is not None for one in ended] == [True, True, True, False]
        assert (await shown(daemon, MAX, "his"))["ended"] is None
        await watcher.heard(4)
        told = [(one.event, one.origin["session_id"]) for one in watcher.events[1:]]  # type: ignore[union-attr]
        assert told == [("session.deleted", f"e{number}") for number in range(3)]


@pytest.mark.fault(40)
async def test_what_is_at_work_in_a_session_is_spared_and_else_is_told_why_it_ends(
    tmp_path: Path,
) -> None:
    state = {"text": "x" * (BOUNDS.state_bytes - 100)}
    soon = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
    modules = actor(tmp_path, name="kv", supervision=soon), agent(tmp_path)
    async with daemon_with(tmp_path, *modules) as daemon:
        sessions = BOUNDS.live_bytes // BOUNDS.state_bytes
        for number in range(sessions):
            await new(daemon, EVE, f"e{number}", state=state, roles={"agent": "a"})

        def works(name: str) -> Asker:
            return begin(daemon, "kv", "invoke", {"op": "hang", "session_id": name}, EVE)

        def prompts() -> Asker:
            args = {"session_id": "e0", "content": "hang"}
            return begin(
                daemon, "supervisor", "invoke", {"op": "session.prompt", "args": args}, EVE
            )

        at_work = works("e0")
        await new(daemon, MAX, "his", state=state)
        assert (await shown(daemon, EVE, "e0"))["status"] == "busy"
        assert (await shown(daemon, EVE, "e1"))["status"] == "ended"
        others = [works(f"e{number}") for number in range(2, sessions)]
        both = [prompts(), prompts()]
        assert (await shown(daemon, EVE, "e0"))["queued"] == 1
        await new(daemon, MAX, "his-2", state=state)
        for asker in (at_work, *both):
            error = (await asker.document())["error"]
            words = "the session 'e0' ended: others needed room, and eve had most of it"
            assert (error["message"], error["details"]["reason"]) == (words, "queue_full")
        assert (await shown(daemon, EVE, "e0"))["status"] == "ended"
        assert not any(one.responses for one in others)
        for number in range(3, sessions):
            await own(daemon, EVE, "session.end", session_id=f"e{number}")
        assert not others[0].responses


@pytest.mark.fault(40)
async def test_who_ends_more_sessions_than_are_remembered_has_only_its_own_forgotten(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path) as daemon:
        await new(daemon, MAX, "his")
        await own(daemon, MAX, "session.end", session_id="his")
        for number in range(BOUNDS.ended + 1):
            await new(daemon, EVE, f"e{number}")
            await own(daemon, EVE, "session.end", session_id=f"e{number}")
        assert (await shown(daemon, MAX, "his"))["status"] == "ended"
        for number, known in ((0, False), (1, False), (2, True)):
            assert isinstance(await shown(daemon, EVE, f"e{number}"), dict) is known


@pytest.mark.fault(40)
async def test_who_fills_the_room_for_state_makes_way_for_what_others_patch(
    tmp_path: Path,
) -> None:
    state = {"text": "x" * (BOUNDS.state_bytes - 100)}
    async with daemon_with(tmp_path) as daemon:
        await new(daemon, MAX, "his")
        for number in range(BOUNDS.live_bytes // BOUNDS.state_bytes):
            await new(daemon, EVE, f"e{number}", state=state)
        refused = await new(daemon, EVE, "one-more", state=state)
        assert "all sessions together would have" in refused
        for key in "abc":
            patch = {key: "y" * 300_000}
            patched = await own(daemon, MAX, "session.patch", session_id="his", patch=patch)
            assert isinstance(patched, dict), patched
        assert [(await shown(daemon, EVE, f"e{one}"))["status"] for one in (0, 1)] == [
            "ended",
            "idle",
        ]


async def hand_over(daemon: Kernel, who: Principal, *assets: dict[str, Any]) -> list[str]:
    """Have a module hand over assets for somebody; returns the reasons of the warnings."""
    lines = [{"version": "0", "kind": "k", "mediaType": "text/plain", **one} for one in assets]
    args = {"lines": [json.dumps(one) for one in (*lines, DONE)]}
    response = await begin(daemon, "kv", "invoke", {"op": "say", "args": args}, who).response()
    assert response.ok
    return [one.reason for one in response.notices]


def a_file(path: Path, content: str, **more: Any) -> dict[str, Any]:
    path.write_text(content)
    return {"type": "asset", "assetId": path.name, "path": str(path), **more}


async def names(daemon: Kernel, who: Principal) -> list[str]:
    return [one["asset_id"] for one in (await own(daemon, who, "asset.list"))["assets"]]


@pytest.mark.fault(40)
async def test_who_registers_more_assets_than_are_remembered_has_only_its_own_forgotten(
    tmp_path: Path,
) -> None:
    long = {"metadata": {"text": "x" * 65_000}}
    async with daemon_with(tmp_path, actor(tmp_path, name="kv")) as daemon:
        await hand_over(daemon, MAX, a_file(tmp_path / "his", "x"))
        for number in range(45):
            told = [a_file(tmp_path / f"e{number}-{one}", "x", **long) for one in range(12)]
            await hand_over(daemon, EVE, *told)
        assert await names(daemon, MAX) == ["his"]
        listed = await own(daemon, EVE, "asset.list")
        assert listed["forgotten"] > 0
        assert listed["assets"][-1]["asset_id"] == "e44-11"
        assert listed["assets"][0]["asset_id"] != "e0-0"


@pytest.mark.fault(40)
async def test_who_fills_the_room_for_copies_makes_way_for_what_others_hand_over(
    tmp_path: Path,
) -> None:
    options = AssetOptions(copy=True, store_bytes=1000)
    async with daemon_with(tmp_path, actor(tmp_path, name="kv"), asset_options=options) as daemon:
        assert not await hand_over(daemon, MAX, a_file(tmp_path / "first", "f" * 50))
        for number in range(9):
            assert not await hand_over(
                daemon, EVE, a_file(tmp_path / f"e{number}", f"{number}" * 100)
            )
        assert await hand_over(daemon, EVE, a_file(tmp_path / "more", "m" * 100)) == [
            "asset_not_copied"
        ]
        assert not await hand_over(daemon, MAX, a_file(tmp_path / "his", "h" * 250))
        assert await names(daemon, MAX) == ["first", "his"]
        assert await names(daemon, EVE) == [f"e{number}" for number in range(2, 9)]
        for name in ("e2", "first"):
            who = MAX if name == "first" else EVE
            assert (await own(daemon, who, "asset.read", asset=name))["copy"] is not None
        assert await hand_over(daemon, MAX, a_file(tmp_path / "much", "m" * 900)) == [
            "asset_not_copied"
        ]
        assert await names(daemon, EVE) == [f"e{number}" for number in range(2, 9)]


@pytest.mark.fault(40)
@pytest.mark.usefixtures("made_up_dialects")
async def test_files_that_come_in_pieces_find_the_same_room(tmp_path: Path) -> None:
    async def carry(daemon: Kernel, who: Principal, content: bytes) -> list[str]:
        args = {"data": base64.b64encode(content).decode(), "piece": 100}
        response = await begin(
            daemon, "dice", "invoke", {"op": "carry", "args": args}, who
        ).response()
        return [one.reason for one in response.notices]

    made, options = speaking(tmp_path, "carrier"), AssetOptions(store_bytes=2000)
    async with daemon_with(tmp_path, made, asset_options=options) as daemon:
        assert not await carry(daemon, MAX, b"m" * 300)
        for number in range(4):
            assert not await carry(daemon, EVE, b"%d" % number * 400)
        assert await carry(daemon, EVE, b"e" * 400) == ["asset_not_copied"]
        assert not await carry(daemon, MAX, b"n" * 500)
        assert len(await names(daemon, MAX)) == 2
        assert len(await names(daemon, EVE)) == 3


async def watching(daemon: Kernel, who: Principal) -> Asker:
    watcher = begin(daemon, "supervisor", "ui.subscribe", {}, who)
    await watcher.heard(1)
    return watcher


@pytest.mark.fault(40)
async def test_who_opens_all_subscriptions_loses_the_oldest_to_others(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, bounds=Capacity(ui=UiBounds(subscriptions=6))) as daemon:
        his = await watching(daemon, MAX)
        hers = [await watching(daemon, EVE) for _ in range(5)]
        refused = await begin(daemon, "supervisor", "ui.subscribe", {}, EVE).document()
        assert refused["error"]["details"]["reason"] == "queue_full"
        more = await watching(daemon, MAX)
        error = (await hers[0].document())["error"]
        assert error["details"]["reason"] == "queue_full"
        assert "others needed room for theirs, and eve had most" in error["message"]
        await trio.testing.wait_all_tasks_blocked()
        assert not any(one.responses for one in (his, more, *hers[1:]))


@pytest.mark.fault(40)
async def test_globs_of_one_subscriber_keep_no_other_one_out(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        eve = [EVE.narrowed(modules=[f"{name}{one}" for one in range(48)]) for name in "ab"]
        hers = [await watching(daemon, one) for one in eve]
        third = EVE.narrowed(modules=[f"c{one}" for one in range(48)])
        refused = (await begin(daemon, "supervisor", "ui.subscribe", {}, third).document())["error"]
        assert "would have 144 globs, and may have 100" in refused["message"]
        narrow = MAX.narrowed(modules=[f"m{one}" for one in range(8)])
        his = await watching(daemon, narrow)
        assert (await hers[0].document())["error"]["details"]["reason"] == "queue_full"
        await trio.testing.wait_all_tasks_blocked()
        assert not [*his.responses, *hers[1].responses]
