"""What a daemon takes before it starts a process: its data directory, rung, mark and record.

All of it is files, of which any may be on a disk that does not answer: so it is taken in one go in
a thread, and released in another, each within a bound. Before that, the last thing that a daemon
does with processes: it kills what all the modules' ends have missed (`leaves_nobody`).
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import hunt, ladder, procfs
from supervisor.runtime.containment.contained import ProcessGroupRung
from supervisor.runtime.containment.guardianship import LedgerFile
from supervisor.runtime.containment.ladder import Chosen
from supervisor.runtime.containment.ledger import Author, Ledger
from supervisor.runtime.containment.orphans import Orphans
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.containment.survivors import (
    KILLED_WITHIN_S,
    Claim,
    DataInUseError,
    claim,
)
from supervisor.runtime.files.looks import NEEDED_PATIENCE_S, NoAnswerError

TAKEN_WITHIN_S = 2 * KILLED_WITHIN_S + NEEDED_PATIENCE_S
"""How long the data directory may take to be the daemon's: `claim` has to kill, and may read."""

SWEPT_WITHIN_S = 5.0
"""How long it may take to kill what the modules' ends have missed."""

TRACED_WITHIN_S = 0.5
"""How long it tries if a tracer holds each of them: no SIGKILL is heard before that lets go."""

WAITED_FOR_S = TRACED_WITHIN_S + SWEPT_WITHIN_S + 5.0
"""How long the daemon's end waits: a look at a process may be held up by the kernel."""

log = structlog.get_logger()


class Holding(NamedTuple):
    data: Claim
    author: Author
    ledger: Ledger
    file: LedgerFile


class Ground:
    """What one run of a daemon needs before it starts a process, until it is closed."""

    def __init__(
        self,
        orphans: Orphans,
        chosen: Chosen,
        daemon: str,
        holding: Holding | None,
        owned: contextlib.ExitStack,
    ) -> None:
        self.daemon = daemon
        """A UUID."""
        self.orphans = orphans
        self.chosen = chosen
        self.holding = holding
        """None if no trace is left on disk."""
        self.since = procfs.now_ticks()
        """Processes that began before came of no module (clock ticks since boot)."""
        self._owned = owned

    def close(self) -> None:
        """Release all of it, and let the next daemon in; for threads."""
        self._owned.close()


def bare() -> Ground:
    daemon = str(uuid.uuid4())
    chosen = Chosen(ProcessGroupRung(daemon), "nobody asked what this machine allows")
    orphans = Orphans(daemon, whole_process=False)
    return Ground(orphans, chosen, daemon, None, contextlib.ExitStack())


async def take(
    data_dir: Path, containment: str | None, blocking: BlockingWork, *, whole_process: bool
) -> Ground:
    """Take it all; see `custody.holding`.

    The caller may be cancelled, or give up, while the thread is at work. The later of the two
    closes what was made then.
    """
    given_up, handing_over = False, threading.Lock()
    made: list[Ground] = []

    def work() -> Ground:
        ground = _take(data_dir, containment, blocking, whole_process=whole_process)
        with handing_over:
            made.append(ground)
            if given_up:
                ground.close()
        return ground

    try:
        with trio.move_on_after(TAKEN_WITHIN_S):
            ground = await blocking.run(f"taking {data_dir}", work, abandon_after_s=0)
            made.clear()
            return ground
    except OSError as error:
        raise DataInUseError(f"{data_dir} cannot be used: {error.strerror}") from None
    finally:
        with handing_over:
            given_up = True
            for ground in made:
                ground.close()
    raise DataInUseError(str(NoAnswerError(data_dir)))


def _take(
    data_dir: Path, containment: str | None, blocking: BlockingWork, *, whole_process: bool
) -> Ground:
    with contextlib.ExitStack() as owned:
        data = claim(data_dir)
        owned.callback(data.close)
        daemon = str(uuid.uuid4())
        orphans = Orphans(daemon, whole_process=whole_process)
        chosen = ladder.choose(containment, daemon, orphans)
        owned.callback(chosen.rung.close)
        author = data.author(daemon, orphans.brands.run)
        ledger = Ledger()
        ledger.author = author
        ledger.cgroups = [] if chosen.rung.folder is None else [chosen.rung.folder]
        file = LedgerFile(data.record, ledger.lines, blocking)
        owned.callback(file.let_go)
        file.begin()
        holding = Holding(data, author, ledger, file)
        return Ground(orphans, chosen, daemon, holding, owned.pop_all())


async def leaves_nobody(on: Ground, blocking: BlockingWork) -> bool:
    """Kill what is left; returns whether none is. If not, or not surely, the guardian has to."""
    with trio.move_on_after(WAITED_FOR_S, shield=True):
        left: list[int] | None = None
        with contextlib.suppress(hunt.NotKnownError):
            left = await blocking.run(
                "looking for what modules left",
                partial(_sweep, on),
                abandon_after_s=0,
                in_any_case=True,
            )
        if left is None:
            log.error(
                "the processes that modules left could not be looked for; the guardian kills them"
            )
            return False
        if left:
            log.error("left behind", pids=left)
        return not left
    log.error("left to the guardian: looking for what modules left took too long")
    return False


def _sweep(on: Ground) -> list[int]:
    """Return the pids that are left; for a thread."""
    assert on.holding is not None  # noqa: S101 - a bare one has no end
    ledger = Ledger()
    # This process may be older than this run of a daemon in it.
    ledger.author = on.holding.author._replace(start=on.since)

    def find() -> list[Stat]:
        unknown = on.orphans.unknown()
        if unknown:
            unknown = hunt.with_descendants(unknown, procfs.every_process())
        return ledger.find() + unknown

    left: list[int] | None = None
    with contextlib.suppress(hunt.NotKnownError):
        left = hunt.exterminate(find, TRACED_WITHIN_S)
    if left is None or not all(map(tracer_of, left)):
        left = hunt.exterminate(find, SWEPT_WITHIN_S)
    on.orphans.collect()
    return left


async def leave(ground: Ground, blocking: BlockingWork) -> None:
    """Close it in a thread, within what is left of the daemon's end; not cancelled."""
    why = "it does not answer"
    with trio.move_on_after(blocking.end_left_s(), shield=True):
        try:
            await blocking.run("letting go of the data directory", ground.close, abandon_after_s=0)
        except OSError as error:  # without a thread: the event loop waits for no disk
            why = f"there is no thread for it: {error.strerror}"
        else:
            return
    log.error("the data directory is free once this process has ended", words=why)
