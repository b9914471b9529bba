"""The clock stands still while the loop could not come round."""

from __future__ import annotations

import os

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.loop_clock import GRACE_S, LATE_S, LoopClock
from supervisor.runtime.supervision.deadlines import Deadlines


class Machine:
    """A monotonic clock that somebody else moves, and what the loop does between two moves."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.late: list[float] = []
        self.passes: list[float] = []
        self.wakes = False
        self.clock = LoopClock(
            lambda: self.at,
            pass_ended=self._pass_ended,
            woke_late=lambda late_s, _: self.late.append(late_s),
        )

    def _pass_ended(self, began: float, ended: float) -> bool:
        self.passes.append(ended - began)
        return self.wakes

    def sleep(self, until: float, really_s: float) -> None:
        """Have the loop sleep until a time of its clock, and come round after so many seconds."""
        timeout = max(0.0, self.clock.deadline_to_sleep_time(until))
        self.at += really_s
        self.clock.after_io_wait(timeout)

    def left(self, deadline: float) -> float:
        return deadline - self.clock.current_time()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_it_goes_like_any_other_while_the_loop_comes_round(machine: Machine) -> None:
    began = machine.clock.current_time()
    for _ in range(100):
        machine.at += LATE_S * 0.9
        machine.clock.current_time()
        machine.sleep(machine.clock.current_time() + 1, 1 + LATE_S * 0.9)
    assert machine.clock.current_time() - began == pytest.approx(machine.at - 1000)
    assert machine.late == []


@pytest.mark.fault(28)
def test_what_was_left_before_a_suspend_is_left_after_it(machine: Machine) -> None:
    now = machine.clock.current_time()
    request, check = now + 2, now + 0.5
    machine.sleep(check, 4.0)
    assert machine.late == [pytest.approx(3.5)]
    assert machine.left(check) == pytest.approx(GRACE_S)
    assert machine.left(request) == pytest.approx(1.5 + GRACE_S)


@pytest.mark.fault(28)
def test_time_goes_on_only_when_what_has_waited_had_its_turn(machine: Machine) -> None:
    check = machine.clock.current_time() + 0.5
    machine.sleep(check, 4.0)
    before = machine.left(check)
    machine.at += GRACE_S * 0.9
    assert machine.left(check) == before
    machine.at += GRACE_S * 0.2
    assert machine.left(check) == pytest.approx(before - GRACE_S * 0.1)
    # And the loop sleeps exactly as long as it has to.
    assert machine.clock.deadline_to_sleep_time(check) == pytest.approx(machine.left(check))


@pytest.mark.fault(28)
def test_a_loop_that_had_work_to_do_when_it_was_stopped_has_lost_nothing(machine: Machine) -> None:
    request = machine.clock.current_time() + 0.001
    machine.sleep(0, 4.0)  # in a look at the pipes that was not to wait
    assert machine.left(request) > 0


@pytest.mark.fault(28)
def test_what_was_stopped_in_the_middle_of_a_pass_has_lost_nothing(machine: Machine) -> None:
    request = machine.clock.current_time() + 2
    machine.at += 4.0
    assert machine.left(request) == 2
    machine.at += 4.0
    machine.clock.after_io_wait(0.0)  # nobody looked at the clock in this pass
    assert machine.left(request) == 2
    assert machine.late == []  # it was no sleep that took too long


def test_a_loop_that_sleeps_for_hours_is_not_late(machine: Machine) -> None:
    now = machine.clock.current_time()
    machine.sleep(now + 36_000, 18_000)  # something came
    assert machine.clock.current_time() == now + 18_000


def test_passes_are_told(machine: Machine) -> None:
    machine.sleep(0, 0)
    machine.at += 0.25
    machine.sleep(0, 0)
    assert machine.passes == [0, 0.25]


def test_a_loop_does_not_sleep_if_the_end_of_a_pass_woke_a_task(machine: Machine) -> None:
    hour = machine.clock.current_time() + 3600
    assert machine.clock.deadline_to_sleep_time(hour) == 3600
    machine.wakes = True
    assert machine.clock.deadline_to_sleep_time(hour) == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["look", "sleep"]), st.floats(0, 5), st.floats(0, 3)), max_size=20
)


@given(STEPS)
def test_it_never_goes_back_and_never_faster(steps: list[tuple[str, float, float]]) -> None:
    machine = Machine()
    before, at = machine.clock.current_time(), machine.at
    for what, passes_s, timeout_s in steps:
        if what == "look":
            machine.at += passes_s
        else:
            machine.sleep(machine.clock.current_time() + timeout_s, passes_s)
        now = machine.clock.current_time()
        assert 0 <= now - before <= machine.at - at + 1e-6
        before, at = now, machine.at


@pytest.mark.fault(28)
def test_of_deadlines_that_passed_while_it_was_stopped_readers_come_first() -> None:
    """A real loop over a machine that stops for 4 s, in whatever order trio takes the tasks."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    order: list[str] = []
    machine = Machine()

    class Stops(trio.abc.Instrument):
        """Stops the machine in the first sleep; then an answer lies in the pipe."""

        stopped = False

        def before_io_wait(self, timeout: float) -> None:
            if timeout > 0:
                # Nobody sleeps really.
                trio.lowlevel.current_trio_token().run_sync_soon(lambda: None)
                machine.at += timeout if self.stopped else 4.0
                if not self.stopped:
                    os.write(writing, b"answer")
                self.stopped = True

    async def read() -> None:
        await trio.lowlevel.wait_readable(reading)
        order.append("answer")

    async def main() -> None:
        deadlines = Deadlines()
        done = trio.Event()
        deadlines.after(2.0, lambda: order.append("deadline"))
        deadlines.after(3.0, done.set)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            nursery.start_soon(read)
            with trio.move_on_after(1.0):
                await trio.sleep_forever()
            order.append("scope")
            await done.wait()
            nursery.cancel_scope.cancel()

    try:
        trio.run(main, clock=machine.clock, instruments=[machine.clock, Stops()])
    finally:
        os.close(reading)
        os.close(writing)
    assert order == ["answer", "scope", "deadline"]


def test_trio_asks_before_each_sleep_and_never_else_and_calls_one_hook() -> None:
    said: list[str] = []

    class Noted(LoopClock):
        def deadline_to_sleep_time(self, deadline: float) -> float:
            said.append("asks")
            return super().deadline_to_sleep_time(deadline)

    class Sleeps(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            said.append("sleeps" if timeout > 0 else "looks")

    async def main() -> None:
        for _ in range(3):
            await trio.sleep(0.0001)
            await trio.lowlevel.checkpoint()
            with trio.move_on_after(0):
                await trio.sleep_forever()

    clock = Noted()
    trio.run(main, clock=clock, instruments=[clock, Sleeps()])
    told = " ".join(said)
    assert told.count("asks sleeps") == told.count("sleeps") > 0
    assert told.count("asks") == told.count("asks sleeps") + told.count("asks looks")
    hooks = {name for name in vars(trio.abc.Instrument) if not name.startswith("_")}
    assert hooks & vars(LoopClock).keys() == {"after_io_wait"}
