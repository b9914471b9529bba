"""What counts as a stall of the event loop, whose it is, and what counts as a stop."""

from __future__ import annotations

import pytest
import structlog.testing

from supervisor.runtime.stalls import RunDelay, Serving, Stalls


class World:
    """A machine whose times are said."""

    def __init__(self) -> None:
        self.now = 100.0
        self.delay = 5.0
        self.continued = False
        self.looks = 0
        self.serving = Serving(lambda: self.now)
        self.stalls = Stalls(
            run_delay=self._run_delay,
            continued=self._continued,
            serving=self.serving,
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
                self.serving.begin(who, doing)
            self.now += seconds
            self.serving.end()
        self.delay += delayed
        self.stalls.turn_ended(began, self.now)

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


def test_who_was_served_in_a_former_turn_is_no_culprit(world: World) -> None:
    world.turn(("client 3", "requests", 0.009))
    world.turn(("", "", 0.08))
    assert world.longest == (80.0, None, None)


def test_what_a_request_asked_for_is_said(world: World) -> None:
    world.serving.begin("client 3", "requests")
    world.serving.about("dice invoke roll")
    world.now += 0.06
    world.stalls.turn_ended(100.0, world.now)
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
        world.stalls.woke_late(3.5)
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


def test_a_late_sleep_on_a_busy_machine_is_no_stop(world: World) -> None:
    world.delay += 3.0
    world.stalls.woke_late(3.5)
    assert world.stalls.suspensions.count == 0


def test_what_was_before_the_beginning_is_forgotten(world: World) -> None:
    world.turn(("", "", 1.0))
    world.stalls.begin()
    assert world.longest is None


def test_the_run_delay_of_this_thread_never_falls_and_its_file_is_closed_once() -> None:
    delay = RunDelay()
    before = delay()
    assert delay() >= before >= 0
    delay.close()
    delay.close()
    assert delay() == 0
