"""Prompts: who serves them, what is told of them, in what order, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Reason
from protocol.events import Progress, UiEvent
from protocol.host_events import HostUiEvent
from supervisor.kernel.kernel import Kernel, Party
from supervisor.policy.principals import Principal, Scope
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.agents import agent, op
from tests.kernel.conftest import Asker, begin, daemon_with
from tests.kernel.host_calls import allowing
from tests.principals import ADA


class Prompted(Asker):
    """Who asked a session, and the handle of that."""

    def __init__(self, daemon: Kernel, content: str, **args: Any) -> None:
        super().__init__()
        given = {"session_id": "s", "content": content, **args}
        asked = {"op": "session.prompt", "args": given}
        self.handle = daemon.begin(Party(ADA), "supervisor", "invoke", asked, self)

    async def result(self) -> Any:
        return (await self.document())["result"]

    async def error(self) -> Any:
        return (await self.document())["error"]

    def told(self) -> list[str]:
        return [one.event for one in self.events if isinstance(one, UiEvent)]

    async def heard_of(self, name: str) -> None:
        while name not in self.told():
            await self._heard.park()


def payloads(events: list[Progress], name: str) -> list[dict[str, Any]]:
    found = [one for one in events if isinstance(one, UiEvent) and one.event == name]
    return [one.payload for one in found if isinstance(one.payload, dict)]


async def test_the_only_agent_is_given_a_prompt_and_what_it_says_is_told(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        asked = Prompted(daemon, "say one two")
        result = await asked.result()
        assert asked.told() == [
            "prompt.received", "prompt.started", "message.start",
            "message.chunk", "message.chunk", "message.complete",
        ]  # fmt: skip
        assert (result["content"], result["result"]) == ("onetwo", {"words": 2})
        [whole] = payloads(asked.events, "message.complete")
        assert whole == {"message_id": result["message_id"], "content": "onetwo", "done": True}
        response = await asked.document()
        assert (response["module"], response["op"], response["session_id"]) == ("a", "execute", "s")
        assert (await op(daemon, "session.show", session_id="s"))["roles"] == {"agent": "a"}
        by_host = [one for one in asked.events if isinstance(one, HostUiEvent)]
        assert len(by_host) == 4


@pytest.mark.parametrize(
    ("content", "text", "told"),
    [
        ("text", "mine", None),
        ("log deep thought", "", {"thought": "deep thought\n", "level": "info"}),
    ],
)
async def test_a_text_in_the_result_is_the_answer_and_a_log_is_a_thought(
    content: str, text: str, told: dict[str, Any] | None, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        asked = Prompted(daemon, content)
        assert (await asked.result())["content"] == text
        assert payloads(asked.events, "agent.thinking") == ([] if told is None else [told])


async def test_a_failure_is_told_in_both_vocabularies(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        asked = Prompted(daemon, "fail")
        assert (await asked.error())["code"] == "wet"
        [told] = payloads(asked.events, "message.error")
        assert (told["error"], told["code"], told["details"]["code"]) == (
            "too wet", "TOOL_ERROR", "wet",
        )  # fmt: skip


async def test_an_orchestrator_is_told_with_whom_to_work(tmp_path: Path) -> None:
    crew = [agent(tmp_path, kind, kind) for kind in ("orchestrator", "context", "provider", "tool")]
    roles = {one: one for one in ("orchestrator", "context", "provider")} | {"tools": ["tool"]}
    async with daemon_with(tmp_path, *crew) as daemon:
        await op(daemon, "session.new", session_id="s", roles=roles)
        answer = await Prompted(daemon, "args").result()
        assert answer["result"] == {
            "prompt": "args", "context": "context", "provider": "provider", "tools": ["tool"],
        }  # fmt: skip
        forked = await op(daemon, "session.fork", session_id="s", new_id="t")
        assert forked["roles"] == roles
        other = await op(daemon, "session.fork", session_id="s", roles={"orchestrator": "tool"})
        assert other["details"]["pointer"] == "/roles/orchestrator"


@pytest.mark.parametrize(
    ("roles", "reason", "words"),
    [
        ({"agent": "b"}, "unknown_module", "the session's agent: there is no module 'b'"),
        ({"agent": "m"}, "invalid_args", "of the kind tool; modules of the kind agent: a"),
        ({"agent": "a", "orchestrator": "a"}, "invalid_args", "not both"),
        ({"tools": ["m"]}, "invalid_args", "tools are what an orchestrator works with"),
    ],
)
async def test_roles_that_nobody_can_play_are_refused(
    roles: dict[str, Any], reason: str, words: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, agent(tmp_path), actor(tmp_path)) as daemon:
        error = await op(daemon, "session.new", session_id="s", roles=roles)
        assert error["details"]["reason"] == reason
        assert words in error["message"]
        assert (await op(daemon, "session.list"))["sessions"] == []


@pytest.mark.parametrize(
    ("names", "words"),
    [([], "no module of the kind agent or orchestrator"), (["a", "b"], "several agents, a, b")],
)
async def test_without_a_name_there_has_to_be_one_agent(
    names: list[str], words: str, tmp_path: Path
) -> None:
    parties = [agent(tmp_path, name) for name in names] or [actor(tmp_path)]
    async with daemon_with(tmp_path, *parties) as daemon:
        await op(daemon, "session.new", session_id="s")
        asked = Prompted(daemon, "say hi")
        error = await asked.error()
        assert error["details"]["reason"] == "no_agent"
        assert words in error["message"]
        assert asked.events == []


async def test_prompts_of_a_session_run_one_at_a_time_the_urgent_first(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"supervision": {"concurrency": 8}}
    async with daemon_with(tmp_path, agent(tmp_path, **fields)) as daemon:
        await op(daemon, "session.new", session_id="s")
        first = Prompted(daemon, "hang")
        await first.heard_of("agent.thinking")
        ended: list[str] = []
        waiting = {
            name: Prompted(daemon, f"say {name}", priority=name.rstrip("2"))
            for name in ("low", "normal", "urgent", "high", "normal2", "urgent2")
        }
        places = [payloads(one.events, "prompt.queued")[0]["position"] for one in waiting.values()]
        assert places == [1, 1, 1, 2, 4, 2]
        assert (await op(daemon, "session.show", session_id="s"))["queued"] == 6
        for name, one in waiting.items():
            one.finished = noting(one, ended, name)  # type: ignore[method-assign, assignment]
        rejected = Prompted(daemon, "say no", conflict_strategy="reject")
        assert (await rejected.error())["details"]["reason"] == "session_busy"
        assert first.handle is not None
        first.handle.cancel(Stopped(Reason.CLIENT, "enough"))
        assert (await first.error())["code"] == "cancelled"
        for one in waiting.values():
            await one.result()
        assert ended == ["urgent", "urgent2", "high", "normal", "normal2", "low"]


def noting(asker: Asker, ended: list[str], name: str) -> Callable[[Any], None]:
    finished = asker.finished

    def note(response: Any) -> None:
        ended.append(name)
        finished(response)

    return note


@pytest.mark.parametrize(
    ("how", "args", "others"),
    [("session.cancel", {}, 0), ("session.cancel", {"force": True}, 1), ("session.end", {}, 1)],
)
async def test_all_prompts_of_a_session_can_be_ended(
    how: str, args: dict[str, Any], others: int, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, agent(tmp_path), actor(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        running, waiting = Prompted(daemon, "hang"), Prompted(daemon, "say hi")
        await running.heard_of("agent.thinking")
        plain = begin(daemon, "m", "invoke", {"op": "hang", "session_id": "s" if others else None})
        assert (await op(daemon, how, session_id="s", **args))["cancelled"] == 2 + others
        for one in (running, waiting, *([plain] if others else [])):
            assert (await one.document())["error"]["code"] == "cancelled"
        assert "prompt.started" not in waiting.told()
        shown = await op(daemon, "session.show", session_id="s")
        assert (shown["queued"], shown["in_flight"]) == (0, 0)


@pytest.mark.parametrize("kind", ["agent", "tool"])
async def test_calls_of_tools_are_told_of_agents_and_of_nobody_else(
    kind: str, tmp_path: Path
) -> None:
    caller = agent(tmp_path, "a", kind, capabilities=["module.invoke"])
    parties = (caller, actor(tmp_path))
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        asked = begin(daemon, "a", "invoke", {"op": "execute", "args": {"prompt": "call m"}})
        assert (await asked.document())["result"] == "False"
        if kind == "tool":
            assert asked.events == []
            return
        [started] = payloads(asked.events, "tool.call_start")
        [ended] = payloads(asked.events, "tool.call_complete")
        assert (started["tool_name"], started["arguments"]) == ("m.echo", {"n": 1})
        assert ended["tool_call_id"] == started["tool_call_id"]
        assert ended["success"] is True
        failed = begin(daemon, "a", "invoke", {"op": "execute", "args": {"prompt": "call m"}})
        await failed.document()


async def test_the_session_of_another_cannot_be_prompted(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        stranger = Principal("bob", "http", frozenset({Scope.INVOKE}))
        error = await op(daemon, "session.prompt", stranger, session_id="s", content="say hi")
        assert error["message"] == "there is no session 's'"
