"""A `prepare` is done once before the first start, and is stopped and retried as any process is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.policy.lifecycle import SERVES, State
from supervisor.runtime.files.module_log import LogLine
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module
from tests.factories import GENEROUS_S, actor, call, pass_time, script
from tests.runtime.conftest import Running

COUNT = "echo once >> prepared; "
FOREVER = "exec 9>fifo; sleep 1000 9>&9"
QUICK = {"backoff": {"initial_s": 0.01, "jitter": 0}}


def prepared(folder: Path, body: str, *flags: str, **fields: Any) -> Descriptor:
    """Make a module that is prepared by a shell script."""
    transport = {"prepare": ["sh", "-c", body], **fields.pop("transport", {})}
    fields["supervision"] = {**QUICK, **fields.get("supervision", {})}
    return actor(folder, *flags, transport=transport, **fields)


def times(folder: Path) -> int:
    """Return how often the script was run."""
    file = folder / "prepared"
    return len(file.read_text().splitlines()) if file.exists() else 0


def logged(module: Module) -> list[str]:
    """Collect what comes into a module's log from now on, without the host's own lines."""
    lines: list[str] = []

    def keep(line: LogLine) -> None:
        if line.stream != "host":
            lines.append(f"{line.stream} {line.text}")

    module.log.follow(keep)
    return lines


class Fifo:
    """A pipe that a process opens when it runs, and that ends with the last one that has it."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "fifo")
        self._end = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    async def wait_gone(self) -> None:
        """Return once nobody has it any more."""
        await trio.lowlevel.wait_readable(self._end)
        assert os.read(self._end, 1) == b""
        os.close(self._end)


@pytest.fixture
def begun() -> Callable[[Running], Any]:
    async def wait(running: Running) -> None:
        """Return once something of the script runs: it says so."""
        while not any(one.last_line for one, _ in running.module.instances()):
            await trio.lowlevel.checkpoint()

    return wait


async def test_it_is_done_before_the_first_start_and_not_again(
    running: Running, tmp_path: Path
) -> None:
    module = running(prepared(tmp_path, COUNT + "echo out; echo err >&2; cat; echo at the end"))
    lines = logged(module)
    module.start("the test")
    await running.until(lambda: module.state is State.READY)
    assert running.states[:3] == [State.PREPARING, State.STARTING, State.READY]
    assert lines == ["stderr out", "stderr err", "stderr at the end"]
    module.restart("the test")
    await running.until(lambda: module.workers[0].instance == "m#3" and module.state is State.READY)
    await running.down()
    assert times(tmp_path) == 1


async def test_a_start_that_takes_too_long_does_not_have_it_done_again(
    running: Running, tmp_path: Path
) -> None:
    bounds = {"timeouts": {"start_s": 0.05, "describe_s": 0.05}}
    made = prepared(tmp_path, COUNT, "never-ready", supervision=bounds)
    module = running(made)
    module.start("the test")
    await running.until(lambda: module.restarts == 2)
    assert module.last_exit is not None
    assert module.last_exit.reason == "start_deadline"
    await running.down()
    assert times(tmp_path) == 1


async def test_what_is_noted_counts_for_the_same_command_and_no_other(
    running: Running, tmp_path: Path
) -> None:
    for body, expected in ((COUNT, 1), (COUNT, 1), (COUNT + "true", 2), (COUNT, 2)):
        await running.ready(prepared(tmp_path, body))
        assert times(tmp_path) == expected
        await running.down()


async def test_one_that_fails_is_retried_and_its_words_are_evidence(
    running: Running, tmp_path: Path
) -> None:
    module = running(
        prepared(tmp_path, COUNT + "echo no route; test $(wc -l < prepared) = 3 || exit 7")
    )
    module.start("the test")
    asked, heard = call()
    module.submit(asked)
    await running.until(lambda: module.state is State.BACKOFF)
    died = module.last_exit
    assert died is not None
    assert (died.reason, died.exit.exit_code, died.exit.stderr_tail) == ("exited", 7, ("no route",))
    assert died.message == "could not be prepared: sh exited with code 7"
    failure = await heard.failure()
    assert failure.details["reason"] == "exited"
    assert failure.details["stderr_tail"] == ["no route"]
    assert "could not be prepared" in failure.message
    await running.until(lambda: module.state is State.READY)
    assert (times(tmp_path), module.restarts) == (3, 2)
    await running.down()


async def test_one_whose_program_is_missing_says_so(running: Running, tmp_path: Path) -> None:
    module = running(actor(tmp_path, transport={"prepare": ["./fetch"]}))
    module.start("the test")
    await running.until(lambda: module.state is State.BACKOFF)
    assert module.last_exit is not None
    assert module.last_exit.reason == "spawn_failed"
    assert module.last_exit.message == f"could not be prepared: {tmp_path}/fetch is not there"
    await running.down()


async def test_it_has_its_own_bound_and_is_gone_with_all_that_it_started(
    running: Running, tmp_path: Path, begun: Callable[[Running], Any]
) -> None:
    fifo = Fifo(tmp_path)
    bound = {"timeouts": {"prepare_s": GENEROUS_S}}
    made = prepared(tmp_path, f"({FOREVER}) & echo begun; {FOREVER}", supervision=bound)
    module = running(made)
    module.start("the test")
    await begun(running)
    pass_time(running.host.deadlines, GENEROUS_S)
    await running.until(lambda: module.state is State.BACKOFF)
    assert module.last_exit is not None
    assert module.last_exit.reason == "start_deadline"
    assert module.last_exit.message == f"was not prepared within {GENEROUS_S} s"
    await running.down()
    await fifo.wait_gone()


