"""Lay out a table in turns: tens of thousands of tools take longer than neighbours should wait."""

from __future__ import annotations

from collections.abc import Callable, Generator

import structlog

from protocol.errors import Failure, Reason
from supervisor.faces.mcp.table import Table
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.deadlines import Deadlines, Timer
from supervisor.runtime.turns import SERVING, Turn

log = structlog.get_logger()


class TableOnItsWay:
    """A table of which a part is laid out in each turn of the event loop."""

    def __init__(
        self,
        who: str,
        steps: Generator[None, None, Table],
        deadlines: Deadlines,
        made: Callable[[Table | Failure], None],
    ) -> None:
        """`who` waits for it, for `SERVING`; `made` takes the table or the failure."""
        self._who = who
        self._steps = steps
        self._deadlines = deadlines
        self._made = made
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Begin; a table that takes one turn is made at once."""
        turn = Turn()
        turn.begin()
        try:
            next(self._steps)
            while not turn.over:
                next(self._steps)
        except StopIteration as end:
            self._made(end.value)
        else:
            self._timer = self._deadlines.after(0, self._go_on)

    def cancel(self, stopped: Stopped) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._made(Failure.because(stopped.reason, stopped.message))

    def _go_on(self) -> None:
        SERVING.begin(self._who, "a list of tools")
        try:
            self.begin()
        # A mistake of ours over one request is not to end the daemon.
        except Exception as error:
            log.exception("a list could not be made")
            words = f"the request failed in the daemon: {type(error).__name__}; its log says where"
            self._made(Failure.because(Reason.REPORTED, words))
        finally:
            SERVING.end()
