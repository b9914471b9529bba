"""The queue of a module and what it answers when it cannot serve, with fake lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing

from protocol.errors import Failure, Reason
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.module import Module
from tests.factories import Heard, actor, call
from tests.runtime.conftest import Running
from tests.runtime.fakes import Stage, staged, undescribed

STEADY = {"backoff": {"initial_s": 4, "factor": 2, "jitter": 0}}
LATE = Stopped(Reason.DEADLINE, "m.echo gave no answer in 1 s")


def made(running: Running, folder: Path, *, up: bool = True, **supervision: Any) -> Module:
    module = running(staged(folder, supervision={**STEADY, **supervision}))
    if up:
        module.start("the test")
    return module


def submit(module: Module, count: int = 1) -> list[Heard]:
    waiting = []
    for number in range(count):
        one, heard = call(n=number)
        module.submit(one)
        waiting.append(heard)
    return waiting


def refused(module: Module) -> Failure:
    """Submit a call that is to be refused at once."""
    (heard,) = submit(module)
    (outcome,) = heard.outcomes
    assert isinstance(outcome, Failure)
    return outcome


def facts(failure: Failure) -> tuple[str, str]:
    return failure.code, failure.details["reason"]


async def test_calls_that_came_before_it_is_ready_are_served_in_their_order(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    waiting = submit(module, 3)
    assert (module.queued, stage.life.served) == (3, [])
    stage.life.get_ready()
    assert (module.queued, module.in_flight, stage.life.served) == (2, 1, [0])
    for _ in range(3):
        stage.life.answer("done")
    assert stage.life.served == [0, 1, 2]
    assert all(len(heard.outcomes) == 1 for heard in waiting)


async def test_concurrency_bounds_what_is_in_flight(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path, concurrency=3)
    stage.life.get_ready()
    submit(module, 10)
    assert (module.in_flight, module.queued) == (3, 7)
    stage.life.answer()
    assert (module.in_flight, module.queued) == (3, 6)


async def test_a_full_queue_refuses_and_says_its_limit(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path, queue=2)
    stage.life.get_ready()
    submit(module, 3)
    refusal = refused(module)
    assert facts(refusal) == ("unreachable", "queue_full")
    assert refusal.details["queue"] == 2
    stage.life.answer()
    (heard,) = submit(module)
    assert heard.outcomes == []


async def test_a_call_given_up_while_it_waits_leaves_the_queue_and_never_runs(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    submit(module)
    waiting, heard = call(n="given up")
    module.submit(waiting)
    module.give_up(waiting, LATE)
    module.give_up(waiting, LATE)
    (outcome,) = heard.outcomes
    assert isinstance(outcome, Failure)
    words = "it was still waiting for its turn: it waits for echo of m, concurrency 1"
    assert outcome.message.endswith(words)
    assert module.queued == 0
    stage.life.answer()
    assert stage.life.served == [0]


async def test_a_call_given_up_in_flight_is_told_to_its_server_with_its_evidence(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    flying, heard = call()
    module.submit(flying)
    (behind,) = submit(module)
    module.give_up(flying, LATE)
    (outcome,) = heard.outcomes
    assert isinstance(outcome, Failure)
    assert facts(outcome) == ("timeout", "deadline")
    assert outcome.details["instance"] == "m#1"
    assert stage.life.given_up == [LATE]
    assert stage.life.served == [None, 0]  # the next one's turn
    assert behind.outcomes == []


async def test_a_lazy_module_starts_with_its_first_call(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path, up=False, start="lazy")
    assert (module.state, stage.lives) == (State.DOWN, [])
    (heard,) = submit(module)
    assert module.state is State.STARTING
    stage.life.get_ready()
    stage.life.answer("here")
    assert len(heard.outcomes) == 1


async def test_a_lazy_module_that_was_stopped_stays_stopped(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path, up=False, start="lazy")
    module.stop("the test")
    assert facts(refused(module)) == ("unreachable", "not_ready")
    assert stage.lives == []


async def test_a_stopped_module_refuses_and_says_how_to_start_it(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path, up=False)
    refusal = refused(module)
    assert facts(refusal) == ("unreachable", "not_ready")
    assert "`stdiod start m`" in refusal.message
    assert "retry_in_s" not in refusal.details


async def test_waiting_calls_are_refused_with_what_it_died_of_and_when_it_is_tried_again(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    (heard,) = submit(module)
    await stage.life.fail_to_spawn()
    for outcome in (heard.outcomes[0], refused(module)):
        assert isinstance(outcome, Failure)
        assert facts(outcome) == ("unreachable", "spawn_failed")
        assert outcome.details["retry_in_s"] == pytest.approx(4, abs=1)
        assert "no such program" in outcome.message


@pytest.mark.fault(29)
async def test_those_that_wait_are_refused_in_turns(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    del stage
    module = made(running, tmp_path, queue=1024)
    waiting = submit(module, 1024)
    failure = Failure.because(Reason.NOT_READY, "it will not be ready")
    module.refuse_waiting(failure)
    assert not any(heard.outcomes for heard in waiting)
    assert module.queued == 0
    await trio.testing.wait_all_tasks_blocked()
    assert all(heard.outcomes == [failure] for heard in waiting)


async def test_a_failed_module_refuses_and_says_when_the_next_try_is(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path, intensity=0, retry_failed_s=300)
    (heard,) = submit(module)
    await stage.life.die(3)
    for outcome in (heard.outcomes[0], refused(module)):
        assert isinstance(outcome, Failure)
        assert facts(outcome) == ("unreachable", "failed")
        assert outcome.details["retry_in_s"] == pytest.approx(300, abs=1)
        assert outcome.details["exit_code"] == 3
    assert module.state is State.FAILED


async def test_a_module_that_is_being_stopped_takes_no_call(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    (flying, waiting) = submit(module, 2)
    module.stop("the test")
    assert facts(refused(module)) == ("unreachable", "stopping")
    stage.life.answer("in time")
    assert len(flying.outcomes) == 1
    assert waiting.outcomes == []  # until it is gone
    await stage.life.die(0)
    (outcome,) = waiting.outcomes
    assert isinstance(outcome, Failure)


async def test_an_earlier_death_is_no_evidence_of_a_module_that_is_busy_or_being_stopped(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    await stage.life.die(None, signal=9)
    stage.life.get_ready()
    submit(module)
    waiting, heard = call()
    module.submit(waiting)
    module.give_up(waiting, LATE)
    module.stop("the test")
    for failure in (await heard.failure(), refused(module)):
        assert not failure.details.keys() & {"signal", "exit_code", "stderr_tail"}
    assert module.last_exit is not None


async def test_a_module_of_a_daemon_that_ends_says_so(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    running.host.shutting_down = True
    module.stop("the daemon is stopping")
    assert facts(refused(module)) == ("cancelled", "shutdown")
    await stage.life.die(0)
    assert facts(refused(module)) == ("cancelled", "shutdown")


async def test_calls_wait_through_a_restart(running: Running, stage: Stage, tmp_path: Path) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    module.restart("the test")
    (heard,) = submit(module)
    await stage.life.die(0)
    stage.life.get_ready()
    assert stage.life.served == [0]
    stage.life.answer("after")
    assert len(heard.outcomes) == 1


async def test_calls_wait_through_the_immediate_restart_after_a_crash(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    stage.life.get_ready()
    _, waiting = submit(module, 2)
    await stage.life.die(1)
    assert waiting.outcomes == []
    stage.life.get_ready()
    assert stage.life.served == [1]
    assert module.restarts == 1


async def test_a_client_that_asks_again_from_within_its_refusal_does_no_harm(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)

    class Stubborn(Heard):
        def answered(self, outcome: Any, call: Any) -> None:
            super().answered(outcome, call)
            if len(self.outcomes) < 5:
                module.start("a stubborn client")
                again, _ = self.again()
                module.submit(again)

        def again(self) -> Any:
            one, heard = call()
            one.listener = self
            return one, heard

    stubborn = Stubborn()
    one, _ = stubborn.again()
    module.submit(one)
    await stage.life.fail_to_spawn()
    await trio.testing.wait_all_tasks_blocked()
    assert stage.alive == [] or len(stage.alive) == 1
    assert module.state in (State.BACKOFF, State.STARTING)


async def test_a_module_that_is_not_up_says_why_it_cannot_be_asked(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = made(running, tmp_path)
    outcome = await module.ask("health")  # type: ignore[arg-type]
    assert isinstance(outcome, Failure)
    assert facts(outcome) == ("unreachable", "not_ready")
    assert "starting" in outcome.message


def test_what_args_are_not_held_to_is_logged_when_the_op_is_first_called(tmp_path: Path) -> None:
    descriptions = undescribed(staged(tmp_path))
    said = {"name": "m", "kind": "tool", "capabilities": [], "inputs": {"go": {"pattern": "("}}}
    assert descriptions.begin("m#1", said) is None
    validator = descriptions.renewed()
    assert validator is not None
    with structlog.testing.capture_logs() as lines:
        assert [validator.fault("go", {}) for _ in range(2)] == [None, None]
    (line,) = lines
    assert (line["log_level"], line["module"], line["op"]) == ("warning", "m", "go")
    assert line["words"] == '/pattern: "(" is not a regular expression that can be used here'


async def test_a_change_of_state_is_logged_with_the_instance_there_is_or_was(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    # Review: the daemon's log named no instance, and the module's log one that never was.
    with structlog.testing.capture_logs() as lines:
        module = made(running, tmp_path)
        stage.life.get_ready()
        module.stop("the test")
        await stage.life.die(0)
    states = [(one["after"], one.get("instance")) for one in lines if "after" in one]
    assert states == [
        (State.STARTING, None),
        (State.READY, "m#1"),
        (State.STOPPING, "m#1"),
        (State.DOWN, "m#1"),
    ]
    written = [one.instance for one in await module.log.last_lines(10)]
    assert written == ["m", "m#1", "m#1", "m#1"]


async def test_a_change_of_state_of_a_module_per_invocation_has_no_instance(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, transport={"lifecycle": "per-invocation"}))
    one, heard = call()
    module.submit(one)
    await heard.success()
    with structlog.testing.capture_logs() as lines:
        await running.down()
    assert ["instance" in one for one in lines if one["event"] == "module state"] == [False] * 2
    assert {one.instance for one in await module.log.last_lines(10)} == {"m"}
