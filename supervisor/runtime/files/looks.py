"""Look at one file after the other, and leave behind what does not answer.

A thread does the looks, in order. One that takes longer than it may (a dead mount under it) keeps
that thread, and another one goes on with the next look. Until it answers nobody looks there again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from protocol.problem import printable
from supervisor.runtime.begun_thread import begun_thread

if TYPE_CHECKING:
    # Verbs look at files, too, and need no event loop for that.
    from supervisor.runtime.blocking import BlockingWork

PATIENCE_S = 2.0
"""What a look may take; a disk that has to spin up, or a slow network, is given that time."""

LEAST_PATIENCE_S = 0.05
"""Each look that was left halves the patience with the others, down to this: a hundred files on one
dead mount do not take a hundred times as long."""

NEEDED_PATIENCE_S = 5.0
"""What a look may take that a daemon cannot start without."""

NO_ANSWER = "does not answer: a dead mount, or a pipe that nobody writes to"

T = TypeVar("T")


class NoAnswerError(OSError):
    """A needed place does not answer; the text names it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{printable(str(path))} {NO_ANSWER}")


class Unanswered(Enum):
    UNANSWERED = "unanswered"


UNANSWERED: Final = Unanswered.UNANSWERED


class Looks:
    """The looks of some sources; they may come from several threads."""

    def __init__(self, blocking: BlockingWork | None = None) -> None:
        self._naming = nullcontext if blocking is None else blocking.naming
        self._left: set[str] = set()
        """The looks that were left and have not answered yet."""

    def each(
        self, looks: Iterable[tuple[str, Callable[[], T]]], patience_s: float | None = None
    ) -> list[T | Unanswered]:
        """Return what comes of looks, in their order, each with words for what it does.

        One may take `PATIENCE_S` if not said. Raises what the first one raises that does.
        """
        row = _Row(looks)
        patience_s = PATIENCE_S if patience_s is None else patience_s
        while not row.over:
            name = f"looks-{len(self._left)}"
            if begun_thread(partial(self._run, row), name) is None:
                # In this one, however long that takes: it is never the event loop's. Callers are
                # in a thread of `BlockingWork`, or look before the loop begins.
                self._run(row)
            while not row.wait(patience_s):
                if self._leave(row, patience_s):
                    patience_s = max(patience_s / 2, LEAST_PATIENCE_S)
                    break
        if row.error is not None:
            raise row.error
        return row.seen

    def one(self, doing: str, look: Callable[[], T]) -> T | Unanswered:
        (seen,) = self.each([(doing, look)])
        return seen

    def at(self, path: Path, look: Callable[[], T]) -> T:
        """Return what comes of a look at a path that there is no way without.

        Raises `NoAnswerError`, and what the look raises.
        """
        (seen,) = self.each([(f"looking at {path}", look)], NEEDED_PATIENCE_S)
        if isinstance(seen, Unanswered):
            raise NoAnswerError(path)
        return seen

    def _leave(self, row: _Row[T], patience_s: float) -> bool:
        """Go on without the look at work, if it has taken too long."""
        with row.changed:
            too_long = not row.over and time.monotonic() - row.since > patience_s
            if too_long:
                self._left.add(row.doing)
                row.turn += 1
            return too_long

    def _run(self, row: _Row[T]) -> None:
        turn = row.turn
        while (taken := row.take(self._left)) is not None:
            index, doing, look = taken
            error: Exception | None = None
            with self._naming(doing):
                try:
                    seen: T | Unanswered = look()
                except Exception as raised:  # noqa: BLE001 - whoever waits raises it
                    seen, error = UNANSWERED, raised
            with row.changed:
                if row.turn != turn:  # it was left
                    self._left.discard(doing)
                    return
                row.seen[index] = seen
                if error is not None:
                    row.end(error)


class _Row(Generic[T]):
    """Looks that are done one after the other, by one thread at a time."""

    def __init__(self, looks: Iterable[tuple[str, Callable[[], T]]]) -> None:
        self._ahead = deque((index, *one) for index, one in enumerate(looks))
        self.seen: list[T | Unanswered] = [UNANSWERED] * len(self._ahead)
        self.error: Exception | None = None
        self.over = not self._ahead
        self.changed = threading.Condition()
        self.turn = 0
        """The number of the thread at work: one that is left is followed by another."""
        self.doing = ""
        self.since = time.monotonic()

    def take(self, left: set[str]) -> tuple[int, str, Callable[[], T]] | None:
        """Return the next look that is not among those that were left; None after the last."""
        with self.changed:
            while self._ahead:
                index, doing, look = self._ahead.popleft()
                if doing not in left:
                    self.doing, self.since = doing, time.monotonic()
                    return index, doing, look
            self.end(None)
            return None

    def end(self, error: Exception | None) -> None:
        """Wake the waiting thread; within the lock."""
        self.error, self.over = self.error or error, True
        self._ahead.clear()
        self.changed.notify()

    def wait(self, patience_s: float) -> bool:
        """Wait so long for the last look; returns whether that is over."""
        with self.changed:
            return self.changed.wait_for(lambda: self.over, patience_s)
