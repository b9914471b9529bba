r"""One start of a persistent module: of one process, or of a second one that its dialect wants.

    begun --ready--> over
      |  \--fail, or the bound--> failed
      \--again--> (the process ends) --next_process--> begun, once

Whatever else is said of a start that is over, or waits for its second process, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.runtime.supervision.deadlines import Deadlines, Timer
from supervisor.runtime.supervision.life import Ended


class StartAttempt:
    """How far a start has got; no handshake is without an end, whatever its dialect does."""

    def __init__(self, bound_s: float, failed: Callable[[Ended], None]) -> None:
        """`failed` is called once, with why it is none."""
        self.failure: Ended | None = None
        self.again: str | None = None
        """Why it needs a second process, until that is there."""
        self._bound_s = bound_s
        self._failed = failed
        self._is_over = False
        self._is_second = False
        self._timer: Timer | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is still to be seen what becomes of it."""
        return not self._is_over and self.again is None

    def begin(self, deadlines: Deadlines, waits_for: Callable[[], str]) -> None:
        """Bound it from now on; `waits_for` says then what for."""

        def overdue() -> None:
            awaited = waits_for()
            words = f"was not ready within {self._bound_s:g} s"
            words += f"; it waited for {awaited}" if awaited else ""
            self.fail(Ended("start_deadline", words))

        if self._timer is None:
            self._timer = deadlines.after(self._bound_s, overdue)

    def end(self) -> None:
        """Take note that it is over: the module is ready, or not wanted any more; idempotent."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def fail(self, ended: Ended) -> None:
        """Take note of why it will come to nothing."""
        if not self._is_over:
            self.failure = ended
            self.end()
            self._failed(ended)

    def ask_again(self, why: str) -> bool:
        """Take note that it needs a second process; False if it does not get one."""
        if self._is_second:
            self.fail(Ended("bad_start", f"{why}, for the second time"))
        elif self.is_open:
            self.again = why
            return True
        return False

    def next_process(self) -> str | None:
        """Begin with the second process, and return why, if there is to be one."""
        if self._is_over or self.again is None:
            return None
        why, self.again = self.again, None
        self._is_second = True
        return why
