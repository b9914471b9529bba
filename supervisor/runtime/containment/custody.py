"""Hold all processes of a daemon's modules: rung, marks, lock and guardian, until the last sweep.

`holding` is the daemon's; a `Host` made without one has `Custody.bare`, which contains by process
group and leaves no trace on disk.

What is taken before a process is started (`_take`) is files, of which any may be on a disk that
does not answer: so it is taken in one go in a thread, and released in another, each within a bound.
Before that, the last thing that a daemon does with processes: it kills what all the modules' ends
have missed (`_sweep`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import hunt, ladder, procfs
from supervisor.runtime.containment.cgroup2 import Cgroup2Rung, Removals
from supervisor.runtime.containment.contained import Containment, ProcessGroupRung
from supervisor.runtime.containment.data_dir import (
    KILLED_WITHIN_S,
    DataDirLock,
    DataInUseError,
    lock_data_dir,
)
from supervisor.runtime.containment.file_limit import FileLimit
from supervisor.runtime.containment.guardianship import Guardianship, LedgerFile
from supervisor.runtime.containment.ladder import Chosen
from supervisor.runtime.containment.ledger import DAEMON_VARIABLE, Author, Leader, Ledger
from supervisor.runtime.containment.orphans import Led, Orphans
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.containment.reaping import tracer_of, why_held
from supervisor.runtime.containment.spawn_threads import Late, SpawnThreads, SpawnTooSlowError
from supervisor.runtime.files.looks import NEEDED_PATIENCE_S, NoAnswerError
from supervisor.runtime.turns import THE_DAEMON, SharedTurn

LOOKED_WITHIN_S = 5.0
"""How long a look at what one leader left may take, unless the kernel holds it up."""

COLLECT_S = 0.5
"""Zombies of orphans are reaped at most this often: one costs nothing, a wake-up does."""

GONE_WITHIN_S = 2.0
"""How long a thread that spawns waits for a child that it killed."""

LOOK_S = 0.001
"""Between two checks whether it is gone."""

OWN_GONE_WITHIN_S = 2.0
"""How long a process of the daemon's own may take to be gone, once it is killed."""

WHOSE_AT_ONCE = 8
"""Looks at clients' processes, of which the kernel may hold up one."""

WHOSE_S = 2.0
"""How long such a look may take: a connecting client waits for it."""

TAKEN_WITHIN_S = 2 * KILLED_WITHIN_S + NEEDED_PATIENCE_S
"""How long the data directory may take to be the daemon's: `lock_data_dir` kills, and may read."""

SWEPT_WITHIN_S = 5.0
"""How long it may take to kill what the modules' ends have missed."""

TRACED_WITHIN_S = 0.5
"""How long it tries if a tracer holds each of them: no SIGKILL is heard before that lets go."""

SWEEP_WITHIN_S = TRACED_WITHIN_S + SWEPT_WITHIN_S + 5.0
"""How long the daemon's end waits: a look at a process may be held up by the kernel."""

log = structlog.get_logger()


class Disk(NamedTuple):
    """A daemon's lock and ledger in its data directory."""

    lock: DataDirLock
    ledger: Ledger
    file: LedgerFile


class Resources(NamedTuple):
    """The resources that a daemon holds from before its first process until `owned` is closed."""

    daemon: str
    """A UUID."""
    orphans: Orphans
    chosen: Chosen
    disk: Disk | None
    """None if no trace is left there."""
    since: int
    """Processes that began before came of no module (clock ticks since boot)."""
    owned: contextlib.ExitStack


