"""A guarded call that is ended at one of its waits responds once, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Success
from protocol.host_events import RegisteredAsset
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.kernel import Handle, JournalOptions, Kernel, Party
from tests.factories import actor
from tests.kernel.conftest import GONE, Asker, daemon_with
from tests.kernel.hooks.parties import hook
from tests.kernel.host_calls import allowing, caller, payload
from tests.kernel.test_assets import DONE, Gate, asset, gate
from tests.kernel.test_mcp_servers import served
from tests.principals import ADA

__all__ = ["gate"]

QUICK = {"concurrency": 4, "timeouts": {"stop_s": 0.05, "exit_s": 0.05}}

WAITS = ("turn", "gate before", "person", "module", "child", "gate after", "asset")
"""What a guarded call waits for, in order."""


def parties(folder: Path, wait: str) -> list[Descriptor]:
    """Return the module `a` and what it takes for a call of it to wait."""
    own = caller(folder, "a", supervision=QUICK)
    match wait:
        case "gate before" | "gate after":
            event = "tool:pre" if wait == "gate before" else "tool:post"
            gates = hook(folder, answers={event: "hang"}, gate=[event], modules=["a"], timeout_s=60)
            return [own, gates]
        case "person":
            answer = {"action": "ask_user", "approval_prompt": "Go on?"}
            return [own, hook(folder, answers={"*": answer}, gate=["tool:pre"], modules=["a"])]
        case "child":
            return [own, actor(folder, name="b", supervision=QUICK)]
        case "turn":  # it does not list its tools again
            server = served(folder, "legacy", "mute", supervision=QUICK)
            return [msgspec.structs.replace(server, name="a")]
        case "asset":
            (folder / "slow").write_text("x")
            return [actor(folder, name="a", supervision=QUICK)]
    return [own]


def content(wait: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"op": "echo", "session_id": "s", "timeout_s": 60}
    match wait:
        case "turn":
            asked |= {"op": "draw", "args": {"n": 1}}
        case "module":
            asked["op"] = "hang"
        case "child":
            asked |= {"op": "calls", "args": {"calls": [payload("invoke", module="b", op="hang")]}}
        case "asset":
            lines = [json.dumps({"version": "0", **one}) for one in (asset("slow"), DONE)]
            asked |= {"op": "say", "args": {"lines": lines}}
    return asked


@pytest.fixture(params=WAITS)
def wait(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Waiting:
    """A call that stands still at one of its waits."""

    def __init__(self, daemon: Kernel, wait: str) -> None:
        daemon.sessions.new(ADA, "s")
        self.asker = Asker()
        self.party = Party(ADA)
        self.before: Handle | None = None
        if wait == "turn":
            self.before = daemon.begin(self.party, "a", "invoke", {"op": "nope"}, Asker())
        handle = daemon.begin(self.party, "a", "invoke", content(wait), self.asker)
        assert isinstance(handle, Invocation)
        self.call = handle
        self._daemon = daemon
        self._wait = wait

    async def reached(self, gate: Gate) -> None:
        """Return when the call has reached its wait."""
        daemon, modules = self._daemon, self._daemon.fleet.modules
        there: dict[str, Callable[[], object]] = {
            "turn": lambda: self.party.order,
            "gate before": lambda: modules["h"].in_flight,
            "person": lambda: daemon.approvals.waiting(ADA),
            "module": lambda: self.call.server,
            "child": lambda: "b" in modules and modules["b"].in_flight,
            "gate after": lambda: modules["h"].in_flight,
            "asset": lambda: gate.entered.acquire(blocking=False),
        }
        while not there[self._wait]():
            await trio.lowlevel.checkpoint()
        assert not self.asker.responses

    async def left_nothing(self, reason: str) -> None:
        """Hold it to one response, and to have taken everything back that it has caused."""
        daemon = self._daemon
        document = await self.asker.document()
        if self._wait == "asset":  # its module has answered
            assert document["ok"]
        else:
            assert document["error"]["details"]["reason"] == reason
        await daemon.requests.wait_none_guarded()
        if self.before is not None:
            self.before.cancel(GONE)
            assert not self.party.order
        assert not self.call.children
        assert not daemon.approvals.waiting(ADA)
        assert not daemon.requests.lineage.all()
        while any(one.in_flight or one.queued for one in daemon.fleet.modules.values()):
            await trio.lowlevel.checkpoint()
        assert len(self.asker.responses) == 1


ENDS: dict[str, Callable[[Kernel, Invocation], object]] = {
    "client": lambda _, one: one.cancel(GONE),
    "deadline": lambda _, one: one.expired(),
    "session": lambda daemon, _: daemon.sessions.end(ADA, "s"),
}


@pytest.mark.parametrize("by", ENDS)
async def test_it_is_ended_at_any_wait_and_at_once(
    tmp_path: Path, gate: Gate, wait: str, by: str
) -> None:
    operator = allowing(tmp_path)
    async with daemon_with(tmp_path, *parties(tmp_path, wait), operator=operator) as daemon:
        waiting = Waiting(daemon, wait)
        await waiting.reached(gate)
        ENDS[by](daemon, waiting.call)
        assert len(waiting.asker.responses) == 1
        assert not daemon.sessions.counts(ADA)["busy"]
        await waiting.left_nothing("deadline" if by == "deadline" else "client")


@pytest.mark.parametrize("wait", ["turn", "gate before", "gate after"])
async def test_what_it_waits_for_may_come_in_the_moment_in_which_it_is_cancelled(
    tmp_path: Path, gate: Gate, wait: str
) -> None:
    async with daemon_with(tmp_path, *parties(tmp_path, wait)) as daemon:
        waiting = Waiting(daemon, wait)
        await waiting.reached(gate)
        if waiting.before is not None:
            waiting.before.cancel(GONE)
        for asked in tuple(waiting.call.children):
            asked.settle(Success({}))
        waiting.call.cancel(GONE)
        await daemon.requests.wait_none_guarded()
        (response,) = waiting.asker.responses
        assert response.document()["error"]["details"]["reason"] == "client"
        assert (waiting.call.server is not None) is (wait == "gate after")
        assert not daemon.fleet.modules["a"].in_flight
        assert not waiting.party.order


async def test_it_is_ended_at_any_wait_by_the_daemons_stop(
    tmp_path: Path, gate: Gate, wait: str
) -> None:
    operator = allowing(tmp_path)
    made = parties(tmp_path, wait)
    async with daemon_with(tmp_path, *made, operator=operator, memory=JournalOptions()) as daemon:
        waiting = Waiting(daemon, wait)
        await waiting.reached(gate)
    await waiting.left_nothing("shutdown")


async def test_it_is_ended_at_any_wait_by_a_daemon_that_ends_without_waiting(
    tmp_path: Path, gate: Gate, wait: str
) -> None:
    operator = allowing(tmp_path)
    waiting: Waiting | None = None
    with trio.CancelScope() as scope:
        async with daemon_with(tmp_path, *parties(tmp_path, wait), operator=operator) as daemon:
            waiting = Waiting(daemon, wait)
            await waiting.reached(gate)
            scope.cancel()
            await trio.sleep_forever()
    assert waiting is not None
    (response,) = waiting.asker.responses
    assert not response.ok
    error = response.document()["error"]
    assert (error["code"], error["details"]["reason"]) == ("cancelled", "shutdown")


async def test_a_daemon_that_stops_keeps_the_files_of_what_its_modules_have_answered(
    tmp_path: Path, gate: Gate
) -> None:
    async with daemon_with(tmp_path, *parties(tmp_path, "asset")) as daemon:
        waiting = Waiting(daemon, "asset")
        await waiting.reached(gate)
        daemon.requests.stop()
        assert not waiting.asker.responses
        gate.open.set()
    await waiting.left_nothing("")
    assert [type(one) for one in waiting.asker.events] == [RegisteredAsset]


async def test_one_that_waits_for_its_turn_and_has_a_bound_on_silence_asks_its_gates_after_that(
    tmp_path: Path,
) -> None:
    server = served(tmp_path, "legacy", supervision={"timeouts": {"silence_s": 60}})
    gates = hook(tmp_path, answers={"*": {"action": "deny"}}, gate=["tool:pre"], modules=["server"])
    async with daemon_with(tmp_path, server, gates) as daemon:
        party, asker = Party(ADA), Asker()
        daemon.begin(party, "server", "invoke", {"op": "nope"}, Asker())
        daemon.begin(party, "server", "invoke", {"op": "draw", "args": {"n": 1}}, asker)
        assert party.order
        assert (await asker.document())["error"]["details"]["reason"] == "hook"


@pytest.fixture(autouse=True)
def _opened(gate: Gate) -> Iterator[None]:
    yield
    gate.open.set()
