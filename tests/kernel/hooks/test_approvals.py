"""Questions that wait for a person: asked by gates, answered by any client, or by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from protocol.events import Log, Progress
from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.kernel import JournalOptions, Kernel, RefusedError
from tests.bounds import WAIT_S
from tests.factories import actor
from tests.kernel.conftest import ask, daemon_with, run_op
from tests.kernel.hooks.parties import denied, entries, hook, unemitted
from tests.principals import ADA

QUICK = {"timeouts": {"stop_s": 0.05, "exit_s": 0.05}}


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
async def test_the_daemons_end_ends_a_question(tmp_path: Path, event: str) -> None:
    parties = actor(tmp_path), asking(tmp_path, event)
    async with daemon_with(tmp_path, *parties) as daemon:
        asker = ask(daemon, "m")
        await waiting(daemon)
    assert asker.responses[0].document()["error"]["details"]["reason"] == "shutdown"


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
        with trio.fail_after(WAIT_S):
            while daemon.approvals.status(ADA) != {"waiting": 0, "followers": 0}:
                await trio.lowlevel.checkpoint()
    assert ["decision" in one for one in told] == [False, True, False, True]
    assert [one["decision"]["allowed"] for one in told if "decision" in one] == [True, False]


async def test_a_module_cannot_make_up_a_question(tmp_path: Path) -> None:
    line = '{"version":"0","type":"ui_event","event":"approval.request","approval":"ap-1"}'
    async with daemon_with(tmp_path, actor(tmp_path, "no-ids")) as daemon:
        asker = ask(daemon, "m", "say", args={"lines": [line, '{"ok":true,"result":1}']})
        await asker.response()
    (event,) = asker.events
    assert not hasattr(event, "approval")


async def test_a_question_is_shown_whole_with_the_time_that_is_left(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    hooks = asking(tmp_path, approval_options=["Go", "Stay"], approval_timeout=20.0)
    async with daemon_with(tmp_path, actor(tmp_path), hooks) as daemon:
        await run_op(daemon, "session.new", {"session_id": "s"}, unemitted)
        asker = ask(daemon, "m", "echo", session_id="s")
        await waiting(daemon)
        mock_clock.jump(1.2344)
        (question,) = (await run_op(daemon, "approvals", {}, unemitted))["approvals"]
        assert question == {
            "id": question["id"],
            "prompt": "Go on?",
            "options": question["options"],
            "asked_by": "hook h",
            "module": "m",
            "op": "echo",
            "request_id": question["request_id"],
            "session_id": "s",
            "timeout_s": 20.0,
            "left_s": 18.766,
            "default": "deny",
        }
        assert [one for one in question["options"] if one in ("Go", "Stay")] == ["Go", "Stay"]
        await approve(daemon, "Go")
        assert (await asker.document())["request_id"] == question["request_id"]
        assert (await run_op(daemon, "approvals", {}, unemitted)) == {"approvals": []}
