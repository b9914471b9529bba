"""Work in threads: what is stuck keeps its own kind, and is named; others go on."""

from __future__ import annotations

import contextlib
import errno
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.runtime import threads as threads_module
from supervisor.runtime.threads import (
    END_S,
    KEPT,
    LEAST_S,
    STUCK_S,
    UNANSWERED,
    NoAnswerError,
    Stuck,
    Threads,
)
from tests.bounds import WAIT_S, until
from tests.factories import none_left
from tests.runtime.containment.lifelines import PATIENCE_S

Look = tuple[str, Callable[[], object]]


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
    threads = Threads()
    most = trio.to_thread.current_default_thread_limiter().total_tokens
    async with trio.open_nursery() as nursery:
        for number in range(int(most) + 1):
            nursery.start_soon(threads.run, f"reading {number}", answers.wait)
        assert await threads.run("spawning", lambda: 7) == 7
        answers.set()


@pytest.mark.fault(36)
async def test_what_takes_long_is_named_with_who_waits_for_it(answers: threading.Event) -> None:
    clock = Clock()
    threads = Threads(clock)
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang() -> None:
        token.run_sync_soon(begun.set)
        answers.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, "reading a", hang)
        await begun.wait()
        nursery.start_soon(threads.run, "reading a", answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert threads.stuck() == []
        clock.now = STUCK_S + 1
        assert threads.stuck() == [Stuck("reading a", STUCK_S + 1, waiting=1)]
        answers.set()
    assert threads.stuck() == []


async def test_who_gives_up_leaves_the_thread_in_its_place(answers: threading.Event) -> None:
    threads, other = Threads(), trio.Event()
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        answers.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(threads.run, "reading a", hang, abandon_after_s=0))
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()

    async def next_one() -> None:
        await threads.run("reading a", lambda: None)
        other.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(next_one)
        await trio.testing.wait_all_tasks_blocked()
        answers.set()
        await other.wait()


async def test_who_is_cancelled_leaves_nothing_at_work_that_is_not_stuck(
    answers: threading.Event,
) -> None:
    threads, begun, done = Threads(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        answers.wait()
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, "reading a", work)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
        answers.set()
    assert done.is_set()


async def test_without_any_thread_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(OSError, match="can't start new thread") as refused:
        await Threads().run("reading", lambda: 7)
    assert refused.value.errno == errno.EAGAIN


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


