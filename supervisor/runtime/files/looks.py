"""Look at one file after the other, and leave behind what does not answer.

A thread does the looks, in order. One that takes longer than it may (a dead mount under it) keeps
that thread, and another one goes on with the next look. Until it answers nobody looks there again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

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


class NoAnswer(Enum):
    UNANSWERED = "unanswered"


UNANSWERED: Final = NoAnswer.UNANSWERED


_Look = tuple[str, Callable[[], T]]
"""Words for what it does, and the look itself."""


class Looks:
    """The looks of some sources; they may come from several threads."""

    def __init__(self, blocking: BlockingWork | None = None) -> None:
        self._naming = nullcontext if blocking is None else blocking.naming
        self._at_work: set[str] = set()

    def each(self, looks: Iterable[_Look[T]]) -> list[T | NoAnswer]:
        """Return what comes of looks, in their order; raises what the first one raises that does.

        One may take `PATIENCE_S`.
        """
        looks, patience_s = tuple(looks), PATIENCE_S
        seen: list[T | NoAnswer] = []
        while len(seen) < len(looks):
            seen += self._in_a_thread(looks[len(seen) :], patience_s)
            patience_s = max(patience_s / 2, LEAST_PATIENCE_S)
        return seen

    def at(self, path: Path, look: Callable[[], T]) -> T:
        """Return what comes of a look at a path that there is no way without.

        Raises `NoAnswerError`, and what the look raises.
        """
        (seen,) = self._in_a_thread([(f"looking at {path}", look)], NEEDED_PATIENCE_S)
        if isinstance(seen, NoAnswer):
            raise NoAnswerError(path)
        return seen

    def _in_a_thread(self, looks: Sequence[_Look[T]], patience_s: float) -> list[T | NoAnswer]:
        """Return what comes of looks up to the first one that takes too long, and of that one."""
        seen: list[T | NoAnswer] = []
        errors: list[Exception] = []
        over, left, turn = threading.Event(), threading.Event(), threading.Lock()

        def run() -> None:
            for doing, look in looks:
                one: T | NoAnswer = UNANSWERED
                if doing not in self._at_work:
                    self._at_work.add(doing)
                    try:
                        with self._naming(doing):
                            one = look()
                    except Exception as error:  # noqa: BLE001 - the waiting thread raises it
                        errors.append(error)
                        break
                    finally:
                        self._at_work.discard(doing)
                with turn:  # Either it is left, or it goes on.
                    if left.is_set():
                        return
                    seen.append(one)
            over.set()

        if begun_thread(run, f"looks-{len(self._at_work)}") is None:
            # In this one, however long that takes: it is never the event loop's. Callers are in a
            # thread of `BlockingWork`, or look before the loop begins.
            run()
        count = 0
        while not over.wait(patience_s):
            with turn:
                if len(seen) == count:
                    left.set()
                    return [*seen, UNANSWERED]
                count = len(seen)
        if errors:
            raise errors[0]
        return seen
