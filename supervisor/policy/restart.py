"""Whether, and when, an ended process comes back: intensity, backoff, restart types.

Restart types and intensity are OTP's (supervisor behaviour: permanent, transient, temporary; more
than `intensity` restarts in `period_s` is giving up). Ours beside them: `on-demand`, exponential
backoff, a later half-open retry, and rules for single exit codes and signals. Those come first:

1. an end that `never_on` names: the module is gone for good;
2. an end that `restart_on` names: it is restarted, whatever the restart type says;
3. else the restart type decides.

A restart by rule 2 or 3 is subject to intensity and backoff. The rules are about ends that came
from the module or from outside: one that the host brought about (a replacement, a limit that was
passed) is no answer of the module's, and is left to rule 3. Everything is a function of the past,
the time and one random draw.
"""

from __future__ import annotations

import msgspec

from protocol.descriptor.model import Backoff, Restart, Supervision
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Exit, signal_name


class History(msgspec.Struct, frozen=True):
    """The crashes since the last sustained healthy uptime.

    `crashes` holds the times (s) of those within `period_s`, oldest first; `delayed` counts the
    restarts that had to wait; `given_up` says that intensity was exceeded and a retry is half-open.
    """

    crashes: tuple[float, ...] = ()
    delayed: int = 0
    given_up: bool = False


class RestartRule(msgspec.Struct, frozen=True):
    pointer: str
    end: int | str

    @property
    def words(self) -> str:
        """Return a clause that follows a module's name or `it`."""
        field = self.pointer.rpartition("/")[0].removeprefix("/").replace("/", ".")
        return f"is not restarted: its {field} has {self.end}"


class RestartDecision(msgspec.Struct, frozen=True):
    """The consequence of an end: the input for the lifecycle table, and the wait before RETRY."""

    given: Input
    delay_s: float
    history: History
    rule: RestartRule | None = None
    """The entry of `never_on` that forbids a restart."""
    asleep: bool = False
    """Whether a request is to start it again."""


def after_end(
    supervision: Supervision,
    history: History,
    *,
    abnormal: bool,
    was_ready: bool,
    now: float,
    draw: float,
    end: Exit | None = None,
    idle: bool = False,
) -> RestartDecision:
    """Decide about a process that ended by itself, or that had to be replaced.

    `abnormal` is an exit code other than 0, a signal, or a replacement; `was_ready` tells that the
    process had been ready; `now` is a monotonic time in seconds; `draw` is random in [0, 1). `end`
    is how the process ended, if there was one and it was not replaced; `idle` tells that it ended
    by itself, with 0, while nothing was asked of it.
    """
    forbidden = _named("never_on", supervision.never_on, end)
    wanted = _named("restart_on", supervision.restart_on, end)
    if idle and supervision.restart is Restart.ON_DEMAND and not (forbidden or wanted):
        return RestartDecision(Input.GONE_FOR_GOOD, 0.0, history, asleep=True)
    if forbidden or not (wanted or _returns(supervision.restart, abnormal=abnormal)):
        return RestartDecision(Input.GONE_FOR_GOOD, 0.0, history, forbidden)
    recent = tuple(at for at in history.crashes if now - at < supervision.period_s)
    # One more than the intensity is all the decision needs, so no more is kept.
    crashes = (*recent, now)[-(supervision.intensity + 1) :]
    if history.given_up or len(crashes) > supervision.intensity:
        # Half-open: a retry after giving up is one attempt, not a fresh budget.
        given_up = History(crashes, history.delayed, given_up=True)
        return RestartDecision(Input.GONE_TOO_OFTEN, supervision.retry_failed_s, given_up)
    first = not history.crashes and not history.delayed
    if first and was_ready:
        return RestartDecision(Input.GONE_AT_ONCE, 0.0, History(crashes, 0))
    delay_s = backoff_s(supervision.backoff, history.delayed, draw)
    return RestartDecision(Input.GONE_LATER, delay_s, History(crashes, history.delayed + 1))


def _named(field: str, entries: tuple[int | str, ...], end: Exit | None) -> RestartRule | None:
    """Return the entry of `restart_on` or `never_on` that matches an end, if any."""
    if end is None or end.stopped_by_host or end.breach is not None:
        return None
    # A code is no signal: what a shell reports as 137 has exited, and was not killed.
    happened = end.exit_code if end.signal is None else signal_name(end.signal)
    if happened is None or happened not in entries:
        return None
    return RestartRule(f"/supervision/{field}/{entries.index(happened)}", happened)


def _returns(restart: Restart, *, abnormal: bool) -> bool:
    always = restart in (Restart.PERMANENT, Restart.ON_DEMAND)
    return always or (restart is Restart.TRANSIENT and abnormal)


def backoff_s(backoff: Backoff, delayed: int, draw: float) -> float:
    """Return the wait after `delayed` earlier waits: exponential, capped, less a random share."""
    try:
        full = min(backoff.max_s, backoff.initial_s * backoff.factor**delayed)
    except OverflowError:
        full = backoff.max_s
    return full * (1.0 - backoff.jitter * draw)


def healthy_long_enough(supervision: Supervision, healthy_s: float) -> bool:
    """Tell whether a healthy uptime is long enough to forget earlier crashes."""
    return healthy_s >= supervision.period_s
