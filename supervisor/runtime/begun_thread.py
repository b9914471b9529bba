"""Begin a thread, if the system gives one: it may not, at any time (`ulimit -u`, `pids.max`)."""

from __future__ import annotations

import threading
from collections.abc import Callable


def begun_thread(run: Callable[[], None], name: str) -> threading.Thread | None:
    """Return a thread that does something, or None if there is none to be had.

    A daemon thread: what hangs for good must not keep the process from ending.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
