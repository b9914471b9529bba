"""Answers with something of each module: with thousands of modules they are made in turns.

An answer that fits in a turn is made at once. The rest is gathered, and encoded, a turn at a time,
and stays in these pieces. As objects it would be encoded in one step, and the garbage collector
would look through all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator
from typing import Any

import trio

from protocol.errors import Failure, Pieces, Reason
from protocol.frames import encode
from supervisor.kernel.parties import RefusedError
from supervisor.runtime.held_bytes import PARTY_BYTES
from supervisor.runtime.turns import Turn

AT_ONCE = 2
"""So many answers that take more than a turn are made at a time: each takes megabytes."""


class LongAnswers:
    def __init__(self) -> None:
        self.one_of_metrics = trio.Semaphore(1)
        """Held while `metrics` are written."""
        self._telling = trio.Semaphore(AT_ONCE)

    def tell(
        self, told: Iterator[Any], shown: dict[str, Any], telling: trio.Semaphore
    ) -> dict[str, Any] | Awaitable[Pieces]:
        """Gather the items of modules as the last key of `shown`; a None takes time, and adds none.

        `telling` is the semaphore of the party (`Party.telling`): it has one long answer at a time.
        """
        shown["modules"] = []
        try:
            telling.acquire_nowait()
        except trio.WouldBlock:
            return self._tell_behind_others(told, shown, telling)
        with contextlib.ExitStack() as held:
            held.callback(telling.release)
            if _tell_a_turn(told, shown["modules"]):
                return shown
            held.pop_all()
        return self._tell_the_rest(told, shown, telling)

    async def _tell_behind_others(
        self, told: Iterator[Any], shown: dict[str, Any], telling: trio.Semaphore
    ) -> Pieces:
        await telling.acquire()
        return await self._tell_the_rest(told, shown, telling)

    async def _tell_the_rest(
        self, told: Iterator[Any], shown: dict[str, Any], telling: trio.Semaphore
    ) -> Pieces:
        try:
            async with self._telling:
                encoded = shown.pop("modules")
                encoded[:] = map(encode, encoded)
                parts, size, over = [encode(shown)[:-1] + b',"modules":['], 0, False
                while not over:
                    await trio.lowlevel.checkpoint()
                    over = _tell_a_turn((one and encode(one) for one in told), encoded)
                    if encoded:
                        parts += [b","] if size else []
                        parts.append(b",".join(encoded))
                        size += len(parts[-1])
                        encoded.clear()
                    if size > PARTY_BYTES:
                        raise RefusedError(_too_long())
                return Pieces([*parts, b"]}"])
        finally:
            telling.release()


def _too_long() -> Failure:
    words = f"the answer takes more than the {PARTY_BYTES} bytes that are held for a client"
    words += "; ask as somebody who sees fewer modules (`narrow`)"
    return Failure.because(Reason.QUEUE_FULL, words)


def _tell_a_turn(told: Iterator[Any], into: list[Any]) -> bool:
    """Gather items for as long as a turn lasts; return whether that was all."""
    turn = Turn()
    turn.begin()
    for one in told:
        if one is not None:
            into.append(one)
        if turn.over:
            return False
    return True
