"""Run one module in this process, without a daemon: for `invoke --descriptor`, `dev`, `check`."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from protocol.descriptor.model import Descriptor, Instances, Start


def log_from(level: int) -> None:
    """Write the runtime's own log to stderr, from a level on."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a data directory that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="stdiod-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def alone(descriptor: Descriptor, **supervision: Any) -> Descriptor:
    """Return a descriptor that depends on no module and starts one process at once."""
    changed = msgspec.structs.replace(
        descriptor.supervision,
        depends_on=(),
        start=Start.EAGER,
        instances=Instances(),
        warm=0,
        **supervision,
    )
    return msgspec.structs.replace(descriptor, supervision=changed)
