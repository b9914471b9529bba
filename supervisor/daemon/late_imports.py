"""Import at first use the seldom used modules that packages import.

structlog imports `asyncio` for loggers of programs built on it, trio imports `ssl` for TLS, and
`ctypes`, for a function that it does not call, `shutil`. Together they are 3 MB and a tenth of a
daemon's start. `importlib.util.LazyLoader` does not serve: the next `import` of such a module loads
it (in Python 3.11).
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from types import ModuleType
from typing import Any

SELDOM_USED = ("asyncio", "shutil", "ssl")

_lock = threading.Lock()


def put_off() -> None:
    """Import these modules at their first use, unless they are imported already."""
    for name in SELDOM_USED:
        sys.modules.setdefault(name, _StandIn(name))
    # From 3.12 on each record asks `asyncio` for its task, structlog's first one at its import.
    logging.logAsyncioTasks = False  # type: ignore[attr-defined] # 3.11 has none


class _StandIn(ModuleType):
    """A stand-in for a module that is not imported yet.

    Later it passes on the attributes of the module.
    """

    def __getattr__(self, attribute: str) -> Any:
        with _lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), attribute)
