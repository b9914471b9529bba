"""Notice that the data directory is deleted or replaced under the daemon, and take it again.

A lock is on a file, not on its name: once the file is deleted, another daemon could make a new one
and start beside this one. So the directory is watched. When the lock file under its name is another
one, or gone, the daemon waits for a moment, until the deletion is over, makes directory, lock and
ledger anew, and says what is lost. If another daemon was faster, it says that, and tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import structlog
import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment.survivors import KILLED_WITHIN_S, Claim, DataInUseError
from supervisor.runtime.files.inotify import Inotify, Mask
from supervisor.runtime.files.looks import NEEDED_PATIENCE_S, NoAnswerError

SETTLE_S = 0.1
"""How long a deletion of the directory has to finish: `rm -r` fails on what comes back."""

RETRY_S = 5.0
"""How often a directory that could not be taken, or cannot be watched, is looked at."""

LATE_S = 2 * KILLED_WITHIN_S + NEEDED_PATIENCE_S
"""How long it may take to take it again (`Claim.retake` may kill) before the status says so."""

_CHANGES = Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.DELETE_SELF | Mask.MOVE_SELF

_LOOKING = "looking at the data directory"

log = structlog.get_logger()


class ClaimKeeper:
    def __init__(
        self,
        claim: Claim,
        renew: Callable[[], Awaitable[None]],
        blocking: BlockingWork,
        *,
        open_queue: Callable[[], Inotify] = Inotify,
        settle_s: float = SETTLE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        """Call `renew` after each time the directory had to be taken again."""
        self.problem: str | None = None
        """What the user has to know of the directory; None if all is well."""
        self._claim = claim
        self._renew = renew
        self._blocking = blocking
        self.looked = trio.Event()
        """Set once it has looked for the first time."""
        self._open_queue = open_queue
        self._settle_s = settle_s
        self._retry_s = retry_s

    async def run(self) -> None:
        while True:
            if await self._lost():
                await trio.sleep(self._settle_s)
                taken = await self._take_again()
            else:
                taken = True
            if taken:
                await self._wait_change()
            else:
                self.looked.set()
                await trio.sleep(self._retry_s)

    async def _wait_change(self) -> None:
        """Return once the directory may have changed."""
        try:
            queue = self._open_queue()
        except OSError:
            self.looked.set()
            await trio.sleep(self._retry_s)
            return
        try:
            data_dir = str(self._claim.data_dir)
            await self._blocking.run(_LOOKING, partial(queue.add, data_dir, _CHANGES))
            # What was deleted before the watch was there is no event.
            while not await self._lost():
                self.looked.set()
                await queue.events()
        except OSError:
            self.looked.set()
            await trio.sleep(self._retry_s)
        finally:
            queue.close()

    async def _lost(self) -> bool:
        return await self._blocking.run(_LOOKING, self._claim.lost)

    async def _take_again(self) -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say_if_late)
            taken = await self._try_to_take()
            nursery.cancel_scope.cancel()
        return taken

    async def _say_if_late(self) -> None:
        # It is still waited for: what it makes late has to be known, or two would think it theirs.
        await trio.sleep(LATE_S)
        self._say(str(NoAnswerError(self._claim.data_dir)))

    async def _try_to_take(self) -> bool:
        data_dir = self._claim.data_dir
        try:
            replaced = await self._blocking.run(
                "taking the data directory again", self._claim.retake
            )
            await self._renew()
        except (DataInUseError, OSError) as error:
            self._say(_not_taken(data_dir, error))
            return False
        if replaced:
            self._say(
                f"{data_dir} was deleted while the daemon ran, with what was in it; it is made anew"
                " and locked"
            )
        else:
            log.warning("the lock of the data directory was deleted, and made again")
            self.problem = None
        return True

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            log.error("data directory lost", problem=problem)
        self.problem = problem


def _not_taken(data_dir: Path, error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return (
        f"{data_dir} was deleted while the daemon ran, and cannot be locked again: {why};"
        " stop one of the daemons, or make the directory usable"
    )
