from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from protocol.errors import Failure, Outcome, Reason, Success
from supervisor.kernel.kernel import Congestion
from supervisor.runtime.supervision.call import Call

SUCCESS, FAILURE = Success(1), Failure("internal", "no")
ENDS = ("answer", "deadline", "cancel", "death")


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS)))
async def test_whatever_comes_at_the_same_moment_there_is_one_response(
    order: tuple[str, ...],
) -> None:
    told: list[Outcome] = []

    class Listener:
        def event(self, event: Any, call: Call, line: bytes | None) -> None: ...

        def answered(self, outcome: Outcome, call: Call) -> None:
            told.append(outcome)
            assert not call.settle(FAILURE)  # even from within

        def congested(self) -> Congestion:
            return Congestion.NONE

    call = Call(msgspec.UNSET, Listener())  # type: ignore[arg-type]
    outcomes = {end: Failure.because(Reason.CLIENT, end) for end in order} | {"answer": SUCCESS}
    accepted = [call.settle(outcomes[end]) for end in order]
    assert accepted == [True, False, False, False]
    assert told == [outcomes[order[0]]]
