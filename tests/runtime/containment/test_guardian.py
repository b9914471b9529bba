"""The guardian kills what a dead daemon left, and is in nobody's way while the daemon lives."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog.testing
import trio
import trio.testing

from supervisor.runtime.containment import guardianship as guardianship_module
from supervisor.runtime.containment import procfs, spawn
from supervisor.runtime.containment.brand import Brands
from supervisor.runtime.containment.guardian import command
from supervisor.runtime.containment.guardianship import Guardianship, LedgerFile
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.containment.ledger import Author, Leader, Ledger
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.threads import Threads
from tests import shell_guardian
from tests.runtime.containment.lifelines import PATIENCE_S, STUBBORN, Lifelines, gone

Command = Callable[[int, str], list[str]]

EACH = pytest.mark.parametrize("command", [command, shell_guardian.command], ids=["own", "shell"])
"""The one that daemons have, and the one of daemons within tests."""

NOBODY = Author("nobody", 0, 0, "boot")


def author(daemon: str | None = None) -> Author:
    """Return this process as a daemon; of a name of its own, since guardians kill by it.

    With a name that is used twice, the guardian of a test that runs beside this one, in another
    process or another run of the suite, kills what this one has started.
    """
    me = procfs.stat(os.getpid())
    assert me is not None
    return Author(daemon or str(uuid.uuid4()), me.pid, me.start, procfs.boot_id())


def guarding(record: Path) -> Guardianship:
    ledger = Ledger()
    ledger.author = author()
    file = LedgerFile(record, ledger.lines, Threads())
    file.begin()
    return Guardianship(ledger, file, ProcessRegistry.bare().spawner)


class Guarded:
    """A guardian and the end of the pipe that keeps it waiting."""

    def __init__(self, folder: Path, command: Command = command, *, recorded: bool = True) -> None:
        record = folder / "record"
        if recorded:
            record.touch()
        reading, self.pipe = os.pipe()
        self.popen = subprocess.Popen(
            command(reading, str(record)), pass_fds=[reading], start_new_session=True
        )
        os.close(reading)

    def tell(self, *lines: bytes) -> None:
        os.write(self.pipe, b"".join(lines))

    def daemon_dies(self) -> None:
        os.close(self.pipe)
        assert self.popen.wait(PATIENCE_S) == 0


def _unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")


def stubborn(lifelines: Lifelines, *vices: str, **variables: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(STUBBORN), "s", str(lifelines.path), *vices],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env=variables,
    )


def end(popen: subprocess.Popen[bytes]) -> None:
    popen.wait(PATIENCE_S)
    assert popen.stdin is not None
    popen.stdin.close()


@EACH
def test_a_registered_leader_dies_with_all_of_its_session(
    lifelines: Lifelines, tmp_path: Path, command: Command
) -> None:
    popen = stubborn(lifelines, "ignores_term", "child")
    lifelines.take("leader", "child")
    leader = procfs.stat(popen.pid)
    assert leader is not None
    guarded = Guarded(tmp_path, command)
    guarded.tell(author().line(), Leader(leader.pid, leader.start, "s#1").line())
    guarded.daemon_dies()
    lifelines.wait_dead()
    end(popen)
    assert b"guardian\t2\t\n" in (tmp_path / "record").read_bytes()


def test_a_record_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, recorded=False)
    guarded.tell(author().line())
    guarded.daemon_dies()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault(36)
def test_a_pipe_in_the_place_of_the_record_does_not_keep_the_guardian(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "record")
    guarded = Guarded(tmp_path, recorded=False)
    guarded.tell(author().line())
    guarded.daemon_dies()


def test_who_carries_the_mark_dies_wherever_it_went(lifelines: Lifelines, tmp_path: Path) -> None:
    daemon = str(uuid.uuid4())
    popen = stubborn(lifelines, "setsid", "double", "child", STDIOD_DAEMON=daemon)
    lifelines.take("leader", "setsid", "double", "child")
    guarded = Guarded(tmp_path)
    guarded.tell(author(daemon).line())
    guarded.daemon_dies()
    lifelines.wait_dead()
    end(popen)


def test_who_carries_the_brand_of_the_run_dies_whatever_it_wiped(
    lifelines: Lifelines, tmp_path: Path
) -> None:
    brands = Brands(whole_process=True)
    with brands.forking(brands.next()):
        popen = stubborn(lifelines, "bare")
    lifelines.take("leader", "bare")
    guarded = Guarded(tmp_path)
    guarded.tell(author()._replace(brand=brands.run).line())
    guarded.daemon_dies()
    lifelines.wait_dead()
    end(popen)


def test_others_are_left_alone(lifelines: Lifelines, tmp_path: Path) -> None:
    popen = stubborn(lifelines, STDIOD_DAEMON=str(uuid.uuid4()))
    lifelines.take("leader")
    former = procfs.stat(popen.pid)
    assert former is not None
    guarded = Guarded(tmp_path)
    # A number that was given to another since: the start time says so.
    guarded.tell(author().line(), Leader(popen.pid, former.start + 1, "s#1").line())
    guarded.daemon_dies()
    assert not lifelines.dead_already()
    popen.kill()
    end(popen)


def test_an_unregistered_leader_is_left_alone(lifelines: Lifelines, tmp_path: Path) -> None:
    popen = stubborn(lifelines)
    lifelines.take("leader")
    leader = procfs.stat(popen.pid)
    assert leader is not None
    guarded = Guarded(tmp_path)
    guarded.tell(
        author().line(),
        Leader(leader.pid, leader.start, "s#1").line(),
        f"-\t{leader.pid}\n".encode(),
    )
    guarded.daemon_dies()
    assert not lifelines.dead_already()
    popen.kill()
    end(popen)


@EACH
def test_a_goodbye_ends_it_without_a_kill(
    lifelines: Lifelines, tmp_path: Path, command: Command
) -> None:
    daemon = str(uuid.uuid4())
    popen = stubborn(lifelines, STDIOD_DAEMON=daemon)
    lifelines.take("leader")
    guarded = Guarded(tmp_path, command)
    guarded.tell(author(daemon).line(), b"bye\n")
    assert guarded.popen.wait(PATIENCE_S) == 0
    os.close(guarded.pipe)
    assert not lifelines.dead_already()
    popen.kill()
    end(popen)


@EACH
def test_signals_do_not_end_it(tmp_path: Path, command: Command) -> None:
    guarded = Guarded(tmp_path, command)
    # It is ready once it has read a line: a pipe that is empty again says so.
    guarded.tell(NOBODY.line())
    while _unread(guarded.pipe):
        os.sched_yield()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        guarded.popen.send_signal(number)
    assert guarded.popen.poll() is None
    guarded.daemon_dies()


async def test_a_full_pipe_never_blocks_and_nothing_is_lost(
    lifelines: Lifelines, tmp_path: Path
) -> None:
    guardianship = guarding(tmp_path / "record")
    async with trio.open_nursery() as nursery:
        await nursery.start(guardianship.run)
        pid = guardianship.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        for number in range(5_000):
            guardianship.register(Leader(10_000_000 + number, 1, "x" * 100))
        for number in range(5_000):
            guardianship.unregister(10_000_000 + number)
        popen = stubborn(lifelines, "child")
        await lifelines.taken("leader", "child")
        leader = procfs.stat(popen.pid)
        assert leader is not None
        guardianship.register(Leader(leader.pid, leader.start, "s#1"))
        os.kill(pid, signal.SIGCONT)
        with trio.fail_after(PATIENCE_S):
            while not _all_told(guardianship):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()  # without a goodbye: as if the daemon had died
    await lifelines.all_dead()
    end(popen)


async def test_nothing_is_begun_without_a_guardian_and_one_that_cannot_be_replaced_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(descriptor: int, record: str) -> list[str]:
        return [str(tmp_path / "no-such-program"), str(descriptor), record]

    monkeypatch.setattr(guardianship_module, "command", none)
    with pytest.RaisesGroup(pytest.RaisesExc(ContainmentError, match="no guardian could be")):
        async with trio.open_nursery() as nursery:
            await nursery.start(guarding(tmp_path / "record").run)
    monkeypatch.setattr(guardianship_module, "command", command)
    guardianship = guarding(tmp_path / "record")
    async with trio.open_nursery() as nursery:
        await nursery.start(guardianship.run)
        former = guardianship.pid
        assert former is not None
        monkeypatch.setattr(guardianship_module, "command", none)
        with structlog.testing.capture_logs() as logged:
            os.kill(former, signal.SIGKILL)
            with trio.fail_after(PATIENCE_S):
                while not any("no guardian" in one["event"] for one in logged):
                    await trio.lowlevel.checkpoint()
            assert "no-such-program" in str(guardianship.problem)
            monkeypatch.setattr(guardianship_module, "command", command)
            with trio.fail_after(PATIENCE_S):
                while guardianship.pid in (None, former):
                    await trio.lowlevel.checkpoint()
        assert guardianship.problem is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("lacking", ["pipe2", "pidfd_open"])
async def test_a_guardian_that_dies_when_no_descriptor_is_left_is_replaced_once_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """The daemon ended with 70: `prlimit` had lowered its limit, and clients took what was free."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    guardianship = guarding(tmp_path / "record")
    async with trio.open_nursery() as nursery:
        await nursery.start(guardianship.run)
        former = guardianship.pid
        assert former is not None
        with monkeypatch.context() as exhausted:
            exhausted.setattr(os, lacking, none_left)
            os.kill(former, signal.SIGKILL)
            with trio.fail_after(PATIENCE_S):
                while "Too many open files" not in str(guardianship.problem):
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(PATIENCE_S):
            while guardianship.pid is None:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