@pytest.mark.fault(21)
async def test_without_a_further_thread_those_that_there_are_do_one_thing_after_the_other(
    monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    threads = Threads()
    only = await threads.run("reading", threading.current_thread)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert await threads.run("spawning", threading.current_thread) is only
    with pytest.raises(ZeroDivisionError):
        await threads.run("reading", lambda: 1 // 0)
    done = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, "reading a", answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            await threads.run("reading b", done.set)
        assert scope.cancelled_caught
        answers.set()
    assert not await threads.run("reading", done.is_set)  # nobody has waited for it


async def test_threads_beyond_those_that_are_kept_end_and_all_end_with_their_owner() -> None:
    threads, met, used = Threads(), threading.Barrier(2 * KEPT), list[threading.Thread]()

    def meet() -> None:
        used.append(threading.current_thread())
        met.wait(WAIT_S)

    async with trio.open_nursery() as nursery:
        for number in range(2 * KEPT):
            nursery.start_soon(threads.run, f"reading {number}", meet)
    until(lambda: sum(one.is_alive() for one in used) == KEPT, "those that are kept")
    assert await threads.run("reading", threading.current_thread) in used
    del threads
    until(lambda: not any(one.is_alive() for one in used), "the end of all")


async def test_threads_that_fork_are_others_and_so_many_as_fork_at_a_time() -> None:
    """However many threads have worked in one moment before: those that fork never end."""
    threads, forking = Threads(), set[threading.Thread]()
    for _ in range(5):
        met = threading.Barrier(20)
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(threads.run, f"reading {number}", met.wait)
        for _ in range(10):
            job = await threads.begin("spawning", threading.current_thread, forks=True)
            await job.done.wait()
            forking.add(job.result())
    assert len(forking) == 1
    threads.close()


async def test_an_error_of_a_thread_is_freed_at_once() -> None:
    """A cycle would wait for the collector, which stops the event loop."""
    raised: list[weakref.ref[BaseException]] = []

    class OwnError(Exception):
        def __init__(self) -> None:
            raised.append(weakref.ref(self))

    def fails() -> None:
        raise OwnError

    threads = Threads()
    gc.disable()
    try:
        with contextlib.suppress(OwnError):
            await threads.run("reading", fails)
        assert [one() for one in raised] == [None]
    finally:
        gc.enable()


@pytest.mark.fault(36)
async def test_what_takes_too_long_is_left_at_work_and_what_did_not_begin_is_not_done(
    answers: threading.Event,
) -> None:
    clock = Clock()
    threads = Threads(clock)
    at_work: set[object] = set()
    waiting: set[object] = set()
    done: list[None] = []
    begun = threading.Event()

    def hang() -> bool:
        begun.set()
        return answers.wait()

    while not begun.is_set():  # a thread that had not begun when it was left does nothing
        assert await threads.run_or_leave("a", hang, at_work, leave_after_s=0.01) is None
    clock.now = STUCK_S + 1
    assert at_work
    assert [one.doing for one in threads.stuck()] == ["a"]
    await threads.run_or_leave("a", partial(done.append, None), waiting, leave_after_s=0.01)
    assert not waiting
    answers.set()
    with trio.fail_after(PATIENCE_S):
        assert await threads.run_or_leave("a", lambda: 7, waiting, leave_after_s=PATIENCE_S) == 7
    assert not at_work
    assert not done


@pytest.mark.fault(36)
async def test_the_end_waits_for_all_that_is_stuck_within_one_bound(
    answers: threading.Event,
) -> None:
    clock = Clock()
    threads = Threads(clock)
    threads.begin_end()
    clock.now = END_S - 1
    threads.begin_end()
    assert threads.end_left_s() == 1
    clock.now = 2 * END_S
    assert threads.end_left_s() == LEAST_S
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang() -> None:
        token.run_sync_soon(begun.set)
        answers.wait()

    # Who is cancelled by then waits no longer for its thread, whatever it may have elsewhere.
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            work = partial(threads.run, "reading", hang, abandon_after_s=2 * PATIENCE_S)
            nursery.start_soon(work)
            await begun.wait()
            nursery.cancel_scope.cancel()


# Looks from a thread, or a program without an event loop.


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch, answers: threading.Event) -> threading.Event:
    """Return what lets looks answer that do not."""
    for bound in ("PATIENCE_S", "LEAST_PATIENCE_S", "NEEDED_PATIENCE_S"):
        # One that answers may have to wait for a processor.
        monkeypatch.setattr(threads_module, bound, 0.5)
    return answers


def of(seen: object) -> Callable[[], object]:
    return lambda: seen


def test_looks_are_answered_in_their_order(hanging: threading.Event) -> None:
    threads = Threads()
    assert not hanging.is_set()
    assert threads.look_at_each([(f"look {n}", of(n)) for n in range(1000)]) == list(range(1000))
    assert threads.look_at_each([]) == []
    assert threads.look_at_each([("none", of(None))]) == [None]


def test_one_thread_looks_for_as_long_as_all_answer(hanging: threading.Event) -> None:
    assert not hanging.is_set()
    looks = [(f"look {n}", threading.get_ident) for n in range(1000)]
    assert len(set(Threads().look_at_each(looks))) == 1


def test_what_does_not_answer_is_left_and_named_and_the_others_are_looked_at(
    hanging: threading.Event,
) -> None:
    now = 0.0
    threads = Threads(lambda: now)

    def dead() -> str:
        hanging.wait(WAIT_S)
        return "late"

    asked: list[Look] = [("one", of(1)), ("dead", dead), ("two", of(2)), ("dead too", dead)]
    asked.append(("three", of(3)))
    expected = [1, UNANSWERED, 2, UNANSWERED, 3]
    assert threads.look_at_each(asked) == expected
    now = 100.0
    assert {one.doing for one in threads.stuck()} == {"dead", "dead too"}
    # Nobody looks there again meanwhile: there is a thread for each, however often it is asked.
    before = threading.active_count()
    for _ in range(10):
        assert threads.look_at_each(asked) == expected
    until(lambda: threading.active_count() <= before, "no more threads than before")
    hanging.set()
    until(lambda: threads.look_at_each(asked) == [1, "late", 2, "late", 3], "all answers")


def test_what_a_look_raises_is_raised_for_whoever_waits(hanging: threading.Event) -> None:
    threads = Threads()
    assert not hanging.is_set()

    def fails() -> None:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        threads.look_at_each([("one", of(1)), ("fails", fails), ("never", of(2))])
    assert threads.look_at_each([("one", of(1))]) == [1]


def test_a_place_that_there_is_no_way_without_is_named(hanging: threading.Event) -> None:
    threads = Threads()
    with pytest.raises(NoAnswerError, match="/mnt/data does not answer: a dead mount"):
        threads.look_at(Path("/mnt/data"), lambda: hanging.wait(WAIT_S))
    assert threads.look_at(Path("/mnt/other"), of(1)) == 1
