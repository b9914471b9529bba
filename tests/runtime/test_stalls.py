"""What counts as a stall of the event loop, whose it is, and what counts as a stop."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import Any

import pytest
import structlog.testing
import trio

from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import RunDelay, Stalls
from supervisor.runtime.turns import LoopTime
from tests.bounds import WAIT_S


class World:
    """A machine whose times are said."""

    def __init__(self) -> None:
        self.now = 100.0
        self.delay = 5.0
        self.continued = False
        self.looks = 0
        self.loop = LoopTime(lambda: self.now)
        self.loop.pass_ended()
        self.stalls = Stalls(
            run_delay=self._run_delay,
            continued=self._continued,
            loop=self.loop,
            wall_clock=lambda: 1_800_000_000.0,
        )

    def _run_delay(self) -> float:
        self.looks += 1
        return self.delay

    def _continued(self) -> bool:
        came, self.continued = self.continued, False
        return came

    def turn(self, *parts: tuple[str, str, float], delayed: float = 0.0) -> None:
        began = self.now
        for who, doing, seconds in parts:
            if who:
                self.loop.begin(who, doing)
            self.now += seconds
            self.loop.end()
        self.delay += delayed
        self.stalls.pass_ended(began, self.now)

    @property
    def longest(self) -> tuple[float, str | None, str | None] | None:
        found = self.stalls.longest
        return None if found is None else (found.ms, found.culprit, found.doing)


@pytest.fixture
def world() -> World:
    return World()


def test_a_long_turn_is_a_stall_of_whom_it_served_longest(world: World) -> None:
    world.turn(("a#1", "stdout", 0.005), ("client 3", "requests", 0.06), ("", "", 0.01))
    assert world.longest == (75.0, "client 3", "requests")
    world.turn(("b#1", "stderr", 0.03))  # a shorter one later
    assert world.longest == (75.0, "client 3", "requests")
    assert world.stalls.status()["longest_stall"]["ts"] == 1_800_000_000.0


def test_many_who_took_long_together_are_told_by_their_number(world: World) -> None:
    each = (("a#1" if number % 2 else "b#1", "stdout", 0.001) for number in range(38))
    world.turn(("client 3", "requests", 0.002), *each, ("", "", 0.03))
    words = "one after the other, the longest client 3: requests"
    assert world.longest == (70.0, "39 parties", words)


def test_who_was_served_in_a_former_turn_is_no_culprit(world: World) -> None:
    world.turn(("client 3", "requests", 0.009))
    world.turn(("", "", 0.08))
    assert world.longest == (80.0, None, None)


def test_what_a_request_asked_for_is_said(world: World) -> None:
    world.loop.begin("client 3", "requests")
    world.loop.about = "dice invoke roll"
    world.now += 0.06
    world.stalls.pass_ended(100.0, world.now)
    assert world.longest == (60.0, "client 3", "requests: dice invoke roll")


@pytest.mark.fault(29)
def test_a_turn_in_which_the_machine_did_not_let_it_run_is_none(world: World) -> None:
    world.turn(("client 3", "requests", 0.2), delayed=0.195)
    assert world.longest is None
    world.turn(("client 3", "requests", 0.2), delayed=0.14)
    assert world.longest == (60.0, "client 3", "requests")


def test_a_wait_in_the_midst_of_a_turn_is_one(world: World) -> None:
    world.turn(("a#1", "its end", 3.0))  # no CPU time, and nobody kept it from running
    assert world.longest == (3000.0, "a#1", "its end")
    assert world.stalls.suspensions.count == 0


def test_short_turns_are_not_looked_at_but_for_the_run_delay_now_and_then(world: World) -> None:
    looks = world.looks
    for _ in range(1000):
        world.turn(("a#1", "stdout", 0.0001))
    assert world.longest is None
    assert world.looks - looks <= 1000 * 0.0001 / 0.02 + 1


@pytest.mark.fault(28)
def test_a_stop_in_a_sleep_is_told_once_with_its_length(world: World) -> None:
    with structlog.testing.capture_logs() as logs:
        world.stalls.woke_late(3.5, world.now)
        world.turn(("a#1", "stdout", 0.001))
    (line,) = logs
    assert (line["event"], line["seconds"]) == ("the daemon was suspended", 3.5)
    assert world.stalls.status()["suspensions"] == {
        "count": 1,
        "total_s": 3.5,
        "last_s": 3.5,
        "last_ts": 1_800_000_000.0,
    }
    assert world.longest is None


@pytest.mark.fault(28)
def test_a_stop_in_a_turn_is_no_stall_if_somebody_continued_it(world: World) -> None:
    world.continued = True
    world.turn(("a#1", "stdout", 4.0))
    assert world.longest is None
    assert world.stalls.suspensions.last_s == 4.0
    world.turn(("a#1", "stdout", 4.0))  # that one was ours
    assert world.longest == (4000.0, "a#1", "stdout")


@pytest.mark.fault(28)
def test_a_short_stop_in_a_turn_is_nobodys_stall_and_no_suspension_either(world: World) -> None:
    world.continued = True
    world.turn(("a#1", "stdout", 0.3))
    assert world.longest is None
    assert world.stalls.suspensions.count == 0
    world.turn(("a#1", "stdout", 0.3))  # that one was ours
    assert world.longest == (300.0, "a#1", "stdout")


@pytest.mark.fault(28)
def test_a_stop_of_which_the_signal_is_heard_a_little_later_is_no_stall_any_more(
    world: World,
) -> None:
    # On a busy machine another thread had the signal: 3.5 s were told as a client's stall.
    world.turn(("client 3", "requests", 0.06))
    world.turn(("a#1", "stdout", 3.5))
    assert world.longest == (3500.0, "a#1", "stdout")
    world.continued = True
    world.turn(("", "", 0.009))  # not looked at yet
    world.now += 0.1
    world.turn(("", "", 0.001))
    assert world.longest == (60.0, "client 3", "requests")
    assert world.stalls.suspensions.last_s == 3.5
    assert world.stalls.suspensions.count == 1


@pytest.mark.fault(28)
def test_a_stop_of_which_the_signal_is_heard_when_the_loop_wakes_late_is_no_stall_any_more(
    world: World,
) -> None:
    # The machine is busy: so the signal comes later, and the loop wakes up late.
    world.turn(("a#1", "stdout", 3.5))
    world.continued = True
    world.now += 0.5
    world.delay += 0.5
    world.stalls.woke_late(0.5, world.now)
    assert world.longest is None
    assert world.stalls.suspensions.last_s == 3.5


@pytest.mark.fault(28)
def test_a_signal_that_a_sleep_was_stopped_by_is_not_about_a_stall_before(world: World) -> None:
    world.turn(("a#1", "stdout", 0.3))
    world.continued = True
    world.now += 0.5
    world.stalls.woke_late(0.5, world.now)
    assert world.longest == (300.0, "a#1", "stdout")


@pytest.mark.fault(28)
def test_a_signal_that_is_heard_much_later_is_about_something_else(world: World) -> None:
    world.turn(("a#1", "stdout", 3.5))
    world.now += 2.0
    world.continued = True
    world.turn(("", "", 0.001))
    assert world.longest == (3500.0, "a#1", "stdout")
    assert world.stalls.suspensions.count == 0


def test_a_late_sleep_on_a_busy_machine_is_no_stop(world: World) -> None:
    world.delay += 3.0
    world.stalls.woke_late(3.5, world.now)
    assert world.stalls.suspensions.count == 0


def test_what_was_before_the_beginning_is_forgotten(world: World) -> None:
    world.turn(("", "", 1.0))
    world.stalls.begin()
    world.turn(("", "", 1.0))  # it was in the midst of it
    assert world.longest is None
    world.turn(("a#1", "stdout", 1.0))
    assert world.longest == (1000.0, "a#1", "stdout")


def test_garbage_is_collected_on_the_daemons_own_account(world: World) -> None:
    world.loop.collecting("start", {})
    world.now += 0.07
    world.loop.collecting("stop", {})
    world.stalls.pass_ended(world.now - 0.1, world.now)
    assert world.longest == (100.0, "the daemon", "collecting garbage")


def test_the_run_delay_of_a_thread_never_falls_and_is_nothing_once_closed() -> None:
    run_delay = RunDelay()
    before = run_delay()
    sum(range(1000))
    assert run_delay() >= before >= 0
    run_delay.close()
    run_delay.close()
    assert run_delay() == 0


# In an event loop that runs.


@pytest.mark.fault(29)
def test_of_an_event_loop_that_runs_a_blocking_wait_is_told_and_run_delay_and_a_stop_are_not(
    world: World,
) -> None:
    class Stop(trio.abc.Instrument):
        """Has nobody sleep really, and the machine stopped for some seconds in the first sleep."""

        stopped_s = 3.5

        def before_io_wait(self, timeout: float) -> None:
            if timeout > 0:
                trio.lowlevel.current_trio_token().run_sync_soon(lambda: None)
                world.now += timeout + self.stopped_s
                self.stopped_s = 0.0

    async def block(who: str, seconds: float, delayed: float = 0.0) -> None:
        world.loop.begin(who, "its end")
        world.now += seconds
        world.delay += delayed
        world.loop.end()
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        assert trio.current_time() == world.now
        await block("a#1", 0.2, delayed=0.195)
        told.append(world.longest)
        await block("b#1", 0.06)
        told.append(world.longest)
        trio.lowlevel.add_instrument(Stop())
        await trio.sleep(1)
        assert world.stalls.suspensions.last_s == pytest.approx(3.5)
        told.append(world.longest)
        with trio.move_on_after(2) as bound:
            await block("c#1", 3.0)  # the time of the loop stands still, and that of a stall not
        assert not bound.cancelled_caught
        told.append(world.longest)

    told: list[Any] = []
    run_timed(main, stalls=world.stalls, clock=lambda: world.now)
    of_b, of_c = (60.0, "b#1", "its end"), (3000.0, "c#1", "its end")
    assert told == [None, of_b, of_b, of_c]


def test_a_wait_that_blocks_the_event_loop_of_this_machine_is_told() -> None:
    loop = LoopTime()
    loop.pass_ended()
    silent, kept_open = os.pipe()

    async def main() -> None:
        ends_at = time.monotonic() + WAIT_S
        # What the machine does meanwhile is taken off: so it may take more than one.
        while (found := stalls.longest) is None or found.ms < 20:
            assert time.monotonic() < ends_at, f"no stall of 50 ms was told, but {found}"
            loop.begin("m#1", "stdout")
            select.select([silent], [], [], 0.05)
            loop.end()
            await trio.lowlevel.checkpoint()
        assert (found.culprit, found.doing) == ("m#1", "stdout")

    try:
        with contextlib.closing(RunDelay()) as run_delay:
            stalls = Stalls(run_delay=run_delay, loop=loop)
            run_timed(main, stalls=stalls)
    finally:
        os.close(silent)
        os.close(kept_open)
