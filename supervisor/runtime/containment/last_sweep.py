"""The last thing a daemon does with processes: kill what all the modules' ends have missed."""

from __future__ import annotations

import contextlib
from functools import partial

import structlog
import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import hunt
from supervisor.runtime.containment.ground import Ground
from supervisor.runtime.containment.ledger import Adopted, Ledger
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.containment.reaping import tracer_of

WITHIN_S = 5.0
"""How long it may take to kill them."""

TRACED_WITHIN_S = 0.5
"""How long it tries if a tracer holds each of them: no SIGKILL is heard before that lets go."""

WAITED_FOR_S = TRACED_WITHIN_S + WITHIN_S + 5.0
"""How long the daemon's end waits: a look at a process may be held up by the kernel."""

log = structlog.get_logger()


async def leaves_nobody(on: Ground, blocking: BlockingWork) -> bool:
    """Kill them; returns whether none is left. If not, or not surely, the guardian has to."""
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
        strays = on.orphans.look().strays
        ledger.strays = {one.pid: Adopted(one.pid, one.start) for one in strays}
        return ledger.find()

    left: list[int] | None = None
    with contextlib.suppress(hunt.NotKnownError):
        left = hunt.exterminate(find, TRACED_WITHIN_S)
    if left is None or not all(map(tracer_of, left)):
        left = hunt.exterminate(find, WITHIN_S)
    on.orphans.collect()
    return left
