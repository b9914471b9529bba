"""Bound the CPU time of a computation that nobody can vouch for.

It is for plain code on the event loop that cannot be left otherwise, such as a regular expression:
the kernel counts the time, and a signal handler raises out of the middle of it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class OutOfTimeError(BaseException):
    """The computation took too long; no `Exception`, so that what it left does not swallow it."""


def in_cpu_time(limit_s: float, compute: Callable[[], T]) -> T:
    """Return what `compute` does; raises `OutOfTimeError` in its midst after `limit_s` of CPU time.

    Only the main thread can be interrupted; in any other there is no bound. This is no context
    manager, since the signal could come inside of its `__exit__`, before that has done anything.
    """
    if threading.current_thread() is not threading.main_thread():
        return compute()
    armed = True

    def expire(_number: int, _frame: object) -> None:
        if armed:
            raise OutOfTimeError

    before = signal.signal(signal.SIGVTALRM, expire)
    try:
        try:
            # Again and again: what is raised inside a destructor is lost.
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, limit_s)
            return compute()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        # Once more, for a signal that came just before the same lines above.
        armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        # By default the signal kills, and a last one may still be on its way to another thread:
        # then the handler stays, which does nothing any more, and which no child inherits.
        if before is not signal.SIG_DFL:
            signal.signal(signal.SIGVTALRM, before)
