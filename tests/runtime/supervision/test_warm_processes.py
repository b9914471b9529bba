"""Warm processes: used once, replaced, discarded when outdated, and counted when they die."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Reason, Success
from protocol.replies import Operation
from protocol.transcript import EntrySource, Happened
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.module import Module
from tests.factories import (
    PYTHON,
    Heard,
    actor,
    call,
    children,
    descriptor,
    open_files,
    opened_since,
    program,
    script,
)
from tests.runtime.conftest import Running
from tests.runtime.test_verdicts import DONE, LOG
from tests.transcripts.test_recording import Kept, events, outcomes, said

TELL_PID = """printf '{"version":"0","type":"done","ok":true,"result":{"pid":%d}}\\n' $$\n"""
ONCE_ASKED = "read -r line || touch misled\n"
SOON = {"initial_s": 0.001, "factor": 1, "max_s": 0.001, "jitter": 0}


def warm_script(folder: Path, body: str, count: int = 2, **supervision: Any) -> Descriptor:
    return script(folder, body, supervision={"warm": count, **supervision})


def waiting(module: Module) -> list[int]:
    """Return the pids of those that wait, the oldest first."""
    life = module.workers[0].life
    shown = [] if life is None else life.instances()
    return [one.pid for one in shown if one.pid is not None and one.state == "warm"]


async def until_warm(module: Module, count: int = 2, *, without: int = 0) -> list[int]:
    while len(pids := waiting(module)) != count or without in pids:
        await trio.lowlevel.checkpoint()
    return pids


def submit(module: Module, op: str = "echo", **args: Any) -> Heard:
    one, heard = call(op, **args)
    module.submit(one)
    return heard


async def test_each_request_gets_a_waiting_process_of_its_own_and_that_is_replaced(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(warm_script(tmp_path, ONCE_ASKED + TELL_PID))
    used: list[int] = []
    for _ in range(5):
        before = await until_warm(module)
        assert set(before).isdisjoint(used)
        outcome = await submit(module).success()
        used.append(outcome.result["pid"])
        assert used[-1] == before[0]
    assert set(await until_warm(module)).isdisjoint(used)
    assert (module.restarts, module.last_exit) == (0, None)


async def test_more_requests_than_wait_get_new_processes(running: Running, tmp_path: Path) -> None:
    made = warm_script(tmp_path, ONCE_ASKED + TELL_PID, 1, concurrency=5)
    module = await running.ready(made)
    (first,) = await until_warm(module, 1)
    heard = [submit(module) for _ in range(5)]
    pids = [(await one.success()).result["pid"] for one in heard]
    assert first in pids
    assert len(set(pids)) == 5


async def test_what_is_printed_before_the_request_is_judged_with_it(
    running: Running, tmp_path: Path
) -> None:
    said = "echo prepared >&2\n" + LOG + "touch printed\n" + ONCE_ASKED
    module = await running.ready(warm_script(tmp_path, said + DONE, 1))
    await until_warm(module, 1)
    while not (tmp_path / "printed").exists():
        await trio.lowlevel.checkpoint()
    one, heard = call()
    module.submit(one)
    assert await heard.success() == Success({"n": 1}, "well")
    assert [type(event).__name__ for event in heard.events] == ["Log"]
    assert one.all_notices() == ()


async def test_more_than_a_pipe_holds_may_be_printed_before_the_request(
    running: Running, tmp_path: Path
) -> None:
    body = (
        "import sys\nfor n in range(4000): print(sys.argv[1])\nsys.stdin.read()\nprint(sys.argv[2])"
    )
    log, done = LOG[6:-2], DONE[6:-2]
    made = descriptor(
        tmp_path,
        [*PYTHON, "-c", body, log, done],
        transport={"protocol": "narratoria"},
        supervision={"warm": 1},
    )
    module = await running.ready(made)
    await until_warm(module, 1)
    heard = submit(module)
    await heard.success()
    assert len(heard.events) == 4000


async def test_a_bad_end_has_what_was_complained_of_before_the_request(
    running: Running, tmp_path: Path
) -> None:
    body = "echo early >&2\n" + ONCE_ASKED + "echo late >&2\nexit 3"
    module = await running.ready(warm_script(tmp_path, body))
    pids = await until_warm(module)
    failure = await submit(module).failure()
    assert failure.details["stderr_tail"] == ["early", "late"]
    assert failure.details["pid"] == pids[0]
    assert (module.state, module.restarts) == (State.READY, 0)


async def test_a_request_given_up_before_it_has_a_process_uses_none(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(warm_script(tmp_path, ONCE_ASKED + TELL_PID))
    pids = await until_warm(module)
    one, heard = call()
    module.submit(one)
    module.give_up(one, Stopped(Reason.CLIENT, "the client cancelled the request"))
    await heard.failure()
    assert (await submit(module).success()).result["pid"] == pids[0]


async def test_one_that_is_killed_counts_as_a_crash_and_is_replaced(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(warm_script(tmp_path, "echo here >&2\n" + ONCE_ASKED + TELL_PID))
    victim, _ = await until_warm(module)
    os.kill(victim, signal.SIGKILL)
    await running.until(lambda: module.restarts == 1 and module.state is State.READY)
    last = module.last_exit
    assert last is not None
    assert (last.reason, last.exit.signal) == ("signaled", signal.SIGKILL)
    assert "m#1 was killed by SIGKILL while it waited for a request" in last.message
    pids = await until_warm(module, without=victim)
    assert (await submit(module).success()).result["pid"] == pids[0]


async def test_one_that_is_killed_does_not_disturb_a_request_in_flight(
    running: Running, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    body = ONCE_ASKED + LOG + "read -r go < gate\n" + TELL_PID
    module = await running.ready(warm_script(tmp_path, body, timeouts={"stop_s": 0.001}))
    pids = await until_warm(module)
    heard = submit(module)
    await heard.heard(1)
    os.kill((await until_warm(module, without=pids[0]))[0], signal.SIGKILL)
    while module.last_exit is None:
        await trio.lowlevel.checkpoint()
    behind = submit(module)
    assert not module.is_ready()
    with (tmp_path / "gate").open("w") as gate:
        gate.write("go\n")
    assert (await heard.success()).result["pid"] == pids[0]
    await running.until(lambda: module.restarts == 1 and module.state is State.READY)
    await behind.heard(1)
    with (tmp_path / "gate").open("w") as gate:
        gate.write("go\n")
    await behind.success()


@pytest.mark.parametrize("code", [0, 3])
async def test_a_program_that_does_not_wait_ends_in_failed_and_not_in_a_spin(
    running: Running, tmp_path: Path, code: int
) -> None:
    body = f"echo x >> starts; echo words >&2; exit {code}"
    made = warm_script(tmp_path, body, intensity=3, period_s=1000, backoff=SOON)
    module = running(made)
    module.start("the test")
    await running.until(lambda: module.state is State.FAILED)
    last = module.last_exit
    assert last is not None
    assert (last.reason, last.exit.exit_code, last.exit.stderr_tail) == ("exited", code, ("words",))
    assert module.restarts == 3
    starts = (tmp_path / "starts").read_text().count("x")
    assert starts <= 2 * 4
    failure = await submit(module).failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "failed")
    assert children() == []


async def test_one_that_cannot_be_started_is_a_crash_too(running: Running, tmp_path: Path) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\nread line\n" + DONE)
    made = descriptor(
        tmp_path, ["./run"], transport={"protocol": "narratoria"}, supervision={"warm": 1}
    )
    module = await running.ready(made)
    await until_warm(module, 1)
    path.unlink()
    await submit(module).failure()
    await running.until(lambda: module.state is State.BACKOFF)
    assert module.last_exit is not None
    assert module.last_exit.reason == "spawn_failed"
    assert children() == []


async def test_the_memory_of_one_that_waits_is_limited(running: Running, tmp_path: Path) -> None:
    made = descriptor(
        tmp_path,
        [*PYTHON, "-c", "import sys; hog = b'x' * (1 << 27); sys.stdin.read()"],
        supervision={"warm": 1, "limits": {"memory_bytes": 1 << 26}, "restart": "temporary"},
        transport={"protocol": "narratoria"},
    )
    module = await running.ready(made)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.host.sampler.run)
        await running.until(lambda: module.state is State.DOWN)
        nursery.cancel_scope.cancel()
    assert module.last_exit is not None
    assert module.last_exit.reason == "memory_limit"


@pytest.mark.parametrize("rename", [True, False])
async def test_a_changed_program_is_never_served_by_a_process_of_the_old_one(
    running: Running, tmp_path: Path, rename: bool
) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\ntouch read.$$\nread line\n" + DONE)
    made = descriptor(
        tmp_path, ["./run"], transport={"protocol": "narratoria"}, supervision={"warm": 2}
    )
    module = await running.ready(made)
    old = set(await until_warm(module))
    # A shell that has not read its script yet would find half of it, or nothing.
    while not all((tmp_path / f"read.{pid}").exists() for pid in old):
        await trio.lowlevel.checkpoint()
    new = "#!/bin/sh\nread line\n" + DONE.replace('"n": 1', '"n": 2')
    if rename:
        program(tmp_path / "new", new).rename(path)
    else:
        path.write_text(new)
    assert (await submit(module).success()).result == {"n": 2}
    while not old.isdisjoint(pids := waiting(module)) or len(pids) != 2:
        await trio.lowlevel.checkpoint()
    assert (await submit(module).success()).result == {"n": 2}
    assert (module.restarts, module.last_exit) == (0, None)


async def test_a_program_that_was_only_touched_is_the_same(
    running: Running, tmp_path: Path
) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\nread line\n" + TELL_PID)
    made = descriptor(
        tmp_path, ["./run"], transport={"protocol": "narratoria"}, supervision={"warm": 1}
    )
    module = await running.ready(made)
    (pid,) = await until_warm(module, 1)
    path.touch()
    assert (await submit(module).success()).result == {"pid": pid}


async def test_a_new_descriptor_discards_those_of_the_old_one(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(warm_script(tmp_path, ONCE_ASKED + TELL_PID))
    old = set(await until_warm(module))
    module.succession.offer(
        warm_script(tmp_path, ONCE_ASKED + DONE), "its descriptor changed", anew=False
    )
    await running.until(lambda: not module.succession.undecided)
    assert (await submit(module).success()).result == {"n": 1}
    while not old.isdisjoint(pids := waiting(module)) or len(pids) != 2:
        await trio.lowlevel.checkpoint()
    assert not (tmp_path / "misled").exists()


async def test_a_stop_leaves_nobody_and_shows_no_end_of_input(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    module = await running.ready(warm_script(tmp_path, ONCE_ASKED + DONE, 3))
    await until_warm(module, 3)
    await running.down()
    assert children() == []
    assert not opened_since(before)
    assert not (tmp_path / "misled").exists()
    assert module.last_exit is not None
    assert module.last_exit.reason == "stopped"


async def test_a_stop_while_they_are_being_started_leaves_nobody(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    await running.ready(warm_script(tmp_path, ONCE_ASKED + DONE, 3))
    await running.down()
    assert children() == []
    assert not opened_since(before)


async def test_those_who_ignore_a_sigterm_are_killed_in_a_hurry(
    running: Running, tmp_path: Path
) -> None:
    body = "trap '' TERM\ntouch deaf\n" + ONCE_ASKED + DONE
    module = await running.ready(warm_script(tmp_path, body, 1, timeouts={"stop_s": 1000}))
    await until_warm(module, 1)
    while not (tmp_path / "deaf").exists():
        await trio.lowlevel.checkpoint()
    module.stop("the test")
    module.workers[0].hurry()
    await running.until(lambda: module.state is State.DOWN)
    assert children() == []


async def test_a_probe_of_a_module_that_can_be_asked_takes_a_waiting_process(
    running: Running, tmp_path: Path
) -> None:
    made = actor(tmp_path, transport={"lifecycle": "per-invocation"}, supervision={"warm": 1})
    module = await running.ready(made)
    await until_warm(module, 1)
    assert await module.ask(Operation.HEALTH) == Success({"status": "ok"})
    await until_warm(module, 1)
    assert (await submit(module, "whoami").success()).result["instance"] == "m#2"


async def test_a_recording_tells_which_process_was_asked_and_all_that_was_said(
    running: Running, tmp_path: Path
) -> None:
    body = "echo prepared >&2\n" + LOG + ONCE_ASKED + DONE
    module = running(warm_script(tmp_path, body))
    kept = Kept()
    module.taps.attach(kept.recording)
    module.start("the test")
    await running.until(lambda: module.state is State.READY)
    await until_warm(module)
    await submit(module).success()
    entries = [one for one in kept.entries() if one.instance == "m#1"]
    # An end of stdout that comes with the exit is not seen by itself.
    happened = [event for event in events(entries) if event is not Happened.EOF]
    assert happened == [Happened.SPAWNED, Happened.STDIN_CLOSED, Happened.EXITED]
    assert outcomes(entries) == ["echo"]
    assert len(said(entries, EntrySource.HOST)) == 1
    assert len(said(entries, EntrySource.MODULE)) == 2
    assert said(entries, EntrySource.STDERR) == [b"prepared"]
