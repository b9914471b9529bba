"""Mend what a daemon was started with, for itself and for all that its modules inherit from it.

Signals that are ignored or blocked stay so through fork and exec (signal(7)): whoever started it
from a shell script, a cron job or a thread with a mask of its own would decide what its modules
hear. A umask that takes the owner's own rights makes folders nobody can use.
"""

from __future__ import annotations

import os
import signal

OWNER = 0o700
"""The bits of a umask that shut out the owner."""

OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""What Python itself ignores, and gives back to the programs it starts."""


def mend_signals() -> None:
    """Give each ignored signal its default action, and block none.

    Called once there are handlers: what was blocked and is pending comes now.
    """
    for number in signal.valid_signals() - OF_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def mend_umask() -> None:
    """Let the owner use what is made; what it says of others is kept."""
    umask = os.umask(OWNER | 0o077)
    os.umask(umask & ~OWNER)
