"""Keep the garbage collector from what stays.

What is imported and built at a start is garbage only when the process ends, and is looked through
again and again until then: more than a quarter of a short command's time, a third of a daemon's
start. What was there at `begin` is still freed when its last reference goes; only a cycle of it is
not.
"""

from __future__ import annotations

import atexit
import gc


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
