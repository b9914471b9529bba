"""A process whose main thread has ended while others run: /proc says `Z`, and it lives.

`cgroup.kill` passes it by, and /proc/PID has neither its memory nor its environment. On each rung
it is held, counted, killed and named like any other. Row 27 of docs/faults.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import trio

from protocol.errors import Code, Failure
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import procfs
from tests.runtime.containment.in_process import ask, until, until_removed
from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, gone, letter

Make = Callable[..., Any]

MIB = 1 << 20
LEADER, GRANDCHILD = ("headless", "ignores_term"), ("ignores_term", "beheaded")


async def headless(pid: int) -> procfs.Stat:
    """Wait until a process has lost its main thread."""
    with trio.fail_after(PATIENCE_S):
        while letter(pid) != "Z":
            await trio.lowlevel.checkpoint()
    found = procfs.stat(pid)
    assert found is not None
    return found


async def test_it_lives_and_shows_all_it_has_through_a_thread(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with(*LEADER) as daemon:
        (pid,) = await lifelines.taken("leader")
        await until(daemon, State.READY)
        one = await headless(pid)
        assert one.lives
        assert one.thread != pid
        assert procfs.rss_bytes(pid) == 0
        assert procfs.rss_bytes_of_process(pid) == procfs.rss_bytes(one.thread) > MIB
        assert procfs.has_variables(one.thread, "STDIOD_INSTANCE=stubborn#1")
        assert (await ask(daemon, "echo", x=1).response()).ok


@pytest.mark.fault(27)
@pytest.mark.parametrize(("vices", "label"), [(LEADER, "leader"), (GRANDCHILD, "beheaded")])
async def test_it_ends_with_its_instance_and_no_folder_is_left(
    daemon_with: Make, lifelines: Lifelines, vices: tuple[str, ...], label: str
) -> None:
    labels, all_pids = {"leader", label}, list[int]()
    async with daemon_with(*vices) as daemon:
        module = daemon.fleet.modules["stubborn"]
        for end in (module.restart, module.stop):
            pids = await lifelines.taken(*labels)
            all_pids += pids
            await until(daemon, State.READY)
            for pid in pids:
                if label == "beheaded" and pid == module.workers[0].life.instances()[0].pid:
                    continue
                await headless(pid)
            end("the test")
            await lifelines.all_dead()
        await until(daemon, State.DOWN)
        assert module.last_exit.exit.survivors == ()
        await until_removed(daemon)
    assert all(gone(pid) for pid in all_pids)


@pytest.mark.fault(27)
async def test_its_memory_counts(daemon_with: Make, lifelines: Lifelines) -> None:
    async with daemon_with(limits={"memory_bytes": 60 * MIB}) as daemon:
        await lifelines.taken("leader")
        await until(daemon, State.READY)
        asked = ask(daemon, "hog", bytes=200 * MIB, beheaded=True)
        response = await asked.response()
        assert isinstance(response.outcome, Failure)
        assert response.outcome.code is Code.OOM
        await lifelines.all_dead()


@pytest.mark.fault(27)
async def test_one_that_survives_is_named(
    daemon_with: Make, lifelines: Lifelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon_with(*GRANDCHILD) as daemon:
        pids = await lifelines.taken("leader", "beheaded")
        await until(daemon, State.READY)
        module = daemon.fleet.modules["stubborn"]
        pids.remove(module.workers[0].life.instances()[0].pid)
        await headless(*pids)
        with monkeypatch.context() as patched:
            # Whatever is sent to it, it stays: as if the kernel held it in a driver.
            patched.setattr(procfs, "send", lambda *_: True)
            module.stop("the test")
            await until(daemon, State.DOWN)
        assert module.last_exit.exit.survivors == tuple(pids)
        assert not lifelines.dead_already()
    await lifelines.all_dead()


async def test_an_orphan_without_its_main_thread_is_reaped_once_it_is_dead(
    daemon_with: Make, lifelines: Lifelines, rung: str
) -> None:
    if rung == "process_group":
        pytest.skip("on the lowest rung orphans are not the daemon's")
    async with daemon_with("beheaded", whole_process=True) as daemon:
        pids = await lifelines.taken("leader", "beheaded")
        await until(daemon, State.READY)
        pids.remove(daemon.fleet.modules["stubborn"].workers[0].life.instances()[0].pid)
        (pid,) = pids
        await headless(pid)
        os.kill(pid, 9)
        assert await trio.to_thread.run_sync(gone, pid)
