"""Ask a module that has several processes how it is."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from protocol.errors import Failure, Outcome
from protocol.replies import Operation
from supervisor.runtime.description import generation
from supervisor.runtime.life import Life


async def asked(lives: Sequence[Life], operation: Operation, timeout_s: float) -> Outcome:
    """Ask `describe` of the newest, `health` of all, and return the worst answer."""
    if len(lives) == 1:
        return await lives[0].ask(operation, timeout_s)
    if operation is not Operation.HEALTH:
        newest = max(lives, key=lambda life: generation(life.id))
        return await newest.ask(operation, timeout_s)
    outcomes: list[Outcome] = []

    async def ask(life: Life) -> None:
        outcomes.append(await life.ask(operation, timeout_s))

    async with trio.open_nursery() as nursery:
        for life in lives:
            nursery.start_soon(ask, life)
    return min(outcomes, key=_wellness)


def _wellness(outcome: Outcome) -> int:
    if isinstance(outcome, Failure):
        return 0
    return 2 if isinstance(outcome.result, dict) and outcome.result.get("status") == "ok" else 1
