"""Examine modules without a daemon, one after the other, contained; used by `stdiod check`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from protocol.connection import HostCalled
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.errors import Failure, Outcome, Reason, Success
from supervisor.cli.one_module import log_from, scratch_folder
from supervisor.cli.terminal import Ticker, one_line
from supervisor.conformance import plays
from supervisor.conformance.clauses import Report
from supervisor.conformance.examination import Examination, Permission
from supervisor.conformance.trial import TrialHost
from supervisor.kernel.grants.grants import Grant
from supervisor.kernel.host_calls.docket import denied
from supervisor.kernel.host_calls.method import check_params
from supervisor.kernel.host_calls.methods import method_named
from supervisor.kernel.parties import RefusedError
from supervisor.policy import capabilities
from supervisor.policy.capabilities import EMIT, INVOKE, LOG, Authorization, Policy
from supervisor.runtime.containment.process_registry import holding
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.supervision.host import Host

WAIT_S = 5.0
"""A longer step is reported."""


def examine_all(
    descriptors: Sequence[Descriptor],
    permission: Permission,
    policy: Policy,
    ticker: Ticker,
    tell: Callable[[Report], None],
) -> None:
    """Examine modules, and report each as soon as its examination ends."""
    log_from(logging.CRITICAL)
    steps = Steps(ticker)

    async def examine(folder: Path) -> None:
        log_files = LogFiles(folder / "logs")
        try:
            async with holding(folder) as registry, trio.open_nursery() as nursery:
                host = Host(os.environ, log_files, registry)
                nursery.start_soon(host.deadlines.run)
                nursery.start_soon(steps.tell_of_waits)
                place = TrialHost(host, partial(answer, policy), steps.begin)
                for descriptor in descriptors:
                    tell(await examined(descriptor, place, permission))
                nursery.cancel_scope.cancel()
        finally:
            log_files.close()

    with scratch_folder() as folder:
        run_timed(examine, folder)


class Steps:
    """The steps of the examination; a long one is reported once, unless a terminal shows it."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._begun = 0
        self._words = ""

    def begin(self, words: str) -> None:
        self._begun += 1
        self._words = words
        self._ticker.show(one_line(words))

    async def tell_of_waits(self) -> None:
        """Report each step that takes longer than `WAIT_S`, or up to twice that."""
        told = 0
        while not self._ticker.live:
            begun = self._begun
            await trio.sleep(WAIT_S)
            if told != begun == self._begun:
                told = begun
                self._ticker.line(f"stdiod: {one_line(self._words.strip())}; no answer yet")


def answer(policy: Policy, descriptor: Descriptor, asked: HostCalled) -> Outcome:
    """Answer a call to the host by the policy; no daemon is there to serve it."""
    params = asked.call.params
    try:
        method = method_named(asked.call.method)
        check_params(method, params)
    except RefusedError as error:
        return error.failure
    capability = method.names[0]
    if capability == INVOKE:
        capability = capabilities.invoke_capability(params["module"], params["op"])
    elif capability == EMIT:
        capability = capabilities.emit_capability(params["event"])
    decision = capabilities.decide(policy, descriptor.name, descriptor.capabilities, capability)
    if decision.verdict is not Authorization.ALLOWED:
        return denied(Grant(decision, allowed=False), policy, descriptor)
    if method.names[0] in (EMIT, LOG):
        return Success({})
    words = f"{capability} is granted, but only a daemon serves it: `stdiod up`, not `check`"
    return Failure.because(Reason.UNKNOWN_OP, words)


async def examined(descriptor: Descriptor, place: TrialHost, permission: Permission) -> Report:
    """Examine one module; no process of it is left."""
    async with trio.open_nursery() as nursery:
        exam = Examination(descriptor, place, permission, nursery)
        if descriptor.transport.type == "http":
            from supervisor.conformance import service

            await service.examine(exam, place.host.environment)
        elif not (await exam.prepare() and await exam.can_start()):
            pass  # nothing can be run
        elif descriptor.transport.lifecycle is Lifecycle.PERSISTENT:
            await plays.examine_persistent(exam)
        else:
            await plays.examine_single_use(exam)
    return exam.conclude()
