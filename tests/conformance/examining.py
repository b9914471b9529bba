"""Examine a module as `stdiod check` does, within a test."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from protocol.descriptor.model import Descriptor
from supervisor.cli.checking import answer, examined
from supervisor.conformance.examination import Permission
from supervisor.conformance.report import Report, Status
from supervisor.conformance.trial import Place
from supervisor.policy.capabilities import Policy
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.deadlines import Deadlines

ALL = Permission({}, all_ops=True)
BAD = (Status.FAILS, Status.WARNING)


async def report_of(
    folder: Path,
    descriptor: Descriptor,
    permission: Permission = ALL,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    log_files, deadlines = LogFiles(folder / "logs"), Deadlines()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        environment = {**os.environ, "TMPDIR": str(folder)}
        host_call = partial(answer, Policy())
        place = Place(environment, Custody.bare(), log_files, deadlines, host_call, progress)
        report = await examined(descriptor, place, permission)
        nursery.cancel_scope.cancel()
    log_files.close()
    return report


def by_status(report: Report, *statuses: Status) -> dict[str, str]:
    return {one.clause: one.words for one in report.findings if one.status in statuses}
