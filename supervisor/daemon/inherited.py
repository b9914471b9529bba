"""Repair the signals and the umask that a daemon and its modules inherit.

Signals that are ignored or blocked stay so through fork and exec (signal(7)): whoever started it
from a shell script, a cron job or a thread with a mask of its own would decide what its modules
receive. A umask that takes the owner's own rights makes folders nobody can use.
"""

from __future__ import annotations

import os
import signal

OWNER = 0o700

OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Signals that Python itself ignores, and resets for the programs it starts."""


def mend_signals() -> None:
    """Give each ignored signal its default action, and block none.

    Called once there are handlers: pending blocked signals come now.
    """
    for number in signal.valid_signals() - OF_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def mend_umask() -> None:
    """Let the owner use new files; the umask for others stays."""
    umask = os.umask(OWNER | 0o077)
    os.umask(umask & ~OWNER)