class Custody:
    def __init__(
        self,
        has: Resources,
        file_limit: FileLimit | None = None,
        blocking: BlockingWork | None = None,
        *,
        whole_process: bool = False,
    ) -> None:
        """Nothing is held before `in_force`."""
        self.daemon = has.daemon
        self.file_limit = file_limit or FileLimit()
        self.why_not_higher = has.chosen.why_not_higher
        self.data_dir = None if has.disk is None else has.disk.lock.data_dir
        self.blocking = blocking or BlockingWork()
        self.spawn_threads = SpawnThreads(self.blocking)
        self.blocking.spare = self.spawn_threads
        self._resources = has
        self._rung = has.chosen.rung
        self._orphans = has.orphans
        self._whole_process = whole_process
        self._guardianship: Guardianship | None = None
        if has.disk is not None:
            self._guardianship = Guardianship(has.disk.ledger, has.disk.file, self)
        self._removals: Removals | None = None
        if isinstance(self._rung, Cgroup2Rung):
            self._removals = Removals(self.blocking)
        self.ends = SharedTurn(THE_DAEMON)
        """The turns in which ended processes are seen to: all modules may end in one moment."""

    @classmethod
    def bare(cls) -> Custody:
        """Contain by process group, without lock, guardian and record."""
        daemon = str(uuid.uuid4())
        chosen = Chosen(ProcessGroupRung(daemon), "nobody asked what this machine allows")
        orphans = Orphans(daemon, whole_process=False)
        nothing = contextlib.ExitStack()
        return cls(Resources(daemon, orphans, chosen, None, procfs.now_ticks(), nothing))

    @property
    def containment(self) -> str:
        return self._rung.name

    @property
    def tool_containment(self) -> str:
        """The rung of processes per invocation that have no memory limit."""
        return self._rung.of_tools.name

    @property
    def guardian_pid(self) -> int | None:
        return None if self._guardianship is None else self._guardianship.pid

    @property
    def guardian_problem(self) -> str | None:
        """Why there is no guardian, and what that means; None if there is one."""
        return None if self._guardianship is None else self._guardianship.problem

    @property
    def data_dir_problem(self) -> str | None:
        disk = self._resources.disk
        return None if disk is None else disk.lock.problem

    @property
    def reaped_orphans(self) -> int:
        """How many processes were reaped that this one never spawned."""
        return self._orphans.reaped_count

    @property
    def marks(self) -> dict[str, str]:
        """The variables by which a process of this daemon's modules is known."""
        return {DAEMON_VARIABLE: self.daemon}

    @contextlib.contextmanager
    def spawning(self) -> Iterator[int]:
        """Spawn within this block, `forking` with the brand it gives, and `take` the child."""
        with self._orphans.spawning():
            yield self._orphans.brands.next()

    def forking(self, brand: int) -> AbstractContextManager[None]:
        """Fork within this block, so that the child is born with the brand."""
        return self._orphans.brands.forking(brand)

    def take(self, pid: int, instance: str, brand: int, *, is_tool: bool = False) -> Containment:
        """Take hold of a process just spawned and not yet reaped, in whatever thread.

        `is_tool`: it is one per invocation, without a memory limit. Raises `OSError` if it cannot
        be held as the rung promises; it still runs then.
        """
        leader = procfs.stat(pid)
        if leader is None:
            # Of a child that was not reaped, /proc always tells; unless it is not mounted.
            raise OSError("/proc does not show the processes of this machine")
        self.file_limit.give_back(pid)
        self._orphans.brands.put(pid, brand)
        self._orphans.spawned(leader)
        self._orphans.leads(Led(leader, instance, brand))
        rung = self._rung.of_tools if is_tool else self._rung
        try:
            containment = rung.contain(instance, leader, brand)
        except OSError:
            self._orphans.reaped(leader)
            raise
        return containment

    async def whose(self, pid: int) -> str | None:
        """Return the instance that a process came of, None if it is no module's.

        `SOMEBODY` if it may be of any. Raises `trio.TooSlowError` after `WHOSE_S`, as when the
        kernel shows nothing of the process, or the machine is busy.
        """
        with trio.fail_after(WHOSE_S):
            return await self.blocking.run(
                "looking whose processes clients are",
                partial(self._orphans.whose, pid, self._rung.holds),
                at_once=WHOSE_AT_ONCE,
                abandon_after_s=0,
                in_any_case=True,
            )

    async def spawn_own(
        self, doing: str, start: Callable[[], subprocess.Popen[bytes]]
    ) -> tuple[subprocess.Popen[bytes], Stat]:
        """Start a process of the daemon's own, in a thread: no module's, and no orphan.

        It has to see to it itself that it ends with the daemon. It is not cancelled, and takes no
        longer than a spawn may. Raises `OSError`.
        """
        late = Late()

        def make() -> tuple[subprocess.Popen[bytes], Stat]:
            popen, process = self._start_own(start)
            if late.is_set():
                popen.returncode = 0
                self.abandon(popen.pid)
                self._orphans.reaped(process)
                raise OSError(errno.ETIMEDOUT, str(SpawnTooSlowError(late.held_by)))
            return popen, process

        try:
            return await self.spawn_threads.run(
                doing, make, late=partial(self.end_untold, late=late)
            )
        except SpawnTooSlowError as error:
            raise OSError(errno.ETIMEDOUT, str(error)) from None

    def _start_own(
        self, start: Callable[[], subprocess.Popen[bytes]]
    ) -> tuple[subprocess.Popen[bytes], Stat]:
        with self._orphans.spawning():
            popen = start()
            process = procfs.stat(popen.pid)
            if process is None:
                popen.kill()
                raise OSError("/proc does not show the processes of this machine")
            self._orphans.spawned(process)
            self._orphans.brands.remove(popen.pid)  # of one that was spawned at the same moment
        return popen, process

    async def end_own(
        self,
        popen: subprocess.Popen[bytes],
        process: Stat,
        patience_s: float,
        *,
        name: str = "a process of the daemon",
    ) -> None:
        """Reap a process of the daemon's own; it is killed unless it ends within `patience_s`.

        Not cancelled.
        """
        with contextlib.suppress(OSError):  # no descriptor is left
            pidfd = os.pidfd_open(process.pid)
            try:
                with trio.move_on_after(patience_s, shield=True):
                    await trio.lowlevel.wait_readable(pidfd)
                popen.kill()
                with trio.move_on_after(OWN_GONE_WITHIN_S, shield=True):
                    await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)
        popen.kill()
        if popen.poll() is not None:
            self._orphans.reaped(process)
            return
        # A tracer may hold it. It is reaped with the orphans then, and not by `Popen`.
        tracer = tracer_of(process.pid)
        by = None if tracer is None else tracer.words
        words = f"{name} cannot be reaped"
        log.error(words, pid=process.pid, traced_by=by)
        popen.returncode = -signal.SIGKILL
        self.leave(process)

    def end_untold(self, thread: int, late: Late) -> None:
        """Kill a child that a thread has just forked, and that waits for its program.

        Only that thread knows of the child. When it goes on, it finds `late` set, with what held
        the child up.
        """
        untold = self._orphans.untold(thread)
        late.held_by = next(filter(None, (why_held(one.pid) for one in untold)), None)
        late.set()
        for one in untold:
            procfs.send(one, signal.SIGKILL)

    def leave(self, process: Stat) -> None:
        """Reap a child, which has ended or is about to, as soon as that is possible."""
        self._orphans.leave(process)

    def abandon(self, pid: int) -> None:
        """Kill and reap a child that has no owner; for a thread that spawns."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # it may not lead a group yet
        until = time.monotonic() + GONE_WITHIN_S
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None:
                if time.monotonic() > until:
                    self._leave_unreapable(pid)
                    return
                time.sleep(LOOK_S)

    def _leave_unreapable(self, pid: int) -> None:
        found, tracer = procfs.stat(pid), tracer_of(pid)
        if found is not None:
            self.leave(found)
        by = None if tracer is None else tracer.words
        log.error("a child cannot be reaped", pid=pid, traced_by=by)

    def announce(self, containment: Containment) -> None:
        """Tell the guardian of it, before it is asked anything; for threads. `register` follows."""
        if self._guardianship is not None and (leader := _registered(containment)) is not None:
            self._guardianship.announce(leader)

    def register(self, containment: Containment) -> None:
        """From now on it is killed should the daemon die, whatever became of its marks."""
        if self._guardianship is not None and (leader := _registered(containment)) is not None:
            self._guardianship.register(leader)

    def about_to_reap(self, containment: Containment) -> None:
        """Forget the leader's number while it still is the leader's."""
        if self._guardianship is not None:
            self._guardianship.unregister(containment.leader.pid)

    def release(self, containment: Containment) -> None:
        """Let go of an instance whose leader has been reaped; for threads."""
        self._orphans.reaped(containment.leader)
        containment.remove()

    def release_on_loop(self, containment: Containment) -> None:
        """As `release`, on the event loop, which does not wait until its cgroup is removed."""
        self._orphans.reaped(containment.leader)
        if self._removals is not None and containment.folder is not None:
            self._removals.add(containment)

    async def end_the_rest(
        self, containment: Containment, within_s: float, at_work: set[object]
    ) -> tuple[int, ...]:
        """Kill and reap what an ended leader left; returns the pids that are not gone in time.

        Not cancelled. If a look is held up, it goes on after `LOOKED_WITHIN_S` more, and the thread
        is `at_work` until it is done.
        """
        if not containment.may_have_left:
            return ()

        def end() -> list[int]:
            while True:
                with contextlib.suppress(hunt.NotKnownError):  # it looks again
                    left = hunt.exterminate(containment.left, within_s)
                    self._orphans.collect()
                    return left

        left = await self.blocking.run_or_leave(
            f"killing what {containment.instance} left",
            end,
            at_work,
            leave_after_s=within_s + LOOKED_WITHIN_S,
        )
        return tuple(left or ())

    async def _attend_children(self) -> None:
        while True:
            with trio.open_signal_receiver(signal.SIGCHLD) as signals:
                # A child that was passed over, in a spawn or by the kernel's list, or ended while
                # no signals were received, is told of by no further one.
                if await self._collect():
                    await anext(signals)
            # None for a while: each costs a turn of the loop, and the end of each tool sends one.
            await self._collect()
            await trio.sleep(COLLECT_S)

    async def _collect(self) -> bool:
        """Reap the orphans that have ended; returns whether none has to be reaped later."""
        if not self._orphans.may_be_left():
            return True

        def collect() -> bool:
            self._orphans.look()
            return self._orphans.collect()

        return await self.blocking.run("looking at orphans", collect, in_any_case=True)

    @asynccontextmanager
    async def in_force(self) -> AsyncIterator[None]:
        """Keep guardian, record and lock within the block, and leave no process at its end."""
        guardianship, disk = self._guardianship, self._resources.disk
        assert guardianship is not None and disk is not None  # noqa: PT018, S101 - not a bare one
        async with trio.open_nursery() as nursery:
            await nursery.start(guardianship.run)
            nursery.start_soon(disk.file.run)
            nursery.start_soon(disk.lock.keep, disk.file.renew, self.blocking)
            if self._removals is not None:
                nursery.start_soon(self._removals.run)
            if self._whole_process:
                nursery.start_soon(self._attend_children)
            try:
                yield
            finally:
                if await self._leaves_nobody(disk.ledger):
                    guardianship.close()
                await disk.file.close()
                nursery.cancel_scope.cancel()

    async def _leaves_nobody(self, ledger: Ledger) -> bool:
        """Kill what is left; returns whether none is: else the guardian has to."""
        with trio.move_on_after(SWEEP_WITHIN_S, shield=True):
            left: list[int] | None = None
            with contextlib.suppress(hunt.NotKnownError):
                left = await self.blocking.run(
                    "looking for what modules left",
                    partial(self._sweep, ledger.author),
                    abandon_after_s=0,
                    in_any_case=True,
                )
            if left is None:
                log.error(
                    "the processes that modules left could not be looked for; the guardian kills"
                    " them"
                )
                return False
            if left:
                log.error("left behind", pids=left)
            return not left
        log.error("left to the guardian: looking for what modules left took too long")
        return False

    def _sweep(self, author: Author | None) -> list[int]:
        """Return the pids that are left; for a thread."""
        assert author is not None  # noqa: S101 - it is written before the first process
        marked = Ledger()
        # This process may be older than this run of a daemon in it.
        marked.author = author._replace(start=self._resources.since)

        def find() -> list[Stat]:
            unknown = self._orphans.unknown()
            if unknown:
                unknown = hunt.with_descendants(unknown, procfs.every_process())
            return marked.find() + unknown

        left: list[int] | None = None
        with contextlib.suppress(hunt.NotKnownError):
            left = hunt.exterminate(find, TRACED_WITHIN_S)
        if left is None or not all(map(tracer_of, left)):
            left = hunt.exterminate(find, SWEPT_WITHIN_S)
        self._orphans.collect()
        return left


@asynccontextmanager
async def holding(
    data_dir: Path,
    *,
    containment: str | None = None,
    whole_process: bool = False,
    file_limit: FileLimit | None = None,
    blocking: BlockingWork | None = None,
) -> AsyncIterator[Custody]:
    """Hold the processes that are spawned within the block; at its end none of them is left.

    `containment` forces a rung; `whole_process` says that this process is nothing but the daemon,
    so that it may reap every child that it did not spawn. Raises `ContainmentError` and
    `DataInUseError`, before anything is started.
    """
    blocking = blocking or BlockingWork()
    taken = await _taken(data_dir, containment, blocking, whole_process=whole_process)
    with contextlib.ExitStack() as at_last:
        try:
            custody = Custody(taken, file_limit, blocking, whole_process=whole_process)
            at_last.callback(custody.spawn_threads.close)  # one of which may be lent to `_release`
            async with custody.in_force():
                yield custody
        finally:
            await _release(taken, blocking)


async def _taken(
    data_dir: Path, containment: str | None, blocking: BlockingWork, *, whole_process: bool
) -> Resources:
    """Take all that a daemon has, in a thread.

    The caller may be cancelled, or give up, while the thread is at work. The later of the two
    closes what was made then; perhaps both do, and to close it twice is harmless.
    """
    given_up = False
    made: list[Resources] = []

    def work() -> Resources:
        taken = _take(data_dir, containment, blocking, whole_process=whole_process)
        made.append(taken)
        if given_up:
            taken.owned.close()
        return taken

    try:
        with trio.move_on_after(TAKEN_WITHIN_S):
            taken = await blocking.run(f"taking {data_dir}", work, abandon_after_s=0)
            made.clear()
            return taken
    except OSError as error:
        raise DataInUseError(f"{data_dir} cannot be used: {error.strerror}") from None
    finally:
        given_up = True
        for taken in made:
            taken.owned.close()
    raise DataInUseError(str(NoAnswerError(data_dir)))


def _take(
    data_dir: Path, containment: str | None, blocking: BlockingWork, *, whole_process: bool
) -> Resources:
    with contextlib.ExitStack() as owned:
        lock = lock_data_dir(data_dir)
        owned.callback(lock.close)
        orphans = Orphans(lock.daemon, whole_process=whole_process)
        chosen = ladder.choose(containment, lock.daemon, orphans)
        owned.callback(chosen.rung.close)
        ledger = Ledger()
        ledger.author = lock.author(orphans.brands.run)
        ledger.cgroups = [] if chosen.rung.folder is None else [chosen.rung.folder]
        file = LedgerFile(lock.record, ledger.lines, blocking)
        owned.callback(file.let_go)
        file.begin()
        disk, since = Disk(lock, ledger, file), procfs.now_ticks()
        return Resources(lock.daemon, orphans, chosen, disk, since, owned.pop_all())


async def _release(taken: Resources, blocking: BlockingWork) -> None:
    """Release it in a thread, within what is left of the daemon's end; not cancelled."""
    why = "it does not answer"
    with trio.move_on_after(blocking.end_left_s(), shield=True):
        try:
            await blocking.run(
                "letting go of the data directory", taken.owned.close, abandon_after_s=0
            )
        except OSError as error:  # without a thread: the event loop waits for no disk
            why = f"there is no thread for it: {error.strerror}"
        else:
            return
    log.error("the data directory is free once this process has ended", words=why)


def _registered(containment: Containment) -> Leader | None:
    # The guardian kills all cgroups by their common folder; a process in none it knows by number.
    leader = containment.leader
    if containment.folder is not None:
        return None
    return Leader(leader.pid, leader.start, containment.instance)
