"""Work in threads: what is stuck keeps its own kind, and is named."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import trio
import trio.testing

from supervisor.runtime.blocking import END_S, LEAST_S, STUCK_S, BlockingWork, Stuck
from supervisor.runtime.containment.spawn_threads import SpawnThreads
from tests.bounds import WAIT_S
from tests.runtime.containment.lifelines import PATIENCE_S


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.fault(36)
async def test_what_is_stuck_keeps_its_own_kind_and_nobody_else(answers: threading.Event) -> None:
    blocking = BlockingWork()
    most = trio.to_thread.current_default_thread_limiter().total_tokens
    async with trio.open_nursery() as nursery:
        for number in range(int(most) + 1):
            nursery.start_soon(blocking.run, f"reading {number}", answers.wait)
        assert await blocking.run("spawning", lambda: 7) == 7
        answers.set()


@pytest.mark.fault(36)
async def test_what_takes_long_is_named_with_who_waits_for_it(answers: threading.Event) -> None:
    clock = Clock()
    blocking = BlockingWork(clock)
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang() -> None:
        token.run_sync_soon(begun.set)
        answers.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocking.run, "reading a", hang)
        await begun.wait()
        nursery.start_soon(blocking.run, "reading a", answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert blocking.stuck() == []
        clock.now = STUCK_S + 1
        assert blocking.stuck() == [Stuck("reading a", STUCK_S + 1, waiting=1)]
        answers.set()
    assert blocking.stuck() == []


async def test_who_gives_up_leaves_the_thread_in_its_place(answers: threading.Event) -> None:
    blocking, other = BlockingWork(), trio.Event()
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        answers.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(blocking.run, "reading a", hang, abandon_after_s=0))
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()

    async def next_one() -> None:
        await blocking.run("reading a", lambda: None)
        other.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(next_one)
        await trio.testing.wait_all_tasks_blocked()
        answers.set()
        await other.wait()


async def test_who_is_cancelled_leaves_nothing_at_work_that_is_not_stuck(
    answers: threading.Event,
) -> None:
    blocking, begun, done = BlockingWork(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        answers.wait()
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocking.run, "reading a", work)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
        answers.set()
    assert done.is_set()


async def test_without_a_thread_only_what_has_to_be_done_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", none_left)
    blocking = BlockingWork()
    assert await blocking.run("killing", lambda: 7, in_any_case=True) == 7
    with pytest.raises(OSError, match="no thread for reading: can't start new thread") as refused:
        await blocking.run("reading", lambda: 7)
    assert refused.value.errno == errno.EAGAIN


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_without_a_thread_those_for_spawns_do_one_thing_after_the_other(
    monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    async def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", none_left)
    blocking = BlockingWork()
    threads = SpawnThreads(blocking)
    blocking.spare = threads
    with pytest.raises(BlockingIOError):  # there is none
        await blocking.run("reading", threading.current_thread)
    spawns = await threads.run("spawning", threading.current_thread)
    assert await blocking.run("reading", threading.current_thread) is spawns
    with pytest.raises(ZeroDivisionError):
        await blocking.run("reading", lambda: 1 // 0)
    done = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocking.run, "reading a", answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            await blocking.run("reading b", done.set, abandon_after_s=0)
        assert scope.cancelled_caught
        answers.set()
    assert not await blocking.run("reading", done.is_set)  # nobody has waited for it
    threads.close()


async def test_no_more_of_a_kind_than_may_be_are_done_by_the_threads_for_spawns(
    monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    # One dead mount took all of them, and what is to be done one at a time was done at once.
    async def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    blocking = BlockingWork()
    threads = SpawnThreads(blocking)
    blocking.spare = threads
    barrier = threading.Barrier(2, timeout=WAIT_S)
    async with trio.open_nursery() as both:  # so that there are two
        for _ in range(2):
            both.start_soon(threads.run, "spawning", barrier.wait)
    monkeypatch.setattr(trio.to_thread, "run_sync", none_left)
    begun: list[str] = []

    def look() -> bool:
        begun.append("look")
        return answers.wait(WAIT_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(blocking.run, "reading", look, abandon_after_s=0))
        while not begun:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocking.run, "reading", look)
        await trio.testing.wait_all_tasks_blocked()
        assert begun == ["look"]  # it is left, and at work
        assert await threads.run("spawning", lambda: "made") == "made"
        answers.set()
    assert begun == ["look", "look"]
    threads.close()


async def test_what_the_work_itself_raises_is_told_as_it_is() -> None:
    def fails() -> None:
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        await BlockingWork().run("killing", fails, in_any_case=True)


@pytest.mark.fault(36)
async def test_what_takes_too_long_is_left_at_work_and_what_did_not_begin_is_not_done(
    answers: threading.Event,
) -> None:
    clock = Clock()
    blocking = BlockingWork(clock)
    at_work: set[object] = set()
    waiting: set[object] = set()
    done: list[None] = []
    begun = threading.Event()

    def hang() -> bool:
        begun.set()
        return answers.wait()

    while not begun.is_set():  # a thread that had not begun when it was left does nothing
        assert await blocking.run_or_leave("a", hang, at_work, leave_after_s=0.01) is None
    clock.now = STUCK_S + 1
    assert at_work
    assert [one.doing for one in blocking.stuck()] == ["a"]
    await blocking.run_or_leave("a", partial(done.append, None), waiting, leave_after_s=0.01)
    assert not waiting
    answers.set()
    with trio.fail_after(PATIENCE_S):
        assert await blocking.run_or_leave("a", lambda: 7, waiting, leave_after_s=PATIENCE_S) == 7
    assert not at_work
    assert not done


@pytest.mark.fault(36)
async def test_the_end_waits_for_all_that_is_stuck_within_one_bound(
    answers: threading.Event,
) -> None:
    clock = Clock()
    blocking = BlockingWork(clock)
    blocking.begin_end()
    clock.now = END_S - 1
    blocking.begin_end()
    assert blocking.end_left_s() == 1
    clock.now = 2 * END_S
    assert blocking.end_left_s() == LEAST_S
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang() -> None:
        token.run_sync_soon(begun.set)
        answers.wait()

    # Who is cancelled by then waits no longer for its thread, whatever it may have elsewhere.
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            work = partial(blocking.run, "reading", hang, abandon_after_s=2 * PATIENCE_S)
            nursery.start_soon(work)
            await begun.wait()
            nursery.cancel_scope.cancel()
