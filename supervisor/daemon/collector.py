"""Keep the garbage collector from what stays.

What is imported and built at a start is garbage only when the process ends, and is looked through
again and again until then: more than a quarter of a short command's time, a third of a daemon's
start. What was there at `begin` is still freed when its last reference goes; only a cycle of it is
not.

Later, a full collection looks through all that lives, which may be a hundred thousand objects for a
client that has thousands of requests open: a fifth of a second in which nobody is served. So Python
collects what is young, and the daemon the rest at a moment when little is open (`collect_all`).
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable

NEVER = 1 << 30
"""After so many collections of the middle generation Python makes a full one."""

DUE_AFTER = 10
"""After so many Python would make a full one by itself."""

CALM_AGAIN_S = 1.0
"""Between two looks whether it is a good moment."""

AT_LATEST_S = 600.0
"""Then it is made whatever is open: cycles that are garbage hold memory."""


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


async def collect_all(calm: Callable[[], bool]) -> None:
    """Make full collections when they are due and it is `calm`; until cancelled, once begun."""
    import trio  # noqa: PLC0415 - short commands put off the collector, too, and need none of it

    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    due = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 1 and gc.get_count()[2] >= DUE_AFTER:
            token.run_sync_soon(due.set, idempotent=True)  # from whatever thread

    gc.callbacks.append(collected)
    try:
        while True:
            await due.wait()
            due = trio.Event()
            with trio.move_on_after(AT_LATEST_S):
                while not calm():  # noqa: ASYNC110 - nothing tells of it, and few look
                    await trio.sleep(CALM_AGAIN_S)
            gc.collect()
    finally:
        gc.callbacks.remove(collected)
