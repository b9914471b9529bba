"""The threads in which processes are spawned."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import pytest
import trio
import trio.testing

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.spawn_threads import (
    AT_ONCE,
    ENDED_S,
    SLOW_S,
    SPAWN_S,
    SpawnThreads,
    SpawnTooSlowError,
)


async def test_what_was_made_is_returned_and_what_was_raised_is_raised() -> None:
    threads = SpawnThreads(BlockingWork())
    assert await threads.run("spawning", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run("spawning", lambda: 1 // 0)
    threads.close()


async def test_threads_are_made_when_needed_and_end_when_closed(
    mock_clock: trio.testing.MockClock,
) -> None:
    """None counts as held up, however slowly it gets on: no time passes."""
    assert mock_clock.rate == 0
    threads = SpawnThreads(BlockingWork())
    met = threading.Barrier(AT_ONCE)
    used: list[threading.Thread] = []

    def meet() -> None:
        used.append(threading.current_thread())
        met.wait(60)

    async def one_by_one() -> threading.Thread:
        return await threads.run("spawning", threading.current_thread)

    assert len({await one_by_one() for _ in range(3)}) == 1
    async with trio.open_nursery() as nursery:
        for _ in range(2 * AT_ONCE):
            nursery.start_soon(threads.run, "spawning", meet)
    assert len(set(used)) == AT_ONCE
    threads.close()
    for thread in used:
        await trio.to_thread.run_sync(thread.join, 60)
        assert not thread.is_alive()


async def test_what_has_begun_is_not_abandoned_when_cancelled() -> None:
    threads = SpawnThreads(BlockingWork())
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert may_end.wait(60)
        ended.set()

    async def cancel(scope: trio.CancelScope) -> None:
        await trio.to_thread.run_sync(begun.wait, 60)
        scope.cancel()
        may_end.set()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel, scope)
            await threads.run("spawning", work)
            assert ended.is_set()
    threads.close()


async def test_a_child_stays_in_the_list_of_the_thread_that_spawned_it() -> None:
    threads = SpawnThreads(BlockingWork())
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    spawned = await threads.run(
        "spawning", lambda: subprocess.Popen(command, stdin=subprocess.PIPE)
    )
    me = threading.main_thread().native_id
    with spawned:
        thread = await threads.run("spawning", threading.get_native_id)
        assert me is not None
        assert spawned.pid in (procfs.children_of_thread(me, thread) or ())
        assert spawned.pid not in (procfs.children_of_thread(me, me) or ())
        spawned.kill()
    threads.close()


@pytest.mark.fault(36)
async def test_threads_that_are_held_up_leave_their_places_to_others(
    mock_clock: trio.testing.MockClock,
) -> None:
    threads, answers = SpawnThreads(BlockingWork()), threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(threads.run, "spawning", answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(SLOW_S)
        assert await threads.run("spawning", lambda: 7) == 7
        answers.set()
    threads.close()


@pytest.mark.fault(36)
async def test_who_looks_for_too_long_makes_nothing_any_more(
    mock_clock: trio.testing.MockClock,
) -> None:
    threads, answers, begun = SpawnThreads(BlockingWork()), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    looking: list[threading.Thread] = []
    made: list[None] = []

    def look() -> tuple[None]:
        looking.append(threading.current_thread())
        token.run_sync_soon(begun.set)
        answers.wait()
        return (None,)

    async def give_up() -> None:
        with pytest.raises(SpawnTooSlowError):
            await threads.run("spawning", made.append, look=look)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await begun.wait()
        await _pass(mock_clock)
    answers.set()
    threads.close()
    await trio.to_thread.run_sync(looking[0].join, 60)
    assert made == []


@pytest.mark.fault(36)
@pytest.mark.parametrize("ends", [True, False])
async def test_a_child_that_never_gets_its_program_is_ended_and_not_waited_for(
    mock_clock: trio.testing.MockClock,
    ends: bool,
) -> None:
    threads, ended, begun = SpawnThreads(BlockingWork()), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    told: list[int] = []

    def make() -> int:
        token.run_sync_soon(begun.set)
        ended.wait()
        return threading.get_native_id()

    def late(thread: int) -> None:
        told.append(thread)
        if ends:
            ended.set()

    async def spawn() -> None:
        with contextlib.nullcontext() if ends else pytest.raises(SpawnTooSlowError):
            assert [await threads.run("spawning", make, late=late)] == told

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spawn)
        await begun.wait()
        await _pass(mock_clock)
        if not ends:
            mock_clock.jump(ENDED_S)
    assert len(told) == 1
    ended.set()
    threads.close()


async def _pass(clock: trio.testing.MockClock) -> None:
    """Let the time be over that a spawn may take."""
    for seconds in (SLOW_S, SPAWN_S - SLOW_S):
        await trio.testing.wait_all_tasks_blocked()
        clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()
