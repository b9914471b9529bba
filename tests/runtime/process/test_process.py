from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from supervisor.runtime.containment import hunt, process_registry, procfs
from supervisor.runtime.containment import spawn as spawn_module
from supervisor.runtime.containment.contained import ProcessGroup
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.process import process
from supervisor.runtime.process.pipes import read, read_rest
from supervisor.runtime.process.process import Process
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.process.spawning import spawn
from tests.factories import PYTHON, children, descriptor, open_files, opened_since
from tests.runtime.containment.lifelines import PATIENCE_S
from tests.runtime.containment.tracer import Tracer

CONNECT = """
import os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.send(b"here")
"""


async def run(folder: Path, command: list[str]) -> Process:
    return await spawn(descriptor(folder, command), os.environ, "m#1", ProcessRegistry.bare())


async def output(running: Process) -> bytes:
    read_so_far = b""
    while data := await read(running.stdout):
        read_so_far += data
    return read_so_far


@contextmanager
def door(path: Path) -> Iterator[trio.socket.SocketType]:
    """Listen for children: one that is gone shows as the end of its connection."""
    listener = trio.socket.from_stdlib_socket(socket.socket(socket.AF_UNIX))
    with listener:
        listener._sock.bind(str(path))  # type: ignore[attr-defined]
        listener.listen(5)
        yield listener


async def test_a_process_leads_a_session_and_a_group_of_its_own(tmp_path: Path) -> None:
    words = "import os; print(os.getpid(), os.getsid(0), os.getpgid(0))"
    running = await run(tmp_path, [*PYTHON, "-c", words])
    said = await output(running)
    await running.wait_exited()
    running.reap()
    assert said.split() == [str(running.pid).encode()] * 3


async def test_a_process_inherits_nothing_but_its_three_pipes(tmp_path: Path) -> None:
    words = "import os\nprint(*(n for n in range(4096) if os.path.lexists(f'/proc/self/fd/{n}')))"
    inheritable = os.dup(0)
    os.set_inheritable(inheritable, True)
    try:
        running = await run(tmp_path, [*PYTHON, "-c", words])
        said = await output(running)
        await running.wait_exited()
        running.reap()
    finally:
        os.close(inheritable)
    assert said.split() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ends", ["exit 0", "exit 255", "kill -9 $$", "kill -11 $$"])
async def test_the_end_of_a_process_is_told_as_it_was(tmp_path: Path, ends: str) -> None:
    running = await run(tmp_path, ["sh", "-c", ends])
    await running.wait_exited()
    number = int(ends.split()[1].removeprefix("-"))
    assert running.reap() == ((number, None) if ends.startswith("exit") else (None, number))


async def test_after_the_reap_everything_is_closed_and_nothing_is_left(tmp_path: Path) -> None:
    before = open_files()
    running = await run(tmp_path, ["true"])
    await running.wait_exited()
    running.reap()
    assert not opened_since(before)
    assert children() == []
    await running.signal(signal.SIGKILL)  # a number that may be another's by now: not sent


async def test_the_reap_kills_a_grandchild_in_the_group(tmp_path: Path) -> None:
    with door(tmp_path / "door") as listener:
        grandchild = CONNECT + "signal.pause()"
        words = f"import os\nif os.fork() == 0:\n    exec({grandchild!r})"
        running = await run(tmp_path, [*PYTHON, "-c", words, str(tmp_path / "door")])
        link, _ = await listener.accept()
        with link:
            assert await link.recv(4) == b"here"
            await running.wait_exited()
            assert running.reap() == (0, None)
            assert await link.recv(4) == b""


async def test_what_is_left_in_a_pipe_is_read_without_waiting_for_who_holds_it(
    tmp_path: Path,
) -> None:
    words = "import os, signal\nos.write(1, b'x' * 5000)\nif os.fork() == 0: signal.pause()"
    running = await run(tmp_path, [*PYTHON, "-c", words])
    await running.wait_exited()
    assert b"".join(read_rest(running.stdout)) == b"x" * 5000
    assert read_rest(running.stdout) == []
    running.reap()


async def test_a_failure_after_the_start_leaves_no_process_and_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pidfd(pid: int) -> int:
        raise OSError(24, "Too many open files")

    before = open_files()
    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    with pytest.raises(SpawnError, match="ulimit -n"):
        await run(tmp_path, ["sleep", "1000"])
    assert not opened_since(before)
    assert children() == []


