"""Nothing is left of a module, on each rung: rows 1, 6 and 7 of docs/faults.md."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from protocol.errors import Failure, Reason
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import cgroup_folder, procfs
from tests import bounds
from tests.factories import open_files, opened_since
from tests.runtime.containment.in_process import ask, until
from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, gone

EVERY_VICE = ("ignores_term", "child", "setsid", "double")


Make = Callable[..., Any]


async def test_a_stop_leaves_nobody(daemon_with: Make, lifelines: Lifelines) -> None:
    async with daemon_with(*EVERY_VICE) as daemon:
        pids = await lifelines.taken("leader", "child", "setsid", "double")
        await until(daemon, State.READY)
        daemon.fleet.modules["stubborn"].stop("the test")
        await until(daemon, State.DOWN)
        assert lifelines.dead_already()
        await lifelines.all_dead()
        assert all(gone(pid) for pid in pids)


async def test_one_on_its_way_out_is_found_until_it_is_gone(
    daemon_with: Make, lifelines: Lifelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has lost its environment then, but its files and its number are still there."""
    async with daemon_with("double") as daemon:
        pids = await lifelines.taken("leader", "double")
        await until(daemon, State.READY)
        life: Any = daemon.fleet.modules["stubborn"].workers[0].life
        containment = life.process.containment
        # The one between the two is on its way out itself.
        with trio.fail_after(PATIENCE_S):
            while {one.pid for one in containment.find()} != set(pids):
                await trio.lowlevel.checkpoint()
        with monkeypatch.context() as patched:
            patched.setattr(procfs, "has_variables", lambda *_: False)
            assert {one.pid for one in containment.find()} == set(pids)


async def test_a_restart_leaves_nobody_of_the_former_instance(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with(*EVERY_VICE) as daemon:
        await lifelines.taken("leader", "child", "setsid", "double")
        await until(daemon, State.READY)
        daemon.fleet.modules["stubborn"].restart("the test")
        await lifelines.all_dead()
        await lifelines.taken("leader", "child", "setsid", "double")
        await until(daemon, State.READY)
    await lifelines.all_dead()


async def test_an_end_of_the_daemon_leaves_nobody(daemon_with: Make, lifelines: Lifelines) -> None:
    async with daemon_with(*EVERY_VICE):
        await lifelines.taken("leader", "child", "setsid", "double")
    assert lifelines.dead_already()


async def test_a_cancelled_daemon_leaves_nobody(daemon_with: Make, lifelines: Lifelines) -> None:
    with trio.CancelScope() as scope:
        async with daemon_with(*EVERY_VICE):
            await lifelines.taken("leader", "child", "setsid", "double")
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert lifelines.dead_already()


async def test_a_leader_that_exits_is_seen_at_once_though_another_holds_its_stdout(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with("setsid", "double", "child") as daemon:
        await lifelines.taken("leader", "child", "setsid", "double")
        await until(daemon, State.READY)
        response = await ask(daemon, "leave").response()
        assert isinstance(response.outcome, Failure)
        assert response.outcome.details["reason"] == Reason.EXITED
        assert response.outcome.details["exit_code"] == 0
        assert lifelines.dead_already()
        await until(daemon, State.DOWN)


async def test_a_fork_bomb_is_put_out(daemon_with: Make, lifelines: Lifelines) -> None:
    async with daemon_with("ignores_term") as daemon:
        await lifelines.taken("leader")
        await until(daemon, State.READY)
        await ask(daemon, "bomb").response()
        await trio.to_thread.run_sync(lifelines.take_all, 100)
        daemon.fleet.modules["stubborn"].stop("the test")
        await until(daemon, State.DOWN)
        registry = daemon.facts.registry
        mark = f"STDIOD_DAEMON={registry.daemon}"
        assert not [
            one
            for one in procfs.every_process()
            if one.lives and procfs.has_variables(one.pid, mark)
        ]
        assert daemon.fleet.modules["stubborn"].last_exit is not None
        assert daemon.fleet.modules["stubborn"].last_exit.exit.survivors == ()


async def test_what_is_orphaned_leaves_no_zombie(daemon_with: Make, lifelines: Lifelines) -> None:
    before = set(procfs.children(os.getpid()) or ())
    async with daemon_with("double", "double", whole_process=True) as daemon:
        await lifelines.taken("leader", "double", "double")
        await until(daemon, State.READY)
    assert set(procfs.children(os.getpid()) or ()) <= before


@pytest.mark.fault(26)
async def test_orphans_are_looked_at_and_reaped_beside_the_loop_whichever_module_ends(
    daemon_with: Make, lifelines: Lifelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands of them, and each look or reaping on the loop adds to its turn."""
    on_loop: list[object] = []

    def noting(function: Callable[..., Any], whom: int) -> Callable[..., Any]:
        def noted(*words: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(words[whom])
            return function(*words)

        return noted

    names = ("stubborn", "other")
    async with daemon_with("double", modules=names, whole_process=True) as daemon:
        pids = await lifelines.taken("leader", "double", "leader", "double")
        for name in names:
            await until(daemon, State.READY, name)
        lives: list[Any] = [daemon.fleet.modules[name].workers[0].life for name in names]
        orphans = {*pids} - {life.process.pid for life in lives}
        monkeypatch.setattr(procfs, "stat", noting(procfs.stat, 0))
        monkeypatch.setattr(os, "waitid", noting(os.waitid, 1))
        for name in names:
            daemon.fleet.modules[name].stop("the test")
            await until(daemon, State.DOWN, name)
        monkeypatch.undo()
    assert len(orphans) == len(names)
    assert not orphans & {*on_loop}
    assert all(gone(pid) for pid in pids)


async def test_an_orphan_that_ends_while_no_signal_is_received_is_reaped_all_the_same(
    daemon_with: Make, lifelines: Lifelines, rung: str
) -> None:
    """Tools that end one upon the other would each cost a turn of the loop by its SIGCHLD."""
    if rung == "process_group":
        pytest.skip("on the lowest rung orphans are not the daemon's")

    async def is_received(*, which: bool) -> None:
        def holds() -> bool:
            return (signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL) is which

        await trio.to_thread.run_sync(bounds.until, holds, f"SIGCHLD being received: {which}")

    async with daemon_with("double", "double", whole_process=True) as daemon:
        pids = await lifelines.taken("leader", "double", "double")
        await until(daemon, State.READY)
        pids.remove(daemon.fleet.modules["stubborn"].workers[0].life.instances()[0].pid)
        first, second = pids
        await is_received(which=True)
        os.kill(first, signal.SIGKILL)
        await is_received(which=False)
        os.kill(second, signal.SIGKILL)
        for pid in pids:
            assert await trio.to_thread.run_sync(gone, pid)
        await is_received(which=True)


async def test_no_cgroup_folder_and_no_descriptor_is_left(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    folders: list[str | None] = []

    async def cycle() -> None:
        async with daemon_with("child") as daemon:
            await lifelines.taken("leader", "child")
            await until(daemon, State.READY)
            folders.append(daemon.facts.registry.rung.folder)
        await lifelines.all_dead()

    await cycle()
    before = open_files()
    await cycle()
    assert not opened_since(before)
    assert not [one for one in folders if one is not None and cgroup_folder.subtree(one)]
