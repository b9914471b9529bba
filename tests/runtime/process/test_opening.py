"""The opening: a request that is in the pipe before the event loop hears of its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.process import process as process_module
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.process.process import Opening, Process
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.process.spawning import spawn
from supervisor.runtime.supervision.host import Host
from tests.bounds import WAIT_S
from tests.factories import call, children, descriptor, open_files, opened_since, script
from tests.runtime.conftest import Running
from tests.runtime.process.test_incarnation import Ear, incarnation_of

BIG = b"x" * 1_000_000


class Pipe(NamedTuple):
    reading: int
    writing: int


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = Pipe(*os.pipe2(os.O_NONBLOCK))
    yield ends
    os.close(ends.writing)


def test_what_there_is_room_for_is_written_and_the_pipe_is_to_be_closed(pipe: Pipe) -> None:
    with os.fdopen(pipe.reading, "rb"):
        opening = Opening(b"request\n", closes_stdin=True)
        assert opening.write(pipe.writing)
        assert (opening.written, opening.left) == (b"request\n", b"")
        assert os.read(pipe.reading, 100) == b"request\n"


def test_what_there_is_no_room_for_is_left_and_the_pipe_stays_open(pipe: Pipe) -> None:
    with os.fdopen(pipe.reading, "rb"):
        opening = Opening(BIG, closes_stdin=True)
        assert not opening.write(pipe.writing)
        assert 0 < len(opening.written) < len(BIG)
        assert opening.written + opening.left == BIG


def test_a_broken_pipe_is_left_to_whoever_writes_the_rest(pipe: Pipe) -> None:
    os.close(pipe.reading)
    opening = Opening(b"request\n", closes_stdin=True)
    assert not opening.write(pipe.writing)
    assert (opening.written, opening.left) == (b"", b"request\n")


def test_of_one_that_was_withheld_nothing_is_written_now_or_later(pipe: Pipe) -> None:
    with os.fdopen(pipe.reading, "rb"):
        opening = withheld()
        assert not opening.write(pipe.writing)
        assert (opening.written, opening.left) == (b"", b"")
        with pytest.raises(BlockingIOError):
            os.read(pipe.reading, 100)


def withheld() -> Opening:
    opening = Opening(b"request\n", closes_stdin=True)
    opening.withheld = True
    return opening


async def spawned(folder: Path, code: str, opening: Opening) -> tuple[Process, Descriptor]:
    made = descriptor(folder, ["sh", "-c", code])
    return await spawn(made, os.environ, "m#1", ProcessRegistry.bare(), opening), made


async def test_one_that_the_guardian_does_not_know_yet_is_asked_nothing(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = Opening(b"request\n", closes_stdin=True)
    told: list[bytes] = []
    monkeypatch.setattr(ProcessRegistry, "announce", lambda *_: told.append(opening.written))
    process, made = await spawned(tmp_path, "cat >/dev/null", opening)
    assert told == [b""]
    assert opening.written == b"request\n"
    assert (await incarnation_of(host, process, made, Ear()).run()).exit_code == 0


async def test_all_that_one_said_before_anybody_listened_is_heard(
    host: Host, tmp_path: Path
) -> None:
    before = open_files()
    code = 'read -r line; echo "$line"; echo pity >&2; exit 3'
    opening = Opening(b'{"set":"up"}\n', closes_stdin=True)
    process, made = await spawned(tmp_path, code, opening)
    assert process.stdin is None
    await process.wait_exited()
    ear = Ear()
    exit_ = await incarnation_of(host, process, made, ear).run()
    assert len(ear.received) == 1
    assert (exit_.exit_code, exit_.stderr_tail) == (3, ("pity",))
    assert children() == []
    assert not opened_since(before)


class Spawned(trio.abc.Instrument):
    """The tasks that began, by name."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.tasks.append(task.name.rpartition(".")[2])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a tool that ends soon taken for a quick one on the slowest machine."""
    monkeypatch.setattr(process_module, "QUICK_S", WAIT_S, raising=False)


@pytest.mark.usefixtures("patient")
async def test_a_quick_tool_has_one_task_and_all_it_said_counts(
    running: Running, tmp_path: Path
) -> None:
    done = '{"version":"0","type":"done","ok":false,"summary":"Not.","error":{"code":"x"}}'
    module = await running.ready(script(tmp_path, f"echo noise >&2; echo '{done}'; exit 3"))
    one, heard = call()
    tasks = Spawned()
    trio.lowlevel.add_instrument(tasks)
    module.submit(one)
    failure = await heard.failure()
    trio.lowlevel.remove_instrument(tasks)
    assert tasks.tasks == ["_serve"]
    assert failure.details["stderr_tail"] == ["noise"]
    assert failure.details["exit_code"] == 3
    await running.down()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("opening", [Opening(BIG, closes_stdin=True), withheld()])
async def test_the_end_of_one_that_has_not_been_told_all_is_not_waited_for(
    host: Host, tmp_path: Path, opening: Opening
) -> None:
    process, made = await spawned(tmp_path, "exec cat >/dev/null", opening)
    assert not process.exited
    incarnation = incarnation_of(host, process, made, Ear())
    incarnation.stop()
    await incarnation.run()


async def test_more_than_a_pipe_holds_is_written_to_its_end(host: Host, tmp_path: Path) -> None:
    opening = Opening(BIG, closes_stdin=True)
    process, made = await spawned(tmp_path, "head -c 1000000 | wc -c > size", opening)
    assert process.stdin is not None
    exit_ = await incarnation_of(host, process, made, Ear()).run()
    assert exit_.exit_code == 0
    assert (tmp_path / "size").read_text().strip() == str(len(BIG))


async def test_a_call_that_is_given_up_during_the_spawn_has_its_request_withheld(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = await running.ready(script(tmp_path, "true"))
    openings: list[Opening] = []
    spawning, may_fail = trio.Event(), trio.Event()

    async def spawning_held(*args: object) -> Process:
        incarnation = args[1]
        assert isinstance(incarnation, Incarnation)
        assert incarnation.opening is not None
        openings.append(incarnation.opening)
        spawning.set()
        await may_fail.wait()
        raise SpawnError("the test wants no process")

    monkeypatch.setattr(module.host.containers, "spawn", spawning_held)
    one, heard = call()
    module.submit(one)
    await spawning.wait()
    assert [opening.withheld for opening in openings] == [False]
    module.give_up(one, Stopped(Reason.CLIENT, "the client cancelled the request"))
    assert [opening.withheld for opening in openings] == [True]
    may_fail.set()
    assert (await heard.failure()).code == "cancelled"
    await running.down()
