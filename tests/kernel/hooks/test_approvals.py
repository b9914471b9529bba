"""Questions that wait for a person: asked by gates, answered by any client, or by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Reason
from protocol.events import Log, Progress
from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.hooks import approvals
from supervisor.kernel.hooks.approvals import Approvals, Question
from supervisor.kernel.kernel import JournalOptions, Kernel, Party, RefusedError
from supervisor.kernel.recorder import Recorder
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, ask, daemon_with, run_op
from tests.kernel.hooks.parties import begin, denied, entries, hook, unemitted
from tests.principals import ADA

QUICK = {"timeouts": {"stop_s": 0.05, "exit_s": 0.05}}
QUESTION = Question(prompt="?", asked_by="policy", module="m", op="echo", request_id="r1")


def asking(folder: Path, event: str = "tool:pre", **fields: Any) -> Any:
    answer = {"action": "ask_user", "approval_prompt": "Go on?", **fields}
    return hook(folder, answers={event: answer}, gate=[event])


async def waiting(daemon: Kernel, count: int = 1) -> list[dict[str, Any]]:
    while len(found := daemon.approvals.waiting(ADA)) < count:
        await trio.lowlevel.checkpoint()
    return found


async def approve(daemon: Kernel, answer: str | None = None) -> dict[str, Any]:
    (question,) = await waiting(daemon)
    args = {"id": question["id"]} | ({} if answer is None else {"answer": answer})
    found: dict[str, Any] = await run_op(daemon, "approve", args, unemitted)
    return found


@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_what_is_approved_goes_on_and_the_client_knows_what_it_waits_for(
    tmp_path: Path, event: str
) -> None:
    parties = actor(tmp_path), asking(tmp_path, event)
    async with daemon_with(tmp_path, *parties, memory=JournalOptions()) as daemon:
        asker = ask(daemon, "m", args={"n": 1})
        (question,) = await waiting(daemon)
        assert question["prompt"] == "Go on?"
        assert (question["asked_by"], question["module"], question["op"]) == ("hook h", "m", "echo")
        assert (question["options"], question["default"]) == (["allow", "deny"], "deny")
        assert 0 < question["left_s"] <= question["timeout_s"] == 300
        status = await run_op(daemon, "status", {}, unemitted)
        assert status["daemon"]["approvals"] == {"waiting": 1, "followers": 0}
        assert (await approve(daemon))["allowed"]
        assert (await asker.response()).ok
        assert not daemon.approvals.waiting(ADA)
    asked, decided = asker.events
    for told, name in ((asked, "approval.request"), (decided, "approval.decision")):
        assert isinstance(told, ApprovalUiEvent)
        assert (told.event, told.approval) == (name, question["id"])
    request = asker.responses[0].request_id
    (written,) = entries(tmp_path, "approval:request")
    assert (written["request_id"], written["data"]["prompt"]) == (request, "Go on?")
    (written,) = entries(tmp_path, "approval:decision")
    assert (written["status"], written["data"]["by"]) == ("allowed", "client")
    assert written["data"]["id"] == question["id"]


@pytest.mark.parametrize("answer", ["deny", "Not today"])
async def test_what_is_not_approved_is_denied(tmp_path: Path, answer: str) -> None:
    gate = asking(tmp_path, approval_options=["Yes", "Not today"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        asker = ask(daemon, "m")
        (question,) = await waiting(daemon)
        assert question["options"] == ["Yes", "Not today"]
        with pytest.raises(RefusedError, match="there are Yes, Not today"):
            await approve(daemon, "maybe")
        assert not (await approve(daemon, answer))["allowed"]
        await asker.response()
        assert denied(asker)["hook_reason"] == f"the answer was {answer}"
        with pytest.raises(RefusedError, match="no question"):
            daemon.approvals.decide(question["id"], "allow", ADA)


@pytest.mark.parametrize("default", ["allow", "deny"])
async def test_where_nobody_answers_the_default_applies(tmp_path: Path, default: str) -> None:
    gate = asking(tmp_path, approval_timeout=0.05, approval_default=default)
    parties = actor(tmp_path), gate
    async with daemon_with(tmp_path, *parties, memory=JournalOptions()) as daemon:
        asker = ask(daemon, "m")
        response = await asker.response()
        if default == "deny":
            assert denied(asker)["hook_reason"] == "nobody answered in 0.05 s"
        assert response.ok is (default == "allow")
    (written,) = entries(tmp_path, "approval:decision")
    assert (written["data"]["answer"], written["data"]["by"]) == (default, "timeout")


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


@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_the_daemons_end_ends_a_question(tmp_path: Path, event: str) -> None:
    parties = actor(tmp_path), asking(tmp_path, event)
    async with daemon_with(tmp_path, *parties) as daemon:
        asker = ask(daemon, "m")
        await waiting(daemon)
    assert asker.responses[0].document()["error"]["details"]["reason"] == "shutdown"


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


async def test_a_follower_is_told_what_waits_what_comes_and_what_became_of_it(
    tmp_path: Path,
) -> None:
    told: list[Any] = []

    async def emit(event: Progress | None) -> None:
        assert isinstance(event, Log)
        told.append(event.fields)

    async with daemon_with(tmp_path, actor(tmp_path), asking(tmp_path)) as daemon:
        before = ask(daemon, "m")
        await waiting(daemon)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_op, daemon, "approvals", {"follow": True}, emit)
            while not told:
                await trio.lowlevel.checkpoint()
            await approve(daemon)
            await before.response()
            after = ask(daemon, "m")
            await approve(daemon, "deny")
            await after.response()
            while len(told) < 4:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert daemon.approvals.status(ADA) == {"waiting": 0, "followers": 0}
    assert ["decision" in one for one in told] == [False, True, False, True]
    assert [one["decision"]["allowed"] for one in told if "decision" in one] == [True, False]


async def test_a_module_cannot_make_up_a_question(tmp_path: Path) -> None:
    line = '{"version":"0","type":"ui_event","event":"approval.request","approval":"ap-1"}'
    async with daemon_with(tmp_path, actor(tmp_path, "no-ids")) as daemon:
        asker = ask(daemon, "m", "say", args={"lines": [line, '{"ok":true,"result":1}']})
        await asker.response()
    (event,) = asker.events
    assert not hasattr(event, "approval")


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
