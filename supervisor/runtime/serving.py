"""Whom the event loop serves at the moment, and whom it served longest in the present turn.

The few places that take bytes from a module or a client say so. That is a fact of the process, as
its event loop is, and so there is one `SERVING`; a stall is told by it (`runtime.stalls`), and what
all that is served leads to is written once, at its end (`afterwards`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

NOBODY = ""


class Serving:
    """Who is served; to `begin` and `end` costs less than a microsecond."""

    __slots__ = ("_about", "_clock", "_doing", "_longest", "_longest_s", "_since", "_then", "_who")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._who = NOBODY
        self._doing = ""
        self._about: object = None
        self._since = 0.0
        self._longest: tuple[str, str, object] = (NOBODY, "", None)
        self._longest_s = 0.0
        self._then: list[Callable[[], None]] = []

    def begin(self, who: str, doing: str) -> None:
        """Take note that a party is served from now on."""
        self.end()
        self._who = who
        self._doing = doing
        self._about = None
        self._since = self._clock()

    def about(self, what: object) -> None:
        """Say more of what is being done; its words (`str`) are only asked for if it took long."""
        self._about = what

    def end(self) -> None:
        """Take note that it is nobody's turn any more."""
        if self._who:
            took_s = self._clock() - self._since
            if took_s > self._longest_s:
                self._longest_s = took_s
                self._longest = (self._who, self._doing, self._about)
            self._who = NOBODY
        if self._then:
            then, self._then = self._then, []
            for one in then:
                one()

    def afterwards(self, then: Callable[[], None]) -> bool:
        """Have `then` called once this one has been served; False if nobody is."""
        if not self._who:
            return False
        self._then.append(then)
        return True

    def turn_ended(self) -> None:
        """Forget who was served in the turn of the loop that ends."""
        self._longest_s = 0.0

    def culprit(self, turn_s: float) -> tuple[str, str]:
        """Return who was served for most of a turn, and what was done, or nobody."""
        self.end()
        who, doing, about = self._longest
        if self._longest_s < turn_s / 2:
            return NOBODY, ""
        return who, doing if about is None else f"{doing}: {about}"


SERVING = Serving()
