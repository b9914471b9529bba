"""What the policy leaves to people: asked as an approval, remembered if the answer says always."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.kernel import Kernel
from tests.kernel.conftest import Asker, ask, daemon_with, nothing, run_op
from tests.kernel.host_calls import PROMPT, allowing, caller, error, payload, question, result
from tests.principals import ADA


def begin(daemon: Kernel) -> Asker:
    return ask(daemon, "a", "calls", args={"calls": [payload("log", message="x")], "lines": []})


@pytest.mark.parametrize(
    ("answer", "allowed", "lasts"),
    [
        (None, True, False),
        ("Allow always", True, True),
        ("deny", False, False),
        ("deny always", False, True),
    ],
)
async def test_the_answer_of_a_person_counts_once_or_always(
    answer: str | None, allowed: bool, lasts: bool, tmp_path: Path
) -> None:
    operator = allowing(tmp_path, PROMPT)
    async with daemon_with(tmp_path, caller(tmp_path, "a"), operator=operator) as daemon:
        asker = begin(daemon)
        asked = await question(daemon)
        assert asked["prompt"] == "May a use log?"
        assert (asked["asked_by"], asked["module"], asked["op"]) == ("policy", "a", "calls")
        assert asked["options"] == ["allow", "allow always", "deny", "deny always"]
        args = {"id": asked["id"]} | ({} if answer is None else {"answer": answer})
        assert (await run_op(daemon, "approve", args, nothing))["allowed"] is allowed
        assert (await result(asker))["is_error"] is not allowed
        told = [one for one in asker.events if isinstance(one, ApprovalUiEvent)]
        assert [one.event for one in told] == ["approval.request", "approval.decision"]
        again = begin(daemon)
        if not lasts:
            await run_op(daemon, "approve", {"id": (await question(daemon))["id"]}, nothing)
        found = await result(again)
        assert found["is_error"] is (lasts and not allowed)
        if found["is_error"]:
            assert "remembered" in error(found, "denied", "forbidden")["message"]


async def test_a_daemon_that_stops_waits_for_no_person(tmp_path: Path) -> None:
    operator = allowing(tmp_path, PROMPT)
    async with daemon_with(tmp_path, caller(tmp_path, "a"), operator=operator) as daemon:
        asker = begin(daemon)
        await question(daemon)
        daemon.shut_down("a test")
        await daemon.stop_fleet()
        assert not daemon.approvals.waiting(ADA)
        problem = error(await result(asker), "denied", "forbidden")
        assert "withdrawn" in problem["message"]
