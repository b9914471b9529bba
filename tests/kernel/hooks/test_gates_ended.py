"""A gated invocation ends once, whatever happens while its gates are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Reason
from supervisor.kernel.kernel import Kernel
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.hooks.parties import begin, denied, hook, reload, seen, then, waits

GATES = ["tool:pre", "tool:post"]
QUICK = {"stop_s": 0.05, "exit_s": 0.05}


def hanging(folder: Path, gate: str, **fields: Any) -> Any:
    return hook(folder, answers={gate: "hang"}, gate=[gate], timeout_s=60, **fields)


def error(asker: Asker) -> tuple[str, str, str]:
    (response,) = asker.responses
    found = response.document()["error"]
    return found["code"], found["details"]["reason"], found["message"]


async def settled(daemon: Kernel) -> None:
    """Wait until the hook has nothing in flight: what it was asked was taken back."""
    while daemon.fleet.modules["h"].in_flight:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("reason", [Reason.CLIENT, Reason.DISCONNECT])
async def test_a_cancel_ends_it_and_what_the_gate_was_asked(
    tmp_path: Path, gate: str, reason: Reason
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), hanging(tmp_path, gate)) as daemon:
        invocation, asker = begin(daemon, "m", "echo")
        await waits(daemon)
        invocation.cancel(Stopped(reason, "it was given up"))
        assert error(asker)[:2] == ("cancelled", reason)
        assert error(asker)[2].endswith(f"it was still waiting for hook h ({gate})")
        await settled(daemon)
        invocation.cancel(Stopped(reason, "it was given up"))
        assert len(asker.responses) == 1


async def test_silence_does_not_count_the_time_of_gates(tmp_path: Path) -> None:
    module = actor(tmp_path, supervision={"timeouts": {"silence_s": 0.05}})
    gate = hanging(tmp_path, "tool:pre")
    async with daemon_with(tmp_path, module, gate) as daemon:
        asker = ask(daemon, "m", "hang")
        await waits(daemon)
        with trio.move_on_after(0.2):
            await asker.response()
        assert not asker.responses
        await then(daemon, held={})
        await asker.response()
        assert error(asker)[:2] == ("timeout", "silence")


async def test_an_error_of_the_clients_own_making_is_not_asked_about(tmp_path: Path) -> None:
    gate = hook(tmp_path, gate=["tool:error"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        invocation, asker = begin(daemon, "m", "hang")
        invocation.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))
        await asker.response()
        asker = ask(daemon, "m", "hang", timeout_s=0.05)
        await asker.response()
        assert error(asker)[:2] == ("timeout", "deadline")
        assert await seen(daemon) == []


async def test_a_gate_that_is_removed_opens_also_in_the_middle(tmp_path: Path) -> None:
    gate = hanging(tmp_path, "tool:pre", supervision={"timeouts": QUICK})
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        asker = ask(daemon, "m")
        await waits(daemon)
        await reload(daemon, actor(tmp_path))
        assert (await asker.response()).ok
        assert (await ask(daemon, "m").response()).ok


async def test_a_gate_that_is_replaced_in_the_middle_gives_one_outcome(tmp_path: Path) -> None:
    gate = hanging(tmp_path, "tool:pre", supervision={"timeouts": QUICK})
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        asker = ask(daemon, "m")
        await waits(daemon)
        other = hook(tmp_path, gate=["tool:pre"])
        await reload(daemon, actor(tmp_path), other)
        await asker.response()
        assert denied(asker)["hook"] == "h"  # closed: it did not answer
        while not (last := await ask(daemon, "m").response()).ok:
            assert last.document()["error"]["details"]["reason"] == "hook"


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when so many steps have been taken."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self._left = steps
        self._scope = scope

    def before_task_step(self, task: Any) -> None:
        del task
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6, 7, 8, 10, 12])
async def test_wherever_the_daemon_is_cut_off_a_gated_request_has_its_answer(
    tmp_path: Path, steps: int
) -> None:
    gate = hook(tmp_path, gate=GATES, supervision={"timeouts": QUICK})
    module = actor(tmp_path, supervision={"timeouts": QUICK})
    instrument: CancelAt | None = None
    with trio.CancelScope() as scope:
        async with daemon_with(tmp_path, module, gate) as daemon:
            asker = ask(daemon, "m")
            instrument = CancelAt(steps, scope)
            trio.lowlevel.add_instrument(instrument)
            await asker.response()  # a request that takes fewer steps is cut off at its end
    assert instrument is not None
    trio.lowlevel.remove_instrument(instrument)
    (response,) = asker.responses
    if not response.ok:
        assert error(asker)[:2] == ("cancelled", "shutdown")
