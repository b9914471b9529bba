"""Keep the garbage collector from what stays.

What is imported and built at a start is garbage only when the process ends, and is looked through
again and again until then: more than a quarter of a short command's time, a third of a daemon's
start. What was there at `begin` is still freed when its last reference goes; only a cycle of it is
not.

Later, a full collection would look through all that lives, which may be a million objects for
thousands of modules and open requests: a fifth of a second in which nobody is served. So the daemon
makes two kinds in its place (`collect_all`):

    often       only what has come since the last one; what survives counts as what stays
    grown       all that lives, once what is held has grown by half since the last one of this kind,
                when little is open and the event loop had next to nothing to do for a second

So a cycle that became garbage late holds memory until the daemon has grown, and no longer. One of
the second kind takes 20 ms with hardly a module, and nothing can cut it short: that is why it waits
until nobody would. A flood of calls of a process that stays makes no cycles, and needs none; a call
with a process of its own leaves some 50 objects in cycles, which the first kind finds, but for
those of the few calls that were open at the one before.
"""

from __future__ import annotations

import atexit
import gc
import math
import sys
import time
from collections.abc import Callable

OFTEN, MIDDLE, NEVER = 700, 10, 1 << 30
"""Python's own thresholds, but for the last: it makes no full collection. As up to 3.12; what 3.13
has in place of the first makes each collection take three times as long."""

DUE_AFTER = 2
"""After so many of the middle generation what has come is looked through: some 16,000 objects at
the most, in 5 ms, or in 15 where other programs have the processor's caches."""

GROWN = 1.5
LEAST_BYTES = 32 << 20
"""By so much what is held has to have grown before all that lives is looked through: by a factor,
and by no less than that."""

BLOCK_BYTES, BUFFERS = 80, 4
"""What counts are small objects, of which each cycle has some. All memory of the process counts for
a quarter: a crowd of long answers comes and goes, and is no garbage."""

CALM_AGAIN_S = 1.0
"""Between two looks whether it is a good moment for that."""

IDLE_S = 0.03
"""With so little CPU time in between, a call comes now and then, or none: to watch a thousand
modules that do nothing takes 20 to 30 ms of a second."""

AT_LATEST_S = 3600.0
"""Then it is made whatever is open and whoever is served. A flood does not last as long."""


def put_off() -> None:
    """Collect nothing until `begin`; at the end of the process, nothing that is there by then."""
    gc.disable()
    atexit.unregister(gc.freeze)  # a daemon's command puts it off again
    atexit.register(gc.freeze)


def begin() -> None:
    """Collect from now on, but nothing of what is there already; without `put_off`, do nothing."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


async def collect_all(calm: Callable[[], bool], memory_bytes: Callable[[], int]) -> None:
    """Make the collections that Python no longer makes, those of all in an idle, `calm` moment.

    Until cancelled, once begun. `calm` tells whether little is open, `memory_bytes` how much memory
    the process has.
    """
    import trio  # noqa: PLC0415 - short commands put off the collector, too, and need none of it

    gc.set_threshold(OFTEN, MIDDLE, NEVER)
    due = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 1 and gc.get_count()[2] >= DUE_AFTER:
            token.run_sync_soon(due.set, idempotent=True)  # from whatever thread

    gc.callbacks.append(collected)
    limit_bytes, at_latest = _limit_bytes(_held_bytes(memory_bytes())), math.inf
    try:
        while True:
            used_s = time.thread_time()
            with trio.move_on_after(math.inf if at_latest == math.inf else CALM_AGAIN_S):
                await due.wait()
            idle = not due.is_set() and time.thread_time() - used_s <= IDLE_S
            if due.is_set():
                due = trio.Event()
                gc.collect()
                gc.freeze()
            if _held_bytes(memory_bytes()) <= limit_bytes:
                at_latest = math.inf
                continue
            at_latest = min(at_latest, trio.current_time() + AT_LATEST_S)
            if trio.current_time() >= at_latest or (idle and calm()):
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                limit_bytes, at_latest = _limit_bytes(_held_bytes(memory_bytes())), math.inf
    finally:
        gc.callbacks.remove(collected)


def _held_bytes(memory_bytes: int) -> int:
    return max(sys.getallocatedblocks() * BLOCK_BYTES, memory_bytes // BUFFERS)


def _limit_bytes(held_bytes: int) -> float:
    return max(held_bytes * GROWN, held_bytes + LEAST_BYTES)
