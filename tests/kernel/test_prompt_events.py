"""Prompts as their client, the subscribers of the session, and other prompts see them: whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing

from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.agents import agent, op
from tests.kernel.conftest import Asker, begin, daemon_with
from tests.kernel.test_prompts import Prompted, payloads

ENOUGH = Stopped(Reason.CLIENT, "enough")


def told(asker: Asker) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(one) for one in asker.events]


def by_host(event: str, **payload: Any) -> dict[str, Any]:
    return {**by_module(event, **payload), "by_host": True}


def by_module(event: str, **payload: Any) -> dict[str, Any]:
    return {"version": "0", "type": "ui_event", "event": event, "payload": payload}


async def test_a_prompt_is_told_of_from_its_arrival_to_its_answer(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        watcher = begin(
            daemon, "supervisor", "invoke", {"op": "ui.subscribe", "args": {"session_id": "s"}}
        )
        await watcher.heard(1)
        asked = Prompted(daemon, "say one two")
        document = await asked.document()
        await trio.testing.wait_all_tasks_blocked()
    message = {"message_id": document["result"]["message_id"]}
    received = {
        "content_preview": "say one two",
        "content_length": 11,
        "priority": "normal",
    }
    serving_it = {"requestId": document["request_id"]}
    chunks = [serving_it | by_module("message.chunk", content=one) for one in ("one", "two")]
    to_client = [
        by_host("prompt.received", **message, **received),
        by_host("prompt.started", **message),
        by_host("message.start", **message),
        *chunks,
        by_host("message.complete", **message, content="onetwo", done=True),
    ]
    assert told(asked) == to_client
    assert document["result"] == {**message, "content": "onetwo", "result": {"words": 2}}
    known = {name: document[name] for name in ("module", "op", "session_id")}
    assert known == {"module": "a", "op": "execute", "session_id": "s"}
    seen = told(watcher)[1:]
    origins = [one.pop("origin") for one in seen]
    to_client.insert(2, by_host("session.status_changed", status="busy"))
    to_client += [by_host("session.status_changed", status="idle"), by_host("agent.idle")]
    assert seen == to_client
    leading = {"module": "a", "op": "execute", "session_id": "s"}
    serving = {
        **leading,
        "request_id": document["request_id"],
        "span_id": origins[4]["span_id"],
    }
    assert origins == [
        *[leading] * 4,
        *[serving] * 3,
        leading,
        {"session_id": "s"},
    ]


@pytest.mark.parametrize(("length", "dots"), [(100, ""), (101, "...")])
async def test_of_a_prompt_a_hundred_characters_are_told(
    length: int, dots: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        content = "x" * length
        asked = Prompted(daemon, content, priority="urgent")
        result = await asked.result()
    assert payloads(asked.events, "prompt.received") == [
        {
            "message_id": result["message_id"],
            "content_preview": "x" * 100 + dots,
            "content_length": length,
            "priority": "urgent",
        }
    ]
    assert result["result"] == {"prompt": content}


async def test_sixty_four_prompts_wait_and_one_more_is_refused(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        watched = {"session_id": "s", "events": ["prompt.rejected"]}
        watcher = begin(daemon, "supervisor", "invoke", {"op": "ui.subscribe", "args": watched})
        first = Prompted(daemon, "hang")
        await first.heard_of("agent.thinking")
        waiting = [Prompted(daemon, "say hi") for _ in range(64)]
        for one in waiting:
            await one.heard_of("prompt.queued")
        refused, rejected = Prompted(daemon, "x"), Prompted(daemon, "x", conflict_strategy="reject")
        full, busy = await refused.error(), await rejected.error()
        assert refused.events == rejected.events == []
        assert (full["details"]["reason"], full["message"]) == (
            "queue_full",
            "64 prompts wait in the session 's' already",
        )
        assert (busy["details"]["reason"], busy["message"]) == (
            "session_busy",
            "the session 's' is busy with another prompt",
        )
        assert full["details"]["session_id"] == busy["details"]["session_id"] == "s"
        await trio.testing.wait_all_tasks_blocked()
        reasons = [
            (one["payload"]["reason"], one["payload"]["conflict_strategy"])
            for one in told(watcher)[1:]
        ]
        assert reasons == [(full["message"], "queue"), (busy["message"], "reject")]
        assert [payloads(one.events, "prompt.queued")[0]["position"] for one in waiting] == [
            *range(1, 65)
        ]
        cancelled = await op(daemon, "session.cancel", session_id="s", queued=False)
        assert cancelled == {"session_id": "s", "cancelled": 1}
        for one in waiting:
            assert (await one.result())["content"] == "hi"
        await trio.testing.wait_all_tasks_blocked()
        shown = await op(daemon, "session.show", session_id="s")
        assert (shown["queued"], shown["in_flight"], shown["status"]) == (0, 0, "idle")


async def test_a_prompt_that_is_cancelled_while_it_waits_was_never_begun(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        first, second, third = (Prompted(daemon, one) for one in ("hang", "say 2", "say 3"))
        await third.heard_of("prompt.queued")
        assert second.handle is not None
        second.handle.cancel(ENOUGH)
        second.handle.cancel(ENOUGH)
        error = await second.error()
        assert (error["code"], error["message"]) == ("cancelled", "enough")
        assert second.told() == ["prompt.received", "prompt.queued", "message.error"]
        [wrong] = payloads(second.events, "message.error")
        [queued] = payloads(second.events, "prompt.queued")
        assert queued == {"message_id": wrong["message_id"], "position": 1}
        assert wrong["error"] == "enough"
        response = await second.response()
        assert (response.module, response.op, response.session_id) == ("a", "execute", "s")
        assert first.handle is not None
        first.handle.cancel(ENOUGH)
        assert (await third.result())["content"] == "3"
        assert (await op(daemon, "session.show", session_id="s"))["status"] == "idle"


async def test_of_what_a_module_says_a_mebibyte_of_characters_is_its_answer(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        words = ["a" * 600_000, "b" * 600_000, "c"]
        asked = Prompted(daemon, f"say {' '.join(words)}")
        result = await asked.result()
        assert [one["content"] for one in payloads(asked.events, "message.chunk")] == words
    assert result["content"] == ("a" * 600_000 + "b" * 600_000)[: 1 << 20]


async def test_a_module_that_goes_while_a_prompt_waits_fails_that_prompt(tmp_path: Path) -> None:
    roles = {"agent": "a"}
    async with daemon_with(tmp_path, agent(tmp_path), actor(tmp_path)) as daemon:
        other = await op(daemon, "session.new", session_id="s", roles={"agent": "m"})
        assert other["message"] == (
            "the session's agent: m is of the kind tool; modules of the kind agent: a"
        )
        assert other["details"]["pointer"] == "/roles/agent"
        missing = await op(daemon, "session.new", session_id="s", roles={"agent": "aa"})
        assert missing["message"].startswith("the session's agent: there is no module 'aa'")
        assert (missing["details"]["module"], missing["details"]["role"]) == ("aa", "agent")
        made = await op(daemon, "session.new", session_id="s", roles=roles)
        assert made["roles"] == roles
        ended = await op(daemon, "session.end", session_id="s")
        assert ended["cancelled"] == 0
        late = await Prompted(daemon, "say hi").error()
        assert late["details"]["reason"] == "session_ended"


async def test_subscribers_are_told_where_a_session_begins_and_ends(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        args = {"events": ["session.*"]}
        watcher = begin(daemon, "supervisor", "invoke", {"op": "ui.subscribe", "args": args})
        await watcher.heard(1)
        await op(daemon, "session.new", session_id="s", title="Hall")
        await op(daemon, "session.fork", session_id="s", new_id="t")
        await op(daemon, "session.end", session_id="s")
        await trio.testing.wait_all_tasks_blocked()
    seen = [(one["event"], one["payload"], one["origin"]) for one in told(watcher)[1:]]
    assert seen == [
        ("session.created", {"title": "Hall"}, {"session_id": "s"}),
        ("session.created", {"title": "Hall"}, {"session_id": "t"}),
        ("session.deleted", {"title": "Hall"}, {"session_id": "s"}),
    ]
