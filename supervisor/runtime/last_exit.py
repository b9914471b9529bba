"""What is remembered of a module's last process."""

from __future__ import annotations

import msgspec

from supervisor.policy.verdict import Breach, Suspect
from supervisor.runtime.life import Ended


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
        """Say it as a clause that follows `it`, with the last line it wrote to stderr."""
        said = self.stderr_tail[-1:]
        return f"{self.message}; its last line on stderr: {said[0]}" if said else self.message

    @classmethod
    def of(cls, ended: Ended, ts: float, rule: str | None = None) -> LastExit:
        """Take what is shown from how a life ended at `ts`."""
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
