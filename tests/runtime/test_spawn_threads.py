"""The threads in which processes are spawned."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import trio

from supervisor.runtime.containment import procfs
from supervisor.runtime.spawn_threads import AT_ONCE, SpawnThreads


async def test_what_was_made_is_returned_and_what_was_raised_is_raised() -> None:
    threads = SpawnThreads()
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    threads.close()


async def test_threads_are_made_when_needed_and_end_when_closed() -> None:
    threads = SpawnThreads()
    met = threading.Barrier(AT_ONCE)
    used: list[threading.Thread] = []

    def meet() -> None:
        used.append(threading.current_thread())
        met.wait(60)

    async def one_by_one() -> threading.Thread:
        return await threads.run(threading.current_thread)

    assert len({await one_by_one() for _ in range(3)}) == 1
    async with trio.open_nursery() as nursery:
        for _ in range(2 * AT_ONCE):
            nursery.start_soon(threads.run, meet)
    assert len(set(used)) == AT_ONCE
    threads.close()
    for thread in used:
        await trio.to_thread.run_sync(thread.join, 60)
        assert not thread.is_alive()


async def test_what_has_begun_is_not_abandoned_when_cancelled() -> None:
    threads = SpawnThreads()
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
            await threads.run(work)
            assert ended.is_set()
    threads.close()


async def test_a_child_stays_in_the_list_of_the_thread_that_spawned_it() -> None:
    threads = SpawnThreads()
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    spawned = await threads.run(lambda: subprocess.Popen(command, stdin=subprocess.PIPE))
    me = threading.main_thread().native_id
    with spawned:
        thread = await threads.run(threading.get_native_id)
        assert me is not None
        assert spawned.pid in (procfs.children_of_thread(me, thread) or ())
        assert spawned.pid not in (procfs.children_of_thread(me, me) or ())
        spawned.kill()
    threads.close()
