"""Examine modules without a daemon, one after the other, contained; used by `stdiod check`."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import structlog
import trio

from protocol.connection import HostCalled
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.errors import Failure, Outcome, Reason, Success
from supervisor.conformance import persistent, single_use
from supervisor.conformance.examination import Examination, Permission
from supervisor.conformance.report import Report
from supervisor.conformance.trial import Place
from supervisor.kernel.grants.grants import Grant
from supervisor.kernel.host_calls.docket import denied
from supervisor.kernel.host_calls.method import check_params
from supervisor.kernel.host_calls.methods import method_named
from supervisor.kernel.parties import RefusedError
from supervisor.policy import capabilities
from supervisor.policy.capabilities import Policy, Verdict
from supervisor.runtime.containment.custody import holding
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.supervision.deadlines import Deadlines


def examine_all(
    descriptors: Sequence[Descriptor],
    permission: Permission,
    policy: Policy,
    tell: Callable[[Report], None],
    progress: Callable[[str], None],
) -> None:
    """Examine modules; `tell` of each as soon as it is over, `progress` of what is tried."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with tempfile.TemporaryDirectory(prefix="stdiod-", ignore_cleanup_errors=True) as folder:
        shows = tell, progress
        run_timed(_examine, descriptors, permission, partial(answer, policy), shows, Path(folder))


async def _examine(
    descriptors: Sequence[Descriptor],
    permission: Permission,
    host_call: Callable[[Descriptor, HostCalled], Outcome],
    shows: tuple[Callable[[Report], None], Callable[[str], None]],
    folder: Path,
) -> None:
    tell, progress = shows
    log_files, deadlines = LogFiles(folder / "logs"), Deadlines()
    try:
        async with holding(folder) as custody, trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            place = Place(os.environ, custody, log_files, deadlines, host_call)
            for descriptor in descriptors:
                tell(await examined(descriptor, place, permission, progress))
            nursery.cancel_scope.cancel()
    finally:
        log_files.close()


def answer(policy: Policy, descriptor: Descriptor, asked: HostCalled) -> Outcome:
    """Answer a module's call to the host as the policy has it; no daemon serves it."""
    call, params = asked.call, asked.call.params
    try:
        method = method_named(call.method)
        check_params(method, params)
    except RefusedError as error:
        return error.failure
    capability = method.names[0]
    match capability:
        case capabilities.INVOKE:
            capability = capabilities.invoke_capability(params["module"], params["op"])
        case capabilities.EMIT:
            capability = capabilities.emit_capability(params["event"])
    decision = capabilities.decide(policy, descriptor.name, descriptor.capabilities, capability)
    if decision.verdict is not Verdict.ALLOWED:
        return denied(Grant(decision, allowed=False), policy, descriptor)
    if capability == capabilities.LOG or method.names[0] == capabilities.EMIT:
        return Success({})
    words = (
        f"{capability} is granted, and `stdiod check` has no daemon to serve it; `stdiod up` has"
    )
    return Failure.because(Reason.UNKNOWN_OP, words)


async def examined(
    descriptor: Descriptor,
    place: Place,
    permission: Permission,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Examine one module; nothing is left of its processes."""
    async with trio.open_nursery() as nursery:
        exam = Examination(descriptor, place, permission, nursery, tell)
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
