"""Of `test_prompts.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Reason
from protocol.host_events import SeenUiEvent
from supervisor.kernel import prompts
from supervisor.kernel.ui_events import Subscription
from supervisor.policy.principals import Principal, Scope
from supervisor.policy.verdict import Stopped
from tests.kernel.agents import agent, op
from tests.kernel.conftest import daemon_with
from tests.kernel.remembering import Remembering
from tests.kernel.test_prompts import Prompted
from tests.principals import ADA


async def test_roles_outlive_the_daemon_and_one_that_is_gone_is_said(tmp_path: Path) -> None:
    memory = Remembering()

    def kept() -> dict[str, Any]:
        return {"recorder": memory.again()}

    async with daemon_with(tmp_path, agent(tmp_path), **kept()) as daemon:
        await op(daemon, "session.new", session_id="s", roles={"agent": "a"})
    async with daemon_with(tmp_path, agent(tmp_path, "b"), **kept()) as daemon:
        error = await Prompted(daemon, "say hi").error()
        assert error["message"].startswith("the session's agent: there is no module 'a'")
    async with daemon_with(tmp_path, agent(tmp_path), agent(tmp_path, "b"), **kept()) as daemon:
        assert (await Prompted(daemon, "say hi").result())["content"] == "hi"


async def test_one_that_waits_can_be_cancelled_and_only_so_many_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "QUEUED", 1)
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        await op(daemon, "session.new", session_id="s")
        running, waiting = Prompted(daemon, "hang"), Prompted(daemon, "say hi")
        full = await Prompted(daemon, "say no").error()
        assert full["details"]["reason"] == "queue_full"
        assert waiting.handle is not None
        waiting.handle.cancel(Stopped(Reason.CLIENT, "enough"))
        assert (await waiting.error())["code"] == "cancelled"
        assert not running.responses
        third = Prompted(daemon, "say three")
        assert (await op(daemon, "session.cancel", session_id="s", queued=False))["cancelled"] == 1
        assert (await third.result())["content"] == "three"


async def test_who_watches_a_session_sees_its_course(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, agent(tmp_path)) as daemon:
        watched = Subscription(ADA, session_id="s")
        stranger = Principal("bob", "http", frozenset({Scope.READ}))
        others = Subscription(stranger, session_id="s")
        ui = daemon.effects.ui
        for one in (watched, others):
            ui.subscribe(one)
        await op(daemon, "session.new", session_id="s")
        await Prompted(daemon, "say hi").result()
        await op(daemon, "session.end", session_id="s")
        seen: list[str] = []
        while "session.deleted" not in seen:
            event = await ui.next(watched)
            assert isinstance(event, SeenUiEvent)
            seen.append(event.event)
        assert seen == [
            "session.created", "prompt.received", "prompt.started", "session.status_changed",
            "message.start", "message.chunk", "message.complete", "session.status_changed",
            "agent.idle", "session.deleted",
        ]  # fmt: skip
        assert await ui.next(others) is None  # it looked at all, and saw none
