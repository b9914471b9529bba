"""The crashes of one module, and the good health that makes them forgotten."""

from __future__ import annotations

import trio

from protocol.descriptor import Supervision
from supervisor.policy.restart import History, RestartDecision, after_end, healthy_long_enough
from supervisor.runtime.life import Ended


class CrashRecord:
    """What decides, when a process is gone, whether and when the next one comes."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._history = History()
        self._healthy_since: float | None = None
        self._was_ready = False

    def forgive(self) -> None:
        """Forget all crashes."""
        self._history = History()

    def spawned(self) -> None:
        """Take note of a new process: not ready, nor known to be healthy."""
        self._was_ready = False
        self._healthy_since = None

    def ready(self) -> None:
        """Take note that it has started."""
        self._was_ready = True
        self._healthy_since = trio.current_time()

    def probed(self, *, well: bool) -> None:
        """Take note of a probe."""
        if not well:
            self._forget_if_healthy()
            self._healthy_since = None
        elif self._healthy_since is None:
            self._healthy_since = trio.current_time()

    def ended(self, ended: Ended, *, replaced: bool, draw: float) -> RestartDecision:
        """Take note that it is gone though it was wanted; decide. `draw` is random in [0, 1).

        `replaced` tells that the host ended it, since it could no longer be spoken with.
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
        )
        self._history = decision.history
        return decision

    def _forget_if_healthy(self) -> None:
        if self._healthy_since is not None and healthy_long_enough(
            self._supervision, trio.current_time() - self._healthy_since
        ):
            self._history = History()
