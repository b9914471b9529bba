"""Why a module serves nobody at the moment: in words for people, as evidence for programs."""

from __future__ import annotations

from typing import Any

from protocol.errors import Failure, Reason
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.pool import Pool

# A request that waited for a start that failed learns what failed (docs/operating.md).
_START_REASONS = {
    "spawn_failed": Reason.SPAWN_FAILED,
    "start_deadline": Reason.START_DEADLINE,
    "exited": Reason.EXITED,
    "signaled": Reason.SIGNALED,
}


def not_serving(name: str, pool: Pool, evidence: dict[str, Any]) -> Failure:
    """Say why the module of this pool serves nobody, and what would help."""
    died = pool.last_exit
    cause = "" if died is None or died.reason == "stopped" else f": it {died.message}"
    match pool.state:
        case State.FAILED:
            words = f"{name} failed too often to be restarted now{cause}"
            return Failure.because(Reason.FAILED, words, **evidence)
        case State.BACKOFF:
            reason = Reason.NOT_READY
            if died is not None:
                reason = _START_REASONS.get(died.reason, reason)
            words = f"{name} is not ready{cause}"
            return Failure.because(reason, words, **evidence)
        case _:
            words = f"{name} is stopped{cause}; `stdiod start {name}` starts it"
            return Failure.because(Reason.NOT_READY, words, **evidence)


def state_evidence(pool: Pool, waits_for: tuple[str, ...]) -> dict[str, Any]:
    """Return the state, for `details`, and what the last process died of if that led to it."""
    evidence: dict[str, Any] = {"state": str(pool.state), "retry_in_s": pool.seats.next_retry_s}
    died = pool.last_exit
    led_to_it = not pool.serves and pool.state is not State.STOPPING
    if died is not None and died.reason != "stopped" and led_to_it:
        evidence |= {
            "exit_code": died.exit_code,
            "signal": died.signal,
            "stopped_by_host": died.stopped_by_host or None,
            "stderr_tail": list(died.stderr_tail) or None,
            "rule": died.rule,
        }
    if waits_for:
        evidence["waits_for"] = list(waits_for)
    return evidence
