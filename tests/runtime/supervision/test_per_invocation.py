"""A process per invocation: how many there are, probes, and their end when the host wants it."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from protocol.errors import Failure, Reason, Success
from protocol.replies import Operation
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from tests.factories import (
    PYTHON,
    actor,
    call,
    children,
    descriptor,
    open_files,
    opened_since,
    program,
    script,
)
from tests.runtime.conftest import Running
from tests.runtime.test_verdicts import DONE, LOG

NEVER_S = 1000


async def test_a_call_that_is_given_up_is_answered_at_once_and_its_process_seen_to_the_end(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    made = script(
        tmp_path, "trap '' TERM\n" + LOG + "sleep 1000", supervision={"timeouts": {"stop_s": 0.05}}
    )
    module = await running.ready(made)
    one, heard = call()
    module.submit(one)
    await heard.heard(1)
    module.give_up(one, Stopped(Reason.DEADLINE, "m.echo gave no answer in 1 s"))
    assert (await heard.failure()).details["reason"] == "deadline"
    await running.down()
    assert children() == []
    assert not opened_since(before)


async def test_what_makes_it_ready_is_said_truly(running: Running, tmp_path: Path) -> None:
    module = await running.ready(script(tmp_path, "touch ran\n" + DONE))
    (line,) = await module.log.last_lines(1)
    assert line.text == "starting -> ready: its command can be run"
    assert not (tmp_path / "ran").exists()


async def test_a_call_that_is_given_up_before_its_process_exists_runs_nothing(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(script(tmp_path, "touch ran\n" + DONE))
    one, heard = call()
    module.submit(one)
    module.give_up(one, Stopped(Reason.CLIENT, "the client cancelled the request"))
    assert (await heard.failure()).code == "cancelled"
    await running.down()
    assert not (tmp_path / "ran").exists()


async def test_concurrency_bounds_the_processes(running: Running, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "door"))
        listener.listen(10)
        listener.setblocking(False)
        accepting = trio.socket.from_stdlib_socket(listener)
        body = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect('door')\ns.recv(1)\n"
        body += f"print({DONE[6:-2]!r})"
        made = descriptor(
            tmp_path,
            [*PYTHON, "-c", body],
            supervision={"concurrency": 2},
            transport={"protocol": "narratoria"},
        )
        module = await running.ready(made)
        waiting = []
        for _ in range(5):
            one, heard = call()
            module.submit(one)
            waiting.append(heard)
        assert module.queued == 3
        for _ in range(5):
            link, _ = await accepting.accept()
            with link:
                assert len(children()) <= 2
                await link.send(b"x")
        for heard in waiting:
            await heard.success()


async def test_a_probe_is_answered_by_the_host_and_never_runs_the_tool(
    running: Running, tmp_path: Path
) -> None:
    made = script(tmp_path, "touch ran\n" + DONE, version="2.0", inputs={"draw": {}})
    module = await running.ready(made)
    assert await module.ask(Operation.HEALTH) == Success({"status": "ok"})
    description = await module.ask(Operation.DESCRIBE)
    assert isinstance(description, Success)
    assert (description.result["name"], description.result["version"]) == ("m", "2.0")
    assert description.result["inputs"] == {"draw": {}}
    await running.down()
    assert not (tmp_path / "ran").exists()


async def test_a_tool_that_is_taken_away_is_unhealthy_and_its_calls_say_why(
    running: Running, tmp_path: Path
) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\n" + DONE)
    made = descriptor(tmp_path, ["./run"], transport={"protocol": "narratoria"})
    module = await running.ready(made)
    path.unlink()
    health = await module.ask(Operation.HEALTH)
    assert isinstance(health, Failure)
    assert "run is not there" in health.message
    one, heard = call()
    module.submit(one)
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "spawn_failed")
    assert module.state is State.READY


async def test_a_tool_that_cannot_be_run_is_not_ready(running: Running, tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["./gone"], transport={"protocol": "narratoria"})
    module = running(made)
    module.start("the test")
    await running.until(lambda: module.state is State.BACKOFF)
    assert module.last_exit is not None
    assert module.last_exit.reason == "spawn_failed"


@pytest.mark.parametrize(
    ("body", "died"),
    [
        ("echo words >&2\nexit 3", ("exited", 3, None, ("words",))),
        ("kill -KILL $$", ("signaled", None, signal.SIGKILL, ())),
    ],
)
async def test_the_last_bad_end_is_remembered_and_neither_a_good_run_nor_a_cancel_undoes_it(
    running: Running, tmp_path: Path, body: str, died: tuple[Any, ...]
) -> None:
    # Review: after a crash `status.last_exit` was null.
    bodies = f"read line\ncase $line in *bad*) {body};; *hang*) {LOG} exec sleep 1000;; esac\n"
    made = script(tmp_path, bodies + DONE)
    module = await running.ready(made)
    good, heard = call("good")
    module.submit(good)
    await heard.success()
    nothing = module.last_exit
    assert nothing is None
    bad, heard = call("bad")
    module.submit(bad)
    await heard.failure()
    last = module.last_exit
    assert last is not None
    assert (last.reason, last.exit.exit_code, last.exit.signal, last.exit.stderr_tail) == died
    assert (module.state, module.restarts) == (State.READY, 0)
    again, heard = call("good")
    module.submit(again)
    await heard.success()
    hanging, heard = call("hang")
    module.submit(hanging)
    await heard.heard(1)
    module.give_up(hanging, Stopped(Reason.CLIENT, "the client cancelled the request"))
    behind, heard = call("good")  # served once the process of the one before is gone
    module.submit(behind)
    await heard.success()
    assert module.last_exit is last


async def test_the_limit_that_a_run_passed_is_remembered(running: Running, tmp_path: Path) -> None:
    made = descriptor(
        tmp_path,
        [*PYTHON, "-c", "import signal; hog = b'x' * (1 << 27); signal.pause()"],
        supervision={"limits": {"memory_bytes": 1 << 26}},
        transport={"protocol": "narratoria"},
    )
    module = await running.ready(made)
    one, heard = call()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.host.sampler.run)
        module.submit(one)
        failure = await heard.failure()
        nursery.cancel_scope.cancel()
    last = module.last_exit
    assert last is not None
    assert (failure.code, last.reason) == ("oom", "memory_limit")
    assert msgspec.to_builtins(last.exit.breach) == failure.details["limit"]


async def test_a_module_per_invocation_answers_probes_with_a_process_of_its_own(
    running: Running, tmp_path: Path
) -> None:
    made = actor(tmp_path, transport={"lifecycle": "per-invocation"})
    module = await running.ready(made)
    assert await module.ask(Operation.HEALTH) == Success({"status": "ok"})
    one, heard = call("whoami")
    module.submit(one)
    assert (await heard.success()).result["instance"] == "m#2"


async def test_a_probe_nobody_waits_for_any_more_leaves_no_process(
    running: Running, tmp_path: Path
) -> None:
    made = actor(
        tmp_path,
        "ignore-term",
        "never-ready",
        transport={"lifecycle": "per-invocation"},
        supervision={"timeouts": {"stop_s": 0.05}},
    )
    module = await running.ready(made)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(module.ask, Operation.HEALTH, NEVER_S)
        while not module.workers[0].life.instances():  # type: ignore[union-attr]
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await running.down()
    assert children() == []


async def test_a_stop_lets_a_run_finish_and_a_deadline_ends_one_that_does_not(
    running: Running, tmp_path: Path
) -> None:
    made = script(tmp_path, LOG + "exec sleep 1000", supervision={"timeouts": {"stop_s": 0.05}})
    module = await running.ready(made)
    one, heard = call()
    module.submit(one)
    await heard.heard(1)
    await running.down()
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "stopping")
    assert children() == []


async def test_a_hundred_runs_leave_no_process_and_no_descriptor(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    module = await running.ready(script(tmp_path, DONE, supervision={"concurrency": 4}))
    waiting = []
    for _ in range(100):
        one, heard = call()
        module.submit(one)
        waiting.append(heard)
    for heard in waiting:
        await heard.success()
    await running.down()
    assert children() == []
    await module.log.last_lines(1)  # by the thread that writes logs, which has none open then
    assert not opened_since(before)