@pytest.mark.fault(26)
async def test_a_child_that_a_tracer_holds_keeps_no_thread_for_spawns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, tracers = ProcessRegistry.bare(), list[Tracer]()

    def hold(pid: int, *_: object, **__: object) -> NoReturn:
        tracers.append(Tracer(pid))
        raise OSError("not with a tracer about")

    monkeypatch.setattr(registry, "take", hold)
    monkeypatch.setattr(spawn_module, "ENDED_S", 0.01)
    with pytest.raises(SpawnError, match="not with a tracer about"):
        await spawn(descriptor(tmp_path, ["sleep", "1000"]), os.environ, "m#1", registry)
    (tracer,) = tracers
    assert f"(pid {tracer.pid})" in capsys.readouterr().out
    tracer.release()
    (held,) = children()
    while os.waitid(os.P_PID, held.pid, os.WEXITED | os.WNOHANG) is None:  # noqa: ASYNC222 - WNOHANG
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("fails_at", [1, 2, 3])
async def test_a_pipe_that_cannot_be_made_closes_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    pipe2, made = os.pipe2, []

    def few(flags: int) -> tuple[int, int]:
        made.append(flags)
        if len(made) == fails_at:
            raise OSError(24, "Too many open files")
        return pipe2(flags)

    before = open_files()
    monkeypatch.setattr(os, "pipe2", few)
    with pytest.raises(SpawnError, match="ulimit -n"):
        await run(tmp_path, ["true"])
    assert not opened_since(before)


async def test_closing_stdin_twice_is_closing_it_once(tmp_path: Path) -> None:
    running = await run(tmp_path, ["cat"])
    running.close_stdin()
    running.close_stdin()
    assert running.stdin is None
    await running.wait_exited()
    assert running.reap() == (0, None)


@pytest.mark.fault(25)
async def test_a_spawn_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    before = open_files()
    with trio.CancelScope() as scope:
        scope.cancel()
        await run(tmp_path, ["sleep", "1000"])
    assert scope.cancelled_caught
    assert not opened_since(before)
    assert children() == []


def no_descriptor(*_: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.fault(21)
async def test_one_that_cannot_be_looked_at_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await run(tmp_path, ["sleep", "1000"])
    with monkeypatch.context() as short:
        short.setattr(procfs, "_contents", no_descriptor)
        assert not running.is_dead
    await running.kill()
    await running.wait_exited()
    assert running.reap() is not None


@pytest.mark.fault(21)
async def test_what_a_leader_left_is_looked_for_until_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await run(tmp_path, ["true"])
    await running.wait_exited()
    tries = 0

    def exterminate(*_: object) -> list[int]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise hunt.NotKnownError
        return [tries]

    monkeypatch.setattr(hunt, "exterminate", exterminate)
    assert await running.kill_the_rest() == (3,)
    running.reap()


@pytest.mark.fault(36)
@pytest.mark.parametrize("doing", ["signal", "kill", "left"])
async def test_a_thread_that_is_held_up_is_not_waited_for_and_its_process_is_not_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    running = await run(tmp_path, ["sleep", "1000"])
    is_held, goes_on = threading.Event(), threading.Event()

    def held_up(*_: object) -> list[procfs.Stat]:
        if threading.current_thread() is not threading.main_thread():
            is_held.set()
            assert goes_on.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(process, "HELD_UP_S", 0.01)
    monkeypatch.setattr(process, "GONE_WITHIN_S", 0.01)
    monkeypatch.setattr(process_registry, "LOOKED_WITHIN_S", 0.01)
    with monkeypatch.context() as held, trio.fail_after(PATIENCE_S):
        held.setattr(ProcessGroup, "kills_at_once", False)
        held.setattr(ProcessGroup, doing, held_up)
        # A thread that had not begun when it was left does nothing: then once more.
        while doing == "signal" and not is_held.is_set():
            await running.signal(signal.SIGTERM)
        while doing == "kill" and not is_held.is_set():
            await running.kill()
        await running.kill()
        await running.wait_exited()
        await running.kill_the_rest()
        while not is_held.is_set():
            await running.kill_the_rest()
        assert running.reap() is None
        goes_on.set()
        while running._at_work:
            await trio.lowlevel.checkpoint()
    assert running.reap() == (None, signal.SIGKILL)
