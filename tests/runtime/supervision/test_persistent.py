"""A persistent process on its way from spawn to gone, with a real one."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.connection import Alive
from protocol.errors import Failure, Success
from protocol.replies import Operation
from protocol.transcript import EntrySource
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.persistent import PersistentLife
from supervisor.transcripts.recording import Recording
from tests.factories import (
    Heard,
    actor,
    call,
    children,
    descriptor,
    open_files,
    opened_since,
    pass_time,
)
from tests.runtime.conftest import Running
from tests.runtime.process.test_process import door

NEVER_S = 1000
LONG_AGO_S = -1.0
QUIET = {"health": {"interval_s": NEVER_S}, "backoff": {"initial_s": NEVER_S, "max_s": NEVER_S}}


def submit(module: Module, op: str, **args: Any) -> Heard:
    one, heard = call(op, **args)
    module.submit(one)
    return heard


async def ask(module: Module, op: str, **args: Any) -> Any:
    return (await submit(module, op, **args).success()).result


async def ended(running: Running, state: State = State.BACKOFF) -> Any:
    """Wait for a start that fails; return what it died of."""
    module = running.module
    module.start("the test")
    await running.until(lambda: module.state is state)
    assert module.last_exit is not None
    return module.last_exit


async def test_a_module_starts_serves_and_stops_and_leaves_nothing(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    module = await running.ready(actor(tmp_path))
    assert running.states == [State.STARTING, State.READY]
    assert await ask(module, "echo", n=1) == {"n": 1}
    facts = await ask(module, "whoami")
    (shown,) = module.workers[0].life.instances()  # type: ignore[union-attr]
    assert (shown.pid, shown.id) == (facts["pid"], facts["instance"])
    assert shown.id == "m#1"
    await running.down()
    assert children() == []
    assert not opened_since(before)
    assert module.last_exit is not None
    assert (module.last_exit.reason, module.last_exit.exit.exit_code) == (
        "stopped",
        0,
    )


async def test_a_module_that_says_it_is_starting_is_asked_until_it_is_well(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, "starting=3"))
    assert isinstance(await module.ask(Operation.HEALTH), Success)


async def test_one_that_never_gets_well_ends_at_its_start_deadline(
    running: Running, tmp_path: Path
) -> None:
    running(actor(tmp_path, "never-ready", supervision={**QUIET, "timeouts": {"start_s": 0.2}}))
    died = await ended(running)
    assert died.reason == "start_deadline"
    assert died.exit.exit_code == 0  # the end of its input is enough
    assert children() == []
    refusal = await submit(running.module, "echo").failure()
    assert (refusal.code, refusal.details["reason"]) == ("timeout", "start_deadline")
    assert refusal.details["stopped_by_host"] is True


@pytest.mark.parametrize(
    "lines", ["sys.stdin", "sys.stdin.readlines()"], ids=["no flush", "reads it all first"]
)
async def test_an_answer_that_comes_only_with_the_end_of_input_names_the_missing_flush(
    running: Running, tmp_path: Path, lines: str
) -> None:
    code = f'import sys\nfor line in {lines}: print(\'{{"status": "ok"}}\')'
    quick = {**QUIET, "timeouts": {"start_s": 0.5, "exit_s": 60}}
    running(descriptor(tmp_path, [sys.executable, "-IS", "-c", code], supervision=quick))
    died = await ended(running)
    assert died.reason == "start_deadline"
    assert "it does not flush its stdout after each line" in died.message


async def test_a_program_that_cannot_run_is_why_its_start_failed(
    running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "tool"
    path.write_text("#!/usr/bin/env nosuchthing\n")
    path.chmod(0o755)
    running(descriptor(tmp_path, ["./tool"], supervision=QUIET))
    died = await ended(running)
    assert "runs env, and there is no program 'nosuchthing'" in died.message
    assert died.message.endswith("): it exited with code 127")


async def test_one_that_stays_starting_is_told_what_it_said(
    running: Running, tmp_path: Path
) -> None:
    module = running(actor(tmp_path, "starting=1000000", supervision=QUIET))
    recording = Recording()
    module.taps.attach(recording)
    module.start("the test")
    while all(one.source is not EntrySource.MODULE for one in recording.take()):
        await trio.lowlevel.checkpoint()
    pass_time(running.host.deadlines, NEVER_S)
    assert 'its health is "starting"' in (await ended(running)).message


async def test_one_that_describes_itself_as_another_is_ended(
    running: Running, tmp_path: Path
) -> None:
    running(actor(tmp_path, "kind=hook", supervision=QUIET))
    died = await ended(running)
    assert died.reason == "bad_describe"
    assert "kind 'hook'; its descriptor says 'tool'" in died.message


async def test_one_that_does_not_answer_describe_is_ended(running: Running, tmp_path: Path) -> None:
    limits = {"timeouts": {"describe_s": 0.1}}
    running(actor(tmp_path, "no-describe", supervision={**QUIET, **limits}))
    died = await ended(running)
    assert died.reason == "bad_describe"
    assert "gave no answer to describe in 0.1 s" in died.message


async def test_a_program_that_is_not_there_is_an_ordinary_failure(
    running: Running, tmp_path: Path
) -> None:
    running(descriptor(tmp_path, ["./gone"], supervision=QUIET))
    died = await ended(running)
    assert (died.reason, died.exit.exit_code) == ("spawn_failed", None)
    assert "gone is not there" in died.message


@pytest.mark.parametrize(
    ("op", "args", "reason"),
    [
        ("exit", {"code": 3, "words": "boom"}, "exited"),
        ("exit", {"code": 0, "words": "boom"}, "exited"),
        ("kill", {"signal": 9}, "signaled"),
        ("kill", {"signal": 11}, "signaled"),
    ],
)
async def test_a_death_settles_each_request_in_flight_with_its_cause(
    running: Running, tmp_path: Path, op: str, args: dict[str, Any], reason: str
) -> None:
    module = await running.ready(actor(tmp_path, supervision={"concurrency": 3}))
    waiting = [submit(module, "hang"), submit(module, "hang"), submit(module, op, **args)]
    for heard in waiting:
        failure = await heard.failure()
        assert (failure.code, failure.details["reason"]) == ("unreachable", reason)
        assert failure.details["instance"] == "m#1"
        if op == "exit":
            assert failure.details["exit_code"] == args["code"]
            assert failure.details["stderr_tail"] == ["boom"]
        else:
            assert failure.details["signal"] == args["signal"]
    await running.until(lambda: module.state is State.READY)
    assert module.restarts == 1
    assert (await ask(module, "whoami"))["instance"] == "m#2"
    assert module.last_exit is not None
    assert module.last_exit.reason == reason  # and not that it closed its pipes


async def test_a_grandchild_that_holds_the_pipes_delays_nothing_and_is_gone(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=QUIET))
    path = tmp_path / "door"
    with door(path):
        heard = submit(module, "fork", socket=str(path), leave=True, code=0)
        failure = await heard.failure()
        assert failure.details["reason"] == "exited"
    await running.until(lambda: module.state is State.READY)
    assert len(children()) == 1  # the next instance


async def test_an_idle_module_that_misses_its_probes_is_degraded_then_replaced(
    running: Running, tmp_path: Path
) -> None:
    supervision = {
        "health": {"interval_s": 0.01, "failures": 2},
        "timeouts": {"health_s": 0.05},
        "backoff": {"initial_s": NEVER_S, "max_s": NEVER_S},
    }
    module = await running.ready(actor(tmp_path, "mute-after=2", supervision=supervision))
    await running.until(lambda: module.restarts == 1)
    assert State.DEGRADED in running.states
    assert module.last_exit is not None
    assert module.last_exit.message == "missed 2 health probes in a row"


@pytest.mark.fault(18)
async def test_a_stopped_process_fails_its_probes_and_a_later_sigcont_raises_no_ghost(
    running: Running, tmp_path: Path
) -> None:
    supervision = {
        "health": {"interval_s": NEVER_S, "failures": 1},
        "timeouts": {"health_s": 0.1},
    }
    module = await running.ready(actor(tmp_path, supervision=supervision))
    (process,) = children()
    process.suspend()
    pass_time(running.host.deadlines, NEVER_S)  # so it is asked
    await running.until(lambda: module.restarts == 1 and module.state is State.READY)
    assert not process.is_running()
    assert len(children()) == 1


async def test_a_stop_lets_what_is_in_flight_finish(running: Running, tmp_path: Path) -> None:
    module = await running.ready(actor(tmp_path, supervision={"concurrency": 2}))
    late = submit(module, "late")
    submit(module, "echo")
    module.stop("the test")
    assert module.state is State.STOPPING
    # A probe makes it answer what it held back.
    await module.workers[0].life.ask(Operation.HEALTH, 60)  # type: ignore[union-attr]
    assert (await late.success()).result == "late"
    await running.until(lambda: module.state is State.DOWN)


async def test_a_stop_that_cannot_wait_any_longer_fails_what_is_in_flight(
    running: Running, tmp_path: Path
) -> None:
    made = actor(tmp_path, "ignore-term", supervision={"timeouts": {"stop_s": 0.1, "exit_s": 0.1}})
    module = await running.ready(made)
    hanging = submit(module, "hang")
    await running.down()
    failure = await hanging.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "stopping")
    assert module.last_exit is not None
    assert module.last_exit.exit.signal == signal.SIGKILL
    assert children() == []


async def test_a_daemon_that_is_cut_off_kills_and_answers(running: Running, tmp_path: Path) -> None:
    heard: Heard
    async with trio.open_nursery() as nursery:
        running._nursery = nursery
        module = await running.ready(actor(tmp_path, "ignore-term"))
        heard = submit(module, "hang")
        running.host.shutting_down = True
        nursery.cancel_scope.cancel()
    failure = await heard.failure()
    assert isinstance(failure, Failure)
    assert (failure.code, failure.details["reason"]) == ("cancelled", "shutdown")
    assert children() == []


async def test_whoever_shows_that_it_is_at_work_has_not_been_silent(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path))
    one, _ = call("hang")
    one.heard_at = LONG_AGO_S
    module.submit(one)
    assert one.begun_at == one.heard_at > LONG_AGO_S
    one.heard_at = LONG_AGO_S
    life = module.workers[0].life
    assert isinstance(life, PersistentLife)
    life.receive([Alive("of nobody"), Alive()])
    assert one.heard_at == LONG_AGO_S
    life.receive([Alive(one.request.request_id)])
    assert one.heard_at > LONG_AGO_S
    await running.down()