@pytest.mark.parametrize("how", ["stop", "remove", "hurry"])
async def test_a_stop_ends_it_with_all_that_it_started(
    running: Running, tmp_path: Path, how: str, begun: Callable[[Running], Any]
) -> None:
    fifo = Fifo(tmp_path)
    module = running(prepared(tmp_path, f"({FOREVER}) & echo begun; {FOREVER}"))
    module.start("the test")
    await begun(running)
    (shown, state), *_ = module.instances()
    assert (shown.id, shown.last_line, state) == ("m#1", "begun", State.PREPARING)
    if how == "remove":
        module.remove("the test")
    else:
        module.stop("the test")
    if how == "hurry":
        module.hurry()
    await running.until(lambda: module.state is State.DOWN)
    await fifo.wait_gone()


async def test_a_restart_begins_it_anew_and_a_start_leaves_it_alone(
    running: Running, tmp_path: Path, begun: Callable[[Running], Any]
) -> None:
    os.mkfifo(tmp_path / "gate")
    module = running(prepared(tmp_path, COUNT + "echo begun; cat gate"))
    module.start("the test")
    await begun(running)
    module.start("once more")
    assert module.workers[0].instance == "m#1"
    module.restart("the test")
    await running.until(lambda: module.workers[0].instance == "m#2")
    assert module.state is State.PREPARING
    await begun(running)
    gate = await trio.to_thread.run_sync(os.open, tmp_path / "gate", os.O_WRONLY)
    os.close(gate)
    await running.until(lambda: module.state is State.READY)
    assert (times(tmp_path), module.restarts) == (2, 0)
    await running.down()


@pytest.mark.parametrize("instances", [{"min": 3, "max": 3}])
async def test_several_instances_share_one_and_its_failure(
    running: Running, tmp_path: Path, instances: dict[str, int]
) -> None:
    body = COUNT + "test $(wc -l < prepared) = 2 || exit 7"
    module = running(prepared(tmp_path, body, supervision={"instances": instances}))
    module.start("the test")
    await running.until(
        lambda: (
            len(module.instances()) == 3 and all(s is State.READY for _, s in module.instances())
        )
    )
    assert times(tmp_path) == 2
    await running.down()


async def test_of_several_instances_another_goes_on_if_the_one_that_prepares_is_stopped(
    running: Running, tmp_path: Path, begun: Callable[[Running], Any]
) -> None:
    os.mkfifo(tmp_path / "gate")
    body = COUNT + "echo begun; test $(wc -l < prepared) = 2 || cat gate"
    module = running(prepared(tmp_path, body, supervision={"instances": {"min": 2, "max": 2}}))
    module.start("the test")
    await begun(running)
    (first,) = [one for one in module.workers if one.life and one.life.instances()]
    module.let_go(first, "the test")
    await running.until(lambda: module.state in SERVES)
    assert times(tmp_path) == 2
    await running.down()


async def test_a_process_per_invocation_is_prepared_once(running: Running, tmp_path: Path) -> None:
    done = '{"version":"0","type":"done","ok":true}'
    made = script(
        tmp_path,
        f"test -e prepared && echo '{done}'",
        transport={"prepare": ["sh", "-c", COUNT]},
        inputs={"echo": True},
    )
    module = await running.ready(made)
    for _ in range(2):
        asked, heard = call()
        module.submit(asked)
        await heard.success()
    assert times(tmp_path) == 1
    await running.down()


async def test_the_one_that_serves_goes_on_while_its_successor_is_prepared(
    running: Running, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    module = await running.ready(prepared(tmp_path, COUNT))
    changed = prepared(tmp_path, COUNT + "cat gate", version="2")
    module.succession.offer(changed, "the test", anew=False)
    gate = await trio.to_thread.run_sync(os.open, tmp_path / "gate", os.O_WRONLY)
    assert (module.state, module.succession.undecided) == (State.READY, True)
    asked, heard = call()
    module.submit(asked)
    await heard.success()
    os.close(gate)
    await running.until(lambda: module.descriptor.version == "2")
    assert times(tmp_path) == 2
    await running.down()


async def test_a_successor_that_cannot_be_prepared_is_refused(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(prepared(tmp_path, COUNT))
    changed = prepared(tmp_path, "echo no disk >&2; exit 1", version="2")
    module.succession.offer(changed, "the test", anew=False)
    await running.until(lambda: module.succession.refused is not None)
    assert module.succession.refused is not None
    assert "could not be prepared: sh exited with code 1" in module.succession.refused.reason
    assert "no disk" in module.succession.refused.reason
    assert (module.state, module.descriptor.version) == (State.READY, None)
    await running.down()


async def test_it_has_the_environment_and_the_folder_of_the_module(
    running: Running, host: Host, tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    host.environment["LET_IN"] = "yes"
    made = prepared(
        tmp_path,
        'echo "$PWD $SET $LET_IN $KEPT_OUT $STDIOD_INSTANCE" >&2',
        transport={"cwd": "inside", "env": {"SET": "${LET_IN}!"}, "pass_env": ["LET_IN"]},
    )
    module = running(made)
    lines = logged(module)
    host.environment["KEPT_OUT"] = "no"
    module.start("the test")
    await running.until(lambda: module.state in (State.READY, State.BACKOFF))
    assert lines[0] == f"stderr {tmp_path}/inside yes! yes  m#1"
    await running.down()


async def test_forgotten_it_is_done_before_the_next_start(running: Running, tmp_path: Path) -> None:
    module = await running.ready(prepared(tmp_path, COUNT))
    assert module.forget_prepared()
    module.restart("the test")
    await running.until(lambda: State.PREPARING in running.states[3:])
    await running.until(lambda: module.state is State.READY)
    assert times(tmp_path) == 2
    await running.down()
    assert not running(actor(tmp_path)).forget_prepared()
