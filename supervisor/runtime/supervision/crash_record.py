"""The crashes of one module, and the good health that makes them forgotten."""

from __future__ import annotations

import msgspec
import trio

from protocol.descriptor.model import Supervision
from supervisor.policy.restart import History, RestartDecision, after_end, healthy_long_enough
from supervisor.policy.verdict import Breach, Suspect, last_words
from supervisor.runtime.supervision.life import Ended


class CrashRecord:
    """Decides, when a process is gone, whether and when the next one comes."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._history = History()
        self._healthy_since: float | None = None
        self._was_ready = False

    def forgive(self) -> None:
        self._history = History()

    def spawned(self) -> None:
        """A new process is neither ready nor known to be healthy."""
        self._was_ready = False
        self._healthy_since = None

    def ready(self) -> None:
        self._was_ready = True
        self._healthy_since = trio.current_time()

    def probed(self, *, well: bool) -> None:
        if not well:
            self._forget_if_healthy()
            self._healthy_since = None
        elif self._healthy_since is None:
            self._healthy_since = trio.current_time()

    def ended(self, ended: Ended, *, replaced: bool, draw: float) -> RestartDecision:
        """Decide what follows, as it was wanted; `draw` is random in [0, 1).

        `replaced`: the host ended it, since it could no longer be spoken with.
        """
        self._forget_if_healthy()
        decision = after_end(
            self._supervision,
            self._history,
            abnormal=ended.abnormal or replaced,
            was_ready=self._was_ready,
            now=trio.current_time(),
            draw=draw,
            end=None if replaced else ended.exit,
            idle=ended.idle and not replaced,
        )
        self._history = decision.history
        return decision

    def _forget_if_healthy(self) -> None:
        if self._healthy_since is not None and healthy_long_enough(
            self._supervision, trio.current_time() - self._healthy_since
        ):
            self._history = History()


class LastExit(msgspec.Struct, frozen=True):
    """What the module's last process died of, as `status` shows it; `ts` is Unix time (s)."""

    reason: str
    message: str
    ts: float
    exit_code: int | None = None
    signal: int | None = None
    stderr_tail: tuple[str, ...] = ()
    survivors: tuple[int, ...] = ()
    """The pids of processes of it that could not be killed."""
    possible_survivors: tuple[Suspect, ...] = ()
    """Processes that it may have left, or another module that still runs."""
    stopped_by_host: bool = False
    limit: Breach | None = None
    """The limit it was ended for, with the figures, as in `details.limit` of a failure."""
    rule: str | None = None
    """The JSON pointer of the entry of `never_on` that keeps the module down."""

    @property
    def words(self) -> str:
        """A clause that follows `it`, with what its stderr says of it."""
        said = last_words(self.stderr_tail)
        return f"{self.message}; its last line on stderr: {said}" if said else self.message

    @classmethod
    def of(cls, ended: Ended, ts: float, rule: str | None = None) -> LastExit:
        exit_ = ended.exit
        return cls(
            reason=ended.reason,
            message=ended.message,
            ts=ts,
            exit_code=None if exit_ is None else exit_.exit_code,
            signal=None if exit_ is None else exit_.signal,
            stderr_tail=() if exit_ is None else exit_.stderr_tail,
            survivors=() if exit_ is None else exit_.survivors,
            possible_survivors=() if exit_ is None else exit_.possible_survivors,
            stopped_by_host=exit_ is not None and exit_.stopped_by_host,
            limit=None if exit_ is None else exit_.breach,
            rule=rule,
        )
