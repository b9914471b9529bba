"""Examine a module as `stdiod check` does, within a test."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from protocol.descriptor.model import Descriptor
from supervisor.cli.checking import answer, examined
from supervisor.conformance.clauses import ClauseStatus, Report
from supervisor.conformance.examination import Permission
from supervisor.conformance.trial import TrialHost
from supervisor.policy.capabilities import Policy
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.host import Host

ALL = Permission({}, all_ops=True)
BAD = (ClauseStatus.FAILS, ClauseStatus.WARNING)


async def report_of(
    folder: Path,
    descriptor: Descriptor,
    permission: Permission = ALL,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    log_files = LogFiles(folder / "logs")
    async with trio.open_nursery() as nursery:
        host = Host({**os.environ, "TMPDIR": str(folder)}, log_files)
        nursery.start_soon(host.deadlines.run)
        place = TrialHost(host, partial(answer, Policy()), progress)
        report = await examined(descriptor, place, permission)
        nursery.cancel_scope.cancel()
    log_files.close()
    return report


def by_status(report: Report, *statuses: ClauseStatus) -> dict[str, str]:
    return {one.clause: one.words for one in report.findings if one.status in statuses}
