"""Keep the garbage collector from long-lived objects.

The objects of imports and of a start are garbage only when the process ends, and the collector
would visit them again and again until then: more than a quarter of a short command's time, a third
of a daemon's start. Objects that exist at `begin` are still freed when their last reference goes;
only their cycles are not.

Later, a full collection would visit all objects, perhaps a million for thousands of modules and
open requests: a fifth of a second in which no client is served. So the daemon makes two kinds of
collection in its place (`collect_all`):

    often       only objects made since the last one; the survivors count as long-lived
    grown       all objects, once the held bytes have grown by half since the last one of this kind,
                when little is open and the event loop was nearly idle for a second

So a cycle that became garbage late holds memory until the daemon has grown, and no longer. A
collection of the second kind takes 20 ms with hardly a module, and nothing can cut it short: so it
waits until no request would. A flood of calls of a persistent process makes no cycles; a call with
a process of its own leaves some 50 objects in cycles, which the first kind finds, except those of
the few calls that were open at the collection before.
"""

from __future__ import annotations

import atexit
import gc
import math
import sys
import time
from collections.abc import Callable

OFTEN, MIDDLE, NEVER = 700, 10, 1 << 30
"""Python's own thresholds, but for the last: Python makes no full collection. As up to 3.12; the
first one's successor in 3.13 makes each collection take three times as long."""

DUE_AFTER = 2
"""After so many collections of the middle generation the new objects are collected: some 16,000 at
the most, in 5 ms, or in 15 where other programs have the processor's caches."""

GROWN = 1.5
LEAST_BYTES = 32 << 20
"""The held bytes have to grow by this factor, and by no less than this many bytes, before a
collection of all objects."""

BLOCK_BYTES, BUFFERS = 80, 4
"""Small objects are counted, of which each cycle has some. All memory of the process counts for a
quarter: a crowd of long answers comes and goes, and is no garbage."""

CALM_AGAIN_S = 1.0
"""Between two checks whether the loop is idle enough for a collection of all objects."""

IDLE_S = 0.03
"""With less CPU time than this between two checks, calls are rare: watching a thousand idle modules
takes 20 to 30 ms of a second."""

AT_LATEST_S = 3600.0
"""After this time a collection of all objects happens however busy the daemon is."""


def put_off() -> None:
    """Collect nothing until `begin`, and at the end of the process nothing that exists by then."""
    gc.disable()
    atexit.unregister(gc.freeze)  # a daemon's command puts it off again
    atexit.register(gc.freeze)


def begin() -> None:
    """Collect from now on, except what exists already; without `put_off`, do nothing."""
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