def _all_told(guardianship: Guardianship) -> bool:
    behind = guardianship._behind.is_set() or guardianship._telling_anew
    return not behind and _unread(guardianship._pipe) == 0


async def test_what_comes_while_the_whole_is_told_anew_is_told_after_its_head(
    tmp_path: Path,
) -> None:
    """A head begins a new ledger: what was told just before it would be forgotten."""
    guardianship = guarding(tmp_path / "record")
    reading, guardianship._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guardianship._catch_up)
        while not guardianship._behind.is_set():
            guardianship.register(Leader(10_000_000, 1, "x" * 100))
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(guardianship._pipe, b"\n")  # a head would be short enough to fit in
        await trio.testing.wait_all_tasks_blocked()
        said = os.read(reading, 1 << 20)  # there is room again, and nobody has looked yet
        guardianship.register(Leader(7, 8, "late#1"))
        await trio.testing.wait_all_tasks_blocked()
        said += os.read(reading, 1 << 20)
        nursery.cancel_scope.cancel()
    guardianship._drop_pipe()
    guardianship.file.let_go()
    os.close(reading)
    ledger = Ledger()
    for line in said.splitlines():
        ledger.read(line)
    assert sorted(ledger.leaders) == [7, 10_000_000]


async def test_a_record_that_could_not_be_begun_is_let_go_of_without_a_word(tmp_path: Path) -> None:
    record = tmp_path / "no folder" / "record"
    guardianship = guarding(record)
    guardianship.register(Leader(10_000_000, 1, "a#1"))
    guardianship.close()
    await guardianship.file.close()


