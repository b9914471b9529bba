"""Check before a start that the system gives a daemon the threads that it needs."""

from __future__ import annotations

import threading

NEEDED = 8
"""For journal, logs, spawns and looks at files. The limits count processes, too, its guardian's."""


def try_threads() -> None:
    """Start this many threads at once, and end them; raises `OSError` if there are too few."""
    may_end = threading.Event()
    begun: list[threading.Thread] = []
    try:
        for _ in range(NEEDED):
            thread = threading.Thread(target=may_end.wait, daemon=True)
            thread.start()
            begun.append(thread)
    except RuntimeError:
        message = (
            f"the system gives fewer than {NEEDED} further threads and processes to this user "
            "(ulimit -u) or control group, and a daemon needs them"
        )
        raise OSError(message) from None
    finally:
        may_end.set()
        for thread in begun:
            thread.join()
