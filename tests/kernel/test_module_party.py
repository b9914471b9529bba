"""Requests of a module's process that has connected by itself: given up, and slowly read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.kernel import Congestion, Handle, Kernel, Party
from supervisor.policy.principals import Principal, Scope
from tests.factories import actor
from tests.kernel.conftest import GONE, Asker, ask, daemon_with, nothing, own, run_op
from tests.kernel.host_calls import PROMPT, allowing, caller, question
from tests.principals import ADA

CALLED = ["module.invoke"]


def process_of(module: str) -> Party:
    party = Party(Principal(f"module:{module}", "module", frozenset({Scope.INVOKE})))
    party.module = module
    return party


def begun(daemon: Kernel, op: str, asker: Asker, **args: Any) -> Handle:
    content = {"op": op, "args": args}
    handle = daemon.begin(process_of("a"), "m", "invoke", content, asker)
    assert handle is not None
    return handle


def is_open(handle: Handle) -> bool:
    return not handle.ended


async def in_flight(daemon: Kernel) -> int:
    status = await own(daemon, ADA, "status", module="m")
    return int(status["in_flight"])


async def test_one_that_is_granted_is_cancelled_and_told_to_go_on(tmp_path: Path) -> None:
    some = {"concurrency": 4, "timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
    shared = actor(tmp_path, "cancel", "flow", supervision=some)
    modules = caller(tmp_path, "a", capabilities=CALLED), shared
    async with daemon_with(tmp_path, *modules, operator=allowing(tmp_path)) as daemon:
        ask(daemon, "m", "hang")
        asker = Asker()
        asker.slow = Congestion.SLOW
        handle = begun(daemon, "events", asker, count=1, stay=True)
        await asker.heard(1)
        told: list[str] = []

        async def take(event: Any) -> None:
            told.append(event.message)

        while not any(line.startswith("pause") for line in told):
            await run_op(daemon, "logs", {"module": "m"}, take)
        asker.slow = Congestion.NONE
        handle.resume()
        while not any(line.startswith("resume") for line in told):
            await run_op(daemon, "logs", {"module": "m"}, take)
        assert is_open(handle)
        handle.cancel(GONE)
        handle.cancel(GONE)
        document = await asker.document()
        assert document["error"]["message"] == GONE.message
        assert not is_open(handle)
        handle.resume()
        while await in_flight(daemon) > 1:
            await trio.lowlevel.checkpoint()


async def test_one_that_a_person_is_asked_about_is_cancelled_with_the_question(
    tmp_path: Path,
) -> None:
    modules = caller(tmp_path, "a", capabilities=CALLED), actor(tmp_path)
    async with daemon_with(tmp_path, *modules, operator=allowing(tmp_path, PROMPT)) as daemon:
        asker = Asker()
        handle = begun(daemon, "echo", asker)
        asked = await question(daemon)
        assert asked["prompt"] == "May a use module.invoke:m.echo?"
        handle.resume()
        assert is_open(handle)
        handle.cancel(GONE)
        assert not is_open(handle)
        assert (await asker.document())["error"]["message"] == GONE.message
        while daemon.approvals.waiting(ADA):
            await trio.lowlevel.checkpoint()
        told = [one.event for one in asker.events if isinstance(one, ApprovalUiEvent)]
        assert told == ["approval.request"]
        handle.cancel(GONE)

        again = Asker()
        handle = begun(daemon, "echo", again)
        answer = {"id": (await question(daemon))["id"], "answer": "allow"}
        await run_op(daemon, "approve", answer, nothing)
        assert (await again.document())["ok"]
        assert not is_open(handle)
        told = [one.event for one in again.events if isinstance(one, ApprovalUiEvent)]
        assert told == ["approval.request", "approval.decision"]
        assert (await own(daemon, ADA, "status", module="m"))["counters"]["invocations"] == 1