async def test_one_that_dies_is_replaced_and_its_successor_knows_everything(
    lifelines: Lifelines, tmp_path: Path
) -> None:
    guardianship = guarding(tmp_path / "record")
    async with trio.open_nursery() as nursery:
        await nursery.start(guardianship.run)
        former = guardianship.pid
        assert former is not None
        popen = stubborn(lifelines, "child")
        await lifelines.taken("leader", "child")
        leader = procfs.stat(popen.pid)
        assert leader is not None
        guardianship.register(Leader(leader.pid, leader.start, "s#1"))
        os.kill(former, signal.SIGKILL)
        with trio.fail_after(PATIENCE_S):
            while guardianship.pid in (former, None):
                await trio.lowlevel.checkpoint()
        assert gone(former)
        nursery.cancel_scope.cancel()
    await lifelines.all_dead()
    end(popen)


@pytest.mark.fault(26)
async def test_one_whose_start_is_held_up_holds_up_nobody_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()

    def held(*_: object) -> subprocess.Popen[bytes]:
        assert let_go.wait(PATIENCE_S)
        raise OSError("it was killed")

    monkeypatch.setattr(guardianship_module, "_start", held)
    for bound in ("SLOW_S", "SPAWN_S", "ENDED_S"):
        monkeypatch.setattr(spawn, bound, 0.01)
    guardianship = guarding(tmp_path / "record")
    async with trio.open_nursery() as nursery:
        with trio.fail_after(PATIENCE_S):
            await nursery.start(guardianship.run)
        assert guardianship.pid is None
        nursery.cancel_scope.cancel()
    let_go.set()


def test_a_ledger_reads_what_it_writes_and_ignores_what_is_cut() -> None:
    ledger = Ledger()
    first = Author("uuid", 1, 2, "boot", 5 << 22)
    lines = [first.line(), b"cgroup\t/a b\n", Leader(7, 8, "na me#1").line()]
    for line in [*lines, b"+\t9\n", b"+\tx\ty\tz\n", b"\xff\n", b"\n", b"-\t\n"]:
        ledger.read(line)
    assert ledger.author == first
    assert ledger.lines() == lines
    assert not ledger.closed


def test_a_ledger_reads_that_of_a_former_version() -> None:
    ledger = Ledger()
    for line in (b"daemon\tuuid\t1\t2\tboot\t1000\t%d\n" % (5 << 22), b"stray\t9\t10\n"):
        ledger.read(line)
    assert ledger.author == Author("uuid", 1, 2, "boot", 5 << 22)
