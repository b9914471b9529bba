"""Answers with something of each module: with thousands of modules they are made in turns.

An answer that takes more than a turn is encoded a turn at a time, and stays in these pieces. As
objects it would be encoded in one step, and the garbage collector would look through all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any

import trio

from protocol.errors import Pieces, Reason
from protocol.frames import encode
from supervisor.kernel.parties import Party, RefusedError
from supervisor.runtime.held_bytes import PARTY_BYTES
from supervisor.runtime.turns import Turn

AT_ONCE = 2
"""So many answers that take more than a turn are made at a time: each takes megabytes."""


class LongAnswers:
    def __init__(self) -> None:
        self.one_of_metrics = trio.Semaphore(1)
        """Held while `metrics` are written."""
        self._some_at_once = trio.Semaphore(AT_ONCE)

    def gather(
        self, items: Iterator[Any], shown: dict[str, Any], party: Party
    ) -> dict[str, Any] | Awaitable[Pieces]:
        """Return `shown` with the items as its key `modules`; a None takes time, and adds none.

        What fits a turn is returned at once, before the party's next request begins. A party has
        one longer answer at a time.
        """
        some: list[Any] = []
        is_first = party.telling.value > 0
        if is_first:
            if _gather_a_turn(items, some):
                return shown | {"modules": some}
            party.telling.acquire_nowait()
        return self._gather_the_rest(items, some, shown, party, is_first=is_first)

    async def _gather_the_rest(
        self,
        items: Iterator[Any],
        some: list[Any],
        shown: dict[str, Any],
        party: Party,
        *,
        is_first: bool,
    ) -> Pieces:
        if not is_first:
            await party.telling.acquire()
        try:
            async with self._some_at_once:
                some[:] = map(encode, some)
                parts, size, over = [encode(shown)[:-1] + b',"modules":['], 0, False
                while not over:
                    await trio.lowlevel.checkpoint()
                    over = _gather_a_turn((one and encode(one) for one in items), some)
                    if some:
                        parts += [b","] if size else []
                        parts.append(b",".join(some))
                        size += len(parts[-1])
                        some.clear()
                    if size > PARTY_BYTES:
                        words = f"the answer takes more than the {PARTY_BYTES} bytes that are held"
                        words += " for a client; ask as somebody who sees fewer modules (`narrow`)"
                        raise RefusedError.because(Reason.QUEUE_FULL, words)
                return Pieces([*parts, b"]}"])
        finally:
            party.telling.release()


def _gather_a_turn(items: Iterator[Any], into: list[Any]) -> bool:
    """Gather items for as long as a turn lasts; return whether that was all."""
    turn = Turn()
    turn.begin()
    for one in items:
        if one is not None:
            into.append(one)
        if turn.over:
            return False
    return True
