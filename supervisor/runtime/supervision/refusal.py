"""Why a call is not served, or not to its end: in words for people, as evidence for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from protocol.descriptor.model import Start
from protocol.errors import Failure, Reason
from supervisor.policy.lifecycle import SERVES, State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.process.effort import effort
from supervisor.runtime.supervision.call import Call

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module

# A request that waited for a start that failed learns what failed (docs/operating.md).
_START_REASONS = {
    str(one): one
    for one in (
        *(Reason.SPAWN_FAILED, Reason.START_DEADLINE, Reason.EXITED, Reason.SIGNALED),
        *(Reason.REFUSED, Reason.NO_CONNECTION, Reason.TLS, Reason.RESET, Reason.CUT_STREAM),
        *(Reason.BAD_HTTP, Reason.BAD_STATUS, Reason.REDIRECTED, Reason.WRONG_TYPE),
    )
}

ITS_TURN = ": it waits for "
"""Stands before the op of another call, for which a call waits."""


SOON_S = 1.0
"""A call waits so long for an MCP server that crashed: its clients do not ask a second time."""


def refusal(module: Module, *, is_call: bool = False) -> Failure | None:
    """Return why a request cannot even wait, or None if it can."""
    state = module.state
    if is_call and state is State.BACKOFF and module.descriptor.transport.protocol == "mcp":
        retry_s = module.next_retry_s
        if retry_s is not None and retry_s <= SOON_S:
            return None  # what becomes of that try is its answer, unless its deadline is before
    if state in (State.BACKOFF, State.FAILED):
        return unavailable(module)
    asleep = module.asleep and not module.barred
    if state is State.STOPPING and not module.wanted and not asleep:
        return module.host.stopping(module.name, state_evidence(module))
    if state is State.DOWN and not module.wanted:
        lazy = module.descriptor.supervision.start is Start.LAZY
        wakes = lazy and not module.stopped_by_command and not module.barred
        return None if wakes or asleep else unavailable(module)
    return module.fleet.verdict(module) if module.waits_for else None


def queue_full(module: Module, waiting: int) -> Failure | None:
    """Return the refusal of a call where as many wait as may, or None."""
    supervision = module.descriptor.supervision
    limit = supervision.queue
    if module.state not in SERVES:
        # What could be served at once were it up is not queued for want of capacity: without this
        # a lazy module with `queue` 0 could never be started by a request.
        limit = max(limit, supervision.concurrency * max(supervision.instances.min, 1))
    if waiting < limit:
        return None
    words = f"{module.name} has {waiting} requests waiting, which is its limit"
    return Failure.because(Reason.QUEUE_FULL, words, queue=limit)


def unavailable(module: Module) -> Failure:
    """Say why a module serves nobody now, and what would help."""
    name, evidence = module.name, state_evidence(module)
    if module.host.shutting_down:
        return module.host.stopping(name, evidence)
    if module.removed:
        words = f"{name} was removed: its descriptor is gone"
        return Failure.because(Reason.STOPPING, words, **evidence)
    died = module.exit
    cause = "" if died is None or died.reason == "stopped" else f": it {died.message}"
    match module.state:
        case State.FAILED:
            words = f"{name} failed too often to be restarted now{cause}"
            return Failure.because(Reason.FAILED, words, **evidence)
        case State.BACKOFF:
            reason = Reason.NOT_READY
            if died is not None:
                reason = _START_REASONS.get(died.reason, reason)
            return Failure.because(reason, f"{name} is not ready{cause}", **evidence)
        case _:
            words = f"{name} is stopped{cause}; `stdiod start {name}` starts it"
            if not module.descriptor.enabled:
                words = f"{name} is disabled: `stdiod enable {name}` enables it"
            return Failure.because(Reason.NOT_READY, words, **evidence)


def state_evidence(module: Module) -> dict[str, Any]:
    """Return the state, for `details`, and what the last process died of if that led to it."""
    state, died = module.state, module.exit
    evidence: dict[str, Any] = {"state": module.shown_state, "retry_in_s": module.next_retry_s}
    led_to_it = state not in SERVES and state is not State.STOPPING
    if died is not None and died.reason != "stopped" and led_to_it:
        evidence |= {
            "exit_code": died.exit.exit_code,
            "signal": died.exit.signal,
            "stopped_by_host": died.exit.stopped_by_host or None,
            "stderr_tail": list(died.exit.stderr_tail) or None,
            "rule": died.rule,
        }
    if module.waits_for:
        evidence["waits_for"] = list(module.waits_for)
    return evidence


def _wait(module: Module) -> tuple[str, dict[str, Any]]:
    """Say what a queued call waits for: as a clause, and for `details`."""
    evidence = state_evidence(module)
    if module.state not in SERVES:
        return f"waits for {module.name} to start: {module.name} is {module.state.words}", evidence
    words = "was still waiting for its turn"
    if module.oldest is None:
        return words, evidence
    op, since = module.oldest
    concurrency = module.descriptor.supervision.concurrency
    words += f"{ITS_TURN}{op} of {module.name}, concurrency {concurrency}"
    words += f" ({trio.current_time() - since:.0f} s so far)" if since else ""
    return words, {**evidence, "waits_for_op": op}


def given_up(module: Module, call: Call, stopped: Stopped, *, waited: bool) -> Failure:
    """Say of a call, which was still waiting or is with its server, why the host ends it."""
    evidence = {} if call.server is None else call.server.evidence()
    message = stopped.message
    if waited and stopped.reason is Reason.DEADLINE:
        words, evidence = _wait(module)
        message += f"; it {words}"
    elif stopped.reason not in (Reason.DEADLINE, Reason.SILENCE):
        pass
    elif (begun := evidence.get("unfinished_line")) is not None:
        message += f"; it printed a line without a newline at its end: {begun}"
    elif call.instead is not None:
        message += f"; {call.instead.in_place_of_answer}"
        evidence = {**evidence, **call.instead.evidence}
    else:
        known = effort(call.mark)
        message += known.words
        evidence = {**evidence, "cpu_s": known.cpu_s, "busy": known.is_busy or None}
    return Failure.because(stopped.reason, message, **evidence)
