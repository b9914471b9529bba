"""What a call that is given up leaves behind depends on how much of its request was written."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from protocol.errors import Reason
from protocol.framing import Outgoing
from protocol.replies import Operation
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.persistent import PersistentLife
from tests.factories import actor, call
from tests.runtime.conftest import Running
from tests.runtime.supervision.test_persistent import ask, submit

NEVER_S = 1000
CANCELLED = Stopped(Reason.CLIENT, "the client cancelled the request")
TOO_MUCH = "x" * 1_000_000
"""More than any pipe holds by default."""


async def ready(running: Running, folder: Path, health_s: float, **supervision: Any) -> Module:
    limits = {"health": {"interval_s": NEVER_S}, "timeouts": {"health_s": health_s}}
    return await running.ready(actor(folder, supervision={**limits, **supervision}))


def life(module: Module) -> PersistentLife:
    assert isinstance(module.workers[0].life, PersistentLife)
    return module.workers[0].life


def send(module: Module, number: signal.Signals) -> None:
    (instance,) = life(module).instances()
    assert instance.pid is not None
    os.kill(instance.pid, number)


def in_doubt(module: Module) -> bool:
    return life(module).probes.in_doubt


async def test_a_request_of_which_nothing_was_written_is_never_sent(
    running: Running, tmp_path: Path
) -> None:
    module = await ready(running, tmp_path, NEVER_S, concurrency=2)
    first = submit(module, "late")
    unwritten, heard = call("exit", code=1)
    module.submit(unwritten)
    module.give_up(unwritten, CANCELLED)
    assert (await heard.failure()).details["reason"] == "client"
    assert not in_doubt(module)
    assert (await ask(module, "whoami"))["instance"] == "m#1"
    await life(module).ask(Operation.HEALTH, NEVER_S)  # it makes the module answer
    assert (await first.success()).result == "late"
    assert (module.restarts, module.counters.late_lines) == (0, 0)


@pytest.mark.fault(15)
async def test_a_request_that_waits_behind_one_that_is_not_read_can_be_withdrawn(
    running: Running, tmp_path: Path
) -> None:
    module = await ready(running, tmp_path, NEVER_S, concurrency=4)
    send(module, signal.SIGSTOP)
    read = [submit(module, "echo", n=1), submit(module, "echo", text=TOO_MUCH)]
    written_with_it, heard = call("exit", code=1)
    module.submit(written_with_it)
    await trio.testing.wait_all_tasks_blocked()  # the writer has taken all of them
    written_later, heard_later = call("exit", code=1)
    module.submit(written_later)
    for one in (written_with_it, written_later):
        module.give_up(one, CANCELLED)
    assert (await heard.failure()).code == (await heard_later.failure()).code == "cancelled"
    assert (module.state, in_doubt(module)) == (State.READY, False)
    read.append(submit(module, "echo", n=2))
    send(module, signal.SIGCONT)
    answers = [(await one.success()).result for one in read]
    assert answers == [{"n": 1}, {"text": TOO_MUCH}, {"n": 2}]
    assert module.restarts == 0


@pytest.mark.fault(15)
async def test_giving_up_many_that_wait_to_be_written_copies_nothing_of_the_others(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each once joined all that were left: a thousand of 64 KiB held up everybody for 20 s.
    module = await ready(running, tmp_path, NEVER_S, concurrency=64)
    send(module, signal.SIGSTOP)
    read = submit(module, "echo", text=TOO_MUCH)
    many = [call("exit", code=1) for _ in range(40)]
    for unwritten, _ in many:
        module.submit(unwritten)
    await trio.testing.wait_all_tasks_blocked()
    takes: list[int] = []
    take = Outgoing.take

    def counted(outgoing: Outgoing) -> bytes:
        takes.append(1)
        return take(outgoing)

    monkeypatch.setattr(Outgoing, "take", counted)
    for unwritten, _ in many:
        module.give_up(unwritten, CANCELLED)
    assert takes == []
    assert [(await heard.failure()).code for _, heard in many] == ["cancelled"] * len(many)
    send(module, signal.SIGCONT)
    assert (await read.success()).result == {"text": TOO_MUCH}
    assert (module.restarts, module.state) == (0, State.READY)


@pytest.mark.fault(15)
async def test_a_request_given_up_at_once_is_half_written_if_it_is_too_much_for_the_pipe(
    running: Running, tmp_path: Path
) -> None:
    # A cancel that came before the writer's turn left the next request to a process that is hung.
    module = await ready(running, tmp_path, NEVER_S)
    send(module, signal.SIGSTOP)
    half_written, heard = call("echo", text=TOO_MUCH)
    module.submit(half_written)
    behind = submit(module, "whoami")
    module.give_up(half_written, CANCELLED)
    assert module.state is State.STOPPING
    assert (await heard.failure()).code == "cancelled"
    assert (await behind.success()).result["instance"] == "m#2"
    assert module.last_exit is not None
    assert "did not read the request it was sent (client)" in module.last_exit.message


@pytest.mark.fault(15)
async def test_a_request_written_whole_and_not_read_is_found_out_by_the_probe_after_it(
    running: Running, tmp_path: Path
) -> None:
    module = await ready(running, tmp_path, 0.1)
    send(module, signal.SIGSTOP)
    written, heard = call("echo")
    module.submit(written)
    behind = submit(module, "whoami")
    module.give_up(written, CANCELLED)
    assert (module.state, in_doubt(module), behind.outcomes) == (State.READY, True, [])
    assert (await heard.failure()).code == "cancelled"
    assert (await behind.success()).result["instance"] == "m#2"
    assert module.last_exit is not None
    assert module.last_exit.message == "did not answer after a call was given up"


@pytest.mark.fault(15)
async def test_a_request_that_is_half_written_costs_nothing_until_it_is_given_up_itself(
    running: Running, tmp_path: Path
) -> None:
    module = await ready(running, tmp_path, NEVER_S, concurrency=2)
    send(module, signal.SIGSTOP)
    (written, _), (half_written, _) = call("echo"), call("echo", text=TOO_MUCH)
    module.submit(written)
    module.submit(half_written)
    await trio.testing.wait_all_tasks_blocked()
    module.give_up(written, CANCELLED)
    assert (module.state, in_doubt(module)) == (State.READY, False)
    module.give_up(half_written, CANCELLED)
    assert module.state is State.STOPPING


async def test_a_doubt_that_another_call_was_to_settle_outlives_its_withdrawal(
    running: Running, tmp_path: Path
) -> None:
    module = await ready(running, tmp_path, NEVER_S, concurrency=2)
    send(module, signal.SIGSTOP)
    (written, _), (unwritten, _) = call("echo"), call("echo")
    module.submit(written)
    module.submit(unwritten)
    module.give_up(written, CANCELLED)
    assert not in_doubt(module)  # the other one's answer or deadline would tell
    module.give_up(unwritten, CANCELLED)
    assert in_doubt(module)
    send(module, signal.SIGCONT)
    assert (await ask(module, "whoami"))["instance"] == "m#1"


async def test_the_place_of_a_call_that_is_given_up_goes_to_one_that_waits(
    running: Running, tmp_path: Path
) -> None:
    module = await ready(running, tmp_path, NEVER_S, concurrency=2)
    (one, _), hanging = call("hang"), submit(module, "hang")
    module.submit(one)
    behind = submit(module, "whoami")
    module.give_up(one, CANCELLED)
    assert (await behind.success()).result["instance"] == "m#1"
    assert hanging.outcomes == []
