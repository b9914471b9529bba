"""Of `test_approvals.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from protocol.errors import Reason
from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.hooks import approvals
from supervisor.kernel.hooks.approvals import Approvals, Question
from supervisor.kernel.kernel import JournalOptions
from supervisor.kernel.parties import Provenance
from supervisor.kernel.recorder import Recorder
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, daemon_with
from tests.kernel.hooks.parties import begin, entries, hook
from tests.kernel.hooks.test_approvals import approve, asking, waiting
from tests.principals import ADA

QUESTION = Question(prompt="?", asked_by="policy", origin=Provenance("m", "echo", "r1"))


@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_a_question_dies_with_its_request(tmp_path: Path, event: str) -> None:
    parties = actor(tmp_path), asking(tmp_path, event)
    async with daemon_with(tmp_path, *parties, memory=JournalOptions()) as daemon:
        invocation, asker = begin(daemon, "m", "echo")
        await waiting(daemon)
        invocation.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))
        error = (await asker.document())["error"]
        assert error["details"]["reason"] == "client"
        assert error["message"].endswith("waiting for an approval that hook h asks for")
        while daemon.approvals.waiting(ADA):
            await trio.lowlevel.checkpoint()
        invocation, asker = begin(daemon, "m", "echo", timeout_s=60)
        await waiting(daemon)
        invocation.expired()
        error = (await asker.document())["error"]
        assert error["details"]["reason"] == "deadline"
        (asked,) = asker.events
        assert isinstance(asked, ApprovalUiEvent)
        assert f"`stdiod approve {asked.approval}`" in error["message"]
        assert "longer timeout_s" in error["message"]
    found = entries(tmp_path, "approval:decision")
    assert [one["data"]["by"] for one in found] == ["withdrawn"] * 2


async def test_the_first_client_of_a_chain_is_told(tmp_path: Path) -> None:
    parties = actor(tmp_path), actor(tmp_path, name="x"), asking(tmp_path)
    async with daemon_with(tmp_path, *parties) as daemon:
        asker, inner = Asker(), Asker()
        first = daemon.requests.invoke(ADA, "m", {"op": "hang"}, asker)
        await approve(daemon)
        while not daemon.fleet.modules["m"].in_flight:
            await trio.lowlevel.checkpoint()
        daemon.requests.invoke(ADA, "x", {"op": "echo"}, inner, parent=first)
        await approve(daemon)
        assert (await inner.response()).ok
        assert not inner.events
        assert len(asker.events) == 4


async def test_who_runs_out_of_time_is_told_of_a_question_about_what_it_caused(
    tmp_path: Path,
) -> None:
    answers = {"tool:pre": {"action": "ask_user"}}
    gate = hook(tmp_path, answers=answers, gate=["tool:pre"], modules=["x"])
    parties = actor(tmp_path), actor(tmp_path, name="x"), gate
    async with daemon_with(tmp_path, *parties) as daemon:
        asker, inner = Asker(), Asker()
        first = daemon.requests.invoke(ADA, "m", {"op": "hang", "timeout_s": 60}, asker)
        for _ in range(2):
            daemon.requests.invoke(ADA, "x", {"op": "echo"}, inner, parent=first)
        found = await waiting(daemon, 2)
        assert first is not None
        first.expired()
        message = (await asker.document())["error"]["message"]
        assert any(f"and {one['id']} ended with it, as did 1 more" in message for one in found)


async def test_who_runs_out_of_time_otherwise_is_told_of_no_question(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), asking(tmp_path)) as daemon:
        invocation, asker = begin(daemon, "m", "hang", timeout_s=60)
        await approve(daemon)
        while not daemon.fleet.modules["m"].in_flight:
            await trio.lowlevel.checkpoint()
        invocation.expired()
        assert "approve" not in (await asker.document())["error"]["message"]


async def test_one_question_too_many_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "OPEN", 1)
    asked = Approvals(Recorder())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked.ask, QUESTION, lambda _: None)
        await trio.testing.wait_all_tasks_blocked()
        decision = await asked.ask(QUESTION, lambda _: None)
        assert (decision.allowed, decision.by) == (False, "too_many")
        nursery.cancel_scope.cancel()
    assert not asked.waiting(ADA)


async def test_a_follower_that_does_not_read_is_told_what_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approvals, "FOLLOWED", 1)
    asked = Approvals(Recorder())
    following, unfollow = asked.follow(ADA)
    for _ in range(2):
        with trio.CancelScope() as scope:
            scope.cancel()
            await asked.ask(QUESTION, lambda _: None)
    unfollow()
    assert (await following.next()).lost == 3
