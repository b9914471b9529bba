"""All processes of a daemon's modules: containment level, marks, data-directory lock and guardian.

`holding` gives the daemon's `ProcessRegistry`; a `Host` made without one has
`ProcessRegistry.bare`, which contains by process group and leaves no trace on disk.

What is taken before a process is started (`_take`) is files, of which any may be on a disk that
does not answer: so it is taken in one go in a thread, and released in another, each within a bound.
Before that, the last thing that a daemon does with processes: it kills what all the modules' ends
have missed (`_sweep`).
"""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
import trio

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
from supervisor.runtime.containment.ledger import Author, Leader, Ledger
from supervisor.runtime.containment.orphans import Led, Orphans
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.containment.spawn import Spawner
from supervisor.runtime.threads import NEEDED_PATIENCE_S, NoAnswerError, Threads
from supervisor.runtime.turns import THE_DAEMON, SharedTurn

LOOKED_WITHIN_S = 5.0
"""How long a look at what one leader left may take, unless the kernel holds it up."""

COLLECT_S = 0.5
"""Zombies of orphans are reaped at most this often: one costs nothing, a wake-up does."""

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


class ProcessRegistry:
    """The resources by which a daemon holds processes, until `owned` is closed."""

    def __init__(
        self,
        daemon: str,
        chosen: Chosen,
        orphans: Orphans,
        threads: Threads,
        file_limit: FileLimit | None = None,
        *,
        whole_process: bool = False,
    ) -> None:
        """`daemon` is a UUID."""
        self.daemon = daemon
        self.rung, self.why_not_higher = chosen
        self.orphans = orphans
        self.threads = threads
        self.file_limit = file_limit or FileLimit()
        self.spawner = Spawner(threads, orphans)
        self.lock: DataDirLock | None = None
        self.guardianship: Guardianship | None = None
        """None, as the lock, if no trace is left on disk."""
        self.data_dir: Path | None = None
        self.owned = contextlib.ExitStack()
        self.ends = SharedTurn(THE_DAEMON)
        """The turns in which ended processes are seen to: all modules may end in one moment."""
        self._removals = Removals(threads) if isinstance(self.rung, Cgroup2Rung) else None
        self._whole_process = whole_process
        self._since = procfs.now_ticks()

    @classmethod
    def bare(cls) -> ProcessRegistry:
        """Contain by process group, without lock, guardian and record."""
        daemon = str(uuid.uuid4())
        chosen = Chosen(ProcessGroupRung(daemon), "nobody asked what this machine allows")
        return cls(daemon, chosen, Orphans(daemon, whole_process=False), Threads())

    # One module's process, from its spawn until it is reaped.

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
        self.orphans.brands.put(pid, brand)
        self.orphans.spawned(leader)
        self.orphans.leads(Led(leader, instance, brand))
        rung = self.rung.of_tools if is_tool else self.rung
        try:
            return rung.contain(instance, leader, brand)
        except OSError:
            self.orphans.reaped(leader)
            raise

    def announce(self, containment: Containment) -> None:
        """Tell the guardian of it, before it is asked anything; for threads. `register` follows."""
        if self.guardianship is not None and containment.folder is None:
            self.guardianship.announce(_leader(containment))

    def register(self, containment: Containment) -> None:
        """From now on it is killed should the daemon die, whatever became of its marks."""
        # The guardian kills all cgroups by their common folder, a process in none by its number.
        if self.guardianship is not None and containment.folder is None:
            self.guardianship.register(_leader(containment))

    async def end_the_rest(
        self, containment: Containment, within_s: float, at_work: set[object]
    ) -> tuple[int, ...]:
        """Kill and reap what an ended leader left; returns the pids that are not gone in time.

        Not cancelled. If a look is held up, the caller goes on after `LOOKED_WITHIN_S` more, and
        the thread is `at_work` until it is done.
        """
        if not containment.may_have_left:
            return ()

        def end() -> list[int]:
            while True:
                with contextlib.suppress(hunt.NotKnownError):  # it looks again
                    left = hunt.exterminate(containment.left, within_s)
                    self.orphans.collect()
                    return left

        left = await self.threads.run_or_leave(
            f"killing what {containment.instance} left",
            end,
            at_work,
            leave_after_s=within_s + LOOKED_WITHIN_S,
        )
        if left is None and not at_work:
            words = "what a module left was not looked for: each thread waits for a file"
            log.error(words, instance=containment.instance)
        return tuple(left or ())

    def about_to_reap(self, containment: Containment) -> None:
        """Forget the leader's number while it still is the leader's."""
        if self.guardianship is not None:
            self.guardianship.unregister(containment.leader.pid)

    def release(self, containment: Containment) -> None:
        """Let go of an instance whose leader has been reaped; for threads."""
        self.orphans.reaped(containment.leader)
        containment.remove()

    def release_on_loop(self, containment: Containment) -> None:
        """As `release`, on the event loop, which does not wait until its cgroup is removed."""
        self.orphans.reaped(containment.leader)
        if self._removals is not None and containment.folder is not None:
            self._removals.add(containment)

    # All processes of the machine that came of modules.

    async def whose(self, pid: int) -> str | None:
        """Return the instance that a process came of, None if it is no module's.

        `SOMEBODY` if it may be of any. Raises `trio.TooSlowError` after `WHOSE_S`, as when the
        kernel shows nothing of the process, or the machine is busy.
        """
        with trio.fail_after(WHOSE_S):
            return await self.threads.run(
                "looking whose processes clients are",
                partial(self.orphans.whose, pid, self.rung.holds),
                at_once=WHOSE_AT_ONCE,
                abandon_after_s=0,
            )

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
        if not self.orphans.may_be_left():
            return True

        def collect() -> bool:
            self.orphans.look()
            return self.orphans.collect()

        return await self.threads.run("looking at orphans", collect)

    @asynccontextmanager
    async def in_force(self) -> AsyncIterator[None]:
        """Keep guardian, record and lock within the block, and leave no process at its end."""
        guardianship, lock = self.guardianship, self.lock
        assert guardianship is not None and lock is not None  # noqa: PT018, S101 - not a bare one
        async with trio.open_nursery() as nursery:
            await nursery.start(guardianship.run)
            nursery.start_soon(guardianship.file.run)
            nursery.start_soon(lock.keep, guardianship.file.renew, self.threads)
            if self._removals is not None:
                nursery.start_soon(self._removals.run)
            if self._whole_process:
                nursery.start_soon(self._attend_children)
            try:
                yield
            finally:
                if await self._leaves_nobody(guardianship.ledger.author):
                    guardianship.close()
                await guardianship.file.close()
                nursery.cancel_scope.cancel()

    async def _leaves_nobody(self, author: Author | None) -> bool:
        """Kill what is left; returns whether none is: else the guardian has to."""
        with trio.move_on_after(SWEEP_WITHIN_S, shield=True):
            left: list[int] | None = None
            with contextlib.suppress(hunt.NotKnownError):
                left = await self.threads.run(
                    "looking for what modules left", partial(self._sweep, author), abandon_after_s=0
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
        marked.author = author._replace(start=self._since)

        def find() -> list[Stat]:
            unknown = self.orphans.unknown()
            if unknown:
                unknown = hunt.with_descendants(unknown, procfs.every_process())
            return marked.find() + unknown

        left: list[int] | None = None
        with contextlib.suppress(hunt.NotKnownError):
            left = hunt.exterminate(find, TRACED_WITHIN_S)
        if left is None or not all(map(tracer_of, left)):
            left = hunt.exterminate(find, SWEPT_WITHIN_S)
        self.orphans.collect()
        return left


def _leader(containment: Containment) -> Leader:
    leader = containment.leader
    return Leader(leader.pid, leader.start, containment.instance)


@asynccontextmanager
async def holding(
    data_dir: Path,
    *,
    containment: str | None = None,
    whole_process: bool = False,
    file_limit: FileLimit | None = None,
    threads: Threads | None = None,
) -> AsyncIterator[ProcessRegistry]:
    """Hold the processes that are spawned within the block; at its end none of them is left.

    `containment` forces a rung; `whole_process` says that this process is nothing but the daemon,
    so that it may reap every child that it did not spawn. Raises `ContainmentError` and
    `DataInUseError`, before anything is started.
    """
    own = threads or Threads()
    take = partial(_take, data_dir, containment, own, file_limit, whole_process=whole_process)
    try:
        registry = await _taken(data_dir, take, own)
        try:
            async with registry.in_force():
                yield registry
        finally:
            await _release(registry)
    finally:
        if threads is None:
            own.close()


async def _taken(
    data_dir: Path, take: Callable[[], ProcessRegistry], threads: Threads
) -> ProcessRegistry:
    """Take all that a daemon has, in a thread.

    The caller may be cancelled, or give up, while the thread is at work. The later of the two
    closes what was made then; perhaps both do, and to close it twice is harmless.
    """
    given_up = False
    made: list[ProcessRegistry] = []

    def work() -> ProcessRegistry:
        taken = take()
        made.append(taken)
        if given_up:
            taken.owned.close()
        return taken

    try:
        with trio.move_on_after(TAKEN_WITHIN_S):
            taken = await threads.run(f"taking {data_dir}", work, abandon_after_s=0)
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
    data_dir: Path,
    containment: str | None,
    threads: Threads,
    file_limit: FileLimit | None,
    *,
    whole_process: bool,
) -> ProcessRegistry:
    with contextlib.ExitStack() as owned:
        lock = lock_data_dir(data_dir)
        owned.callback(lock.close)
        orphans = Orphans(lock.daemon, whole_process=whole_process)
        chosen = ladder.choose(containment, lock.daemon, orphans)
        owned.callback(chosen.rung.close)
        ledger = Ledger()
        ledger.author = lock.author(orphans.brands.run)
        ledger.cgroups = [] if chosen.rung.folder is None else [chosen.rung.folder]
        file = LedgerFile(lock.record, ledger.lines, threads)
        owned.callback(file.let_go)
        file.begin()
        registry = ProcessRegistry(
            lock.daemon, chosen, orphans, threads, file_limit, whole_process=whole_process
        )
        registry.lock, registry.data_dir = lock, data_dir
        registry.guardianship = Guardianship(ledger, file, registry.spawner)
        registry.owned = owned.pop_all()
        return registry


async def _release(registry: ProcessRegistry) -> None:
    """Release what it has in a thread, within what is left of the daemon's end; not cancelled."""
    words = "it does not answer"
    with trio.move_on_after(registry.threads.end_left_s(), shield=True):
        try:
            await registry.threads.run(
                "letting go of the data directory", registry.owned.close, abandon_after_s=0
            )
        except OSError as error:
            words = str(error)
        else:
            return
    log.error("the data directory is free once this process has ended", words=words)
