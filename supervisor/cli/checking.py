"""Examine modules without a daemon, one after the other, contained; used by `stdiod check`."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
import trio

from protocol.descriptor.model import Descriptor, Lifecycle
from supervisor.conformance import persistent, single_use
from supervisor.conformance.examination import Examination, Permission
from supervisor.conformance.report import Report
from supervisor.conformance.trial import Place
from supervisor.runtime.containment.custody import holding
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.supervision.deadlines import Deadlines


def examine_all(
    descriptors: Sequence[Descriptor], permission: Permission, tell: Callable[[Report], None]
) -> None:
    """Examine modules, and tell of each as soon as it is over."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with tempfile.TemporaryDirectory(prefix="stdiod-", ignore_cleanup_errors=True) as folder:
        run_timed(_examine, descriptors, permission, tell, Path(folder))


async def _examine(
    descriptors: Sequence[Descriptor],
    permission: Permission,
    tell: Callable[[Report], None],
    folder: Path,
) -> None:
    log_files, deadlines = LogFiles(folder / "logs"), Deadlines()
    try:
        async with holding(folder) as custody, trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            place = Place(os.environ, custody, log_files, deadlines)
            for descriptor in descriptors:
                tell(await examined(descriptor, place, permission))
            nursery.cancel_scope.cancel()
    finally:
        log_files.close()


async def examined(descriptor: Descriptor, place: Place, permission: Permission) -> Report:
    """Examine one module; nothing is left of its processes."""
    async with trio.open_nursery() as nursery:
        exam = Examination(descriptor, place, permission, nursery)
        if descriptor.transport.type == "http":
            from supervisor.conformance import service

            await service.examine(exam, place.environment)
        elif not (await exam.prepare() and await exam.can_start()):
            pass  # there is nothing that could be run
        elif descriptor.transport.lifecycle is Lifecycle.PERSISTENT:
            await persistent.examine(exam)
        else:
            await single_use.examine(exam)
    return exam.conclude()
