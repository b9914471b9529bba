"""Processes are spawned in threads, within a bound, whatever their programs are on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.contained import ProcessGroup, ProcessGroupRung
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.containment.spawn import (
    AT_ONCE,
    ENDED_S,
    SLOW_S,
    SPAWN_S,
    Late,
    Spawner,
    SpawnTooSlowError,
)
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.process.spawning import spawn
from tests.bounds import WAIT_S
from tests.factories import PYTHON, descriptor, open_files, opened_since
from tests.runtime.containment.tracer import Tracer


@pytest.fixture
def spawner() -> Spawner:
    return ProcessRegistry.bare().spawner


async def test_a_spawn_returns_what_was_made_and_raises_what_was_raised(spawner: Spawner) -> None:
    assert await spawner.run("spawning", lambda _: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await spawner.run("spawning", lambda _: 1 // 0)


async def test_only_so_many_spawn_at_a_time(
    spawner: Spawner, mock_clock: trio.testing.MockClock
) -> None:
    """None counts as held up, however slowly it gets on: no time passes."""
    assert mock_clock.rate == 0
    met = threading.Barrier(AT_ONCE)
    used: list[threading.Thread] = []

    def meet(_: Late) -> None:
        used.append(threading.current_thread())
        met.wait(WAIT_S)

    async with trio.open_nursery() as nursery:
        for _ in range(2 * AT_ONCE):
            nursery.start_soon(spawner.run, "spawning", meet)
    assert len(set(used)) == AT_ONCE


async def test_a_spawn_that_has_begun_is_not_abandoned_when_cancelled(spawner: Spawner) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work(_: Late) -> None:
        begun.set()
        assert may_end.wait(WAIT_S)
        ended.set()

    async def cancel(scope: trio.CancelScope) -> None:
        await trio.to_thread.run_sync(begun.wait, WAIT_S)
        scope.cancel()
        may_end.set()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel, scope)
            await spawner.run("spawning", work)
            assert ended.is_set()


async def test_a_child_stays_in_the_list_of_the_thread_that_spawned_it() -> None:
    """Also if more threads wait for work than are kept: one that has forked does not end."""
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    threads: list[int] = []
    met = threading.Barrier(2 * AT_ONCE)
    registry = ProcessRegistry.bare()

    def spawn(_: Late) -> subprocess.Popen[bytes]:
        threads.append(threading.get_native_id())
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    with await registry.spawner.run("spawning", spawn) as spawned:
        async with trio.open_nursery() as nursery:
            for number in range(2 * AT_ONCE):
                nursery.start_soon(registry.threads.run, f"reading {number}", met.wait)
        me = threading.main_thread().native_id
        assert me is not None
        assert spawned.pid in (procfs.children_of_thread(me, threads[0]) or ())
        assert spawned.pid not in (procfs.children_of_thread(me, me) or ())
        spawned.kill()


@pytest.mark.fault(36)
async def test_spawns_that_are_held_up_leave_their_places_to_others(
    spawner: Spawner, mock_clock: trio.testing.MockClock
) -> None:
    answers = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(spawner.run, "spawning", lambda _: answers.wait())
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(SLOW_S)
        assert await spawner.run("spawning", lambda _: 7) == 7
        answers.set()


async def give_up(clock: trio.testing.MockClock) -> None:
    """Let the time be over that a spawn may take."""
    for seconds in (SLOW_S, SPAWN_S - SLOW_S):
        await trio.testing.wait_all_tasks_blocked()
        clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.fault(36)
async def test_a_program_that_is_looked_for_too_long_is_not_executed_any_more(
    spawner: Spawner, mock_clock: trio.testing.MockClock
) -> None:
    answers, begun, over = threading.Event(), trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    made: list[None] = []

    def make(late: Late) -> None:
        token.run_sync_soon(begun.set)
        answers.wait(WAIT_S)
        try:
            late.check()
            made.append(None)
        finally:
            over.set()

    async def spawn() -> None:
        with pytest.raises(SpawnTooSlowError):
            await spawner.run("spawning", make)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spawn)
        await begun.wait()
        await give_up(mock_clock)
    answers.set()
    assert await trio.to_thread.run_sync(over.wait, WAIT_S)
    assert made == []


@pytest.mark.fault(36)
@pytest.mark.parametrize("ends", [True, False])
async def test_a_child_that_never_gets_its_program_is_ended_and_not_waited_for(
    spawner: Spawner, mock_clock: trio.testing.MockClock, ends: bool
) -> None:
    goes_on, begun = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    children: list[subprocess.Popen[bytes]] = []

    def make(late: Late) -> str:
        with subprocess.Popen(["sleep", "1000"]) as child:
            children.append(child)
            token.run_sync_soon(begun.set)
            child.wait(WAIT_S)
        assert late.is_set()
        if not ends:
            goes_on.wait(WAIT_S)
        return "ended"

    async def spawn() -> None:
        with contextlib.nullcontext() if ends else pytest.raises(SpawnTooSlowError):
            assert await spawner.run("spawning", make) == "ended"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spawn)
        await begun.wait()
        await give_up(mock_clock)
        if not ends:
            mock_clock.jump(ENDED_S)
    goes_on.set()
    await trio.to_thread.run_sync(children[0].wait, WAIT_S)
    assert children[0].returncode == -signal.SIGKILL


@pytest.mark.fault(26)
async def test_who_holds_a_child_before_it_has_its_program_is_named(
    spawner: Spawner, mock_clock: trio.testing.MockClock
) -> None:
    begun, token = trio.Event(), trio.lowlevel.current_trio_token()
    pids: list[int] = []

    def make(late: Late) -> None:
        with subprocess.Popen(["sleep", "1000"]) as child, Tracer(child.pid) as tracer:
            pids.append(tracer.pid)
            token.run_sync_soon(begun.set)
            assert late.wait(WAIT_S)
        late.check()

    async def spawn() -> None:
        with pytest.raises(SpawnTooSlowError) as refused:
            await spawner.run("spawning", make)
        words = f"(pid {pids[0]}) traces the process that was to become it"
        assert words in str(refused.value.strerror)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spawn)
        await begun.wait()
        await give_up(mock_clock)


@pytest.mark.fault(36)
async def test_what_was_delivered_in_time_is_returned_however_late_that_is_heard_of(
    spawner: Spawner, mock_clock: trio.testing.MockClock
) -> None:
    goes_on, begun = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def make(late: Late) -> bool:
        delivered = late.delivered()
        token.run_sync_soon(begun.set)
        assert goes_on.wait(WAIT_S)
        return delivered

    async def spawn() -> None:
        assert await spawner.run("spawning", make)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spawn)
        await begun.wait()
        await give_up(mock_clock)
        goes_on.set()


class SlowRung(ProcessGroupRung):
    """Holds a process only when it may."""

    def __init__(self) -> None:
        super().__init__("a daemon")
        self.held: list[int] = []
        self.begun, self.may_hold = threading.Event(), threading.Event()

    def contain(self, instance: str, leader: procfs.Stat, brand: int) -> ProcessGroup:
        self.held.append(leader.pid)
        self.begun.set()
        assert self.may_hold.wait(WAIT_S)
        return super().contain(instance, leader, brand)


@pytest.mark.fault(36)
async def test_a_process_that_is_held_too_late_is_ended(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    registry, rung = ProcessRegistry.bare(), SlowRung()
    registry.rung = rung
    module = descriptor(tmp_path, [*PYTHON, "-c", "input()"])

    async def refused() -> None:
        with pytest.raises(SpawnError, match="was not there within"):
            await spawn(module, dict(os.environ), "m#1", registry)

    before = open_files()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused)
        await trio.to_thread.run_sync(rung.begun.wait, WAIT_S)
        await give_up(mock_clock)
    rung.may_hold.set()
    ends_at = time.monotonic() + WAIT_S
    while procfs.stat(rung.held[0]) is not None or opened_since(before):
        assert time.monotonic() < ends_at, "the process, or a descriptor of it, is left behind"
        await trio.to_thread.run_sync(time.sleep, 0.01)
