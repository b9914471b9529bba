"""The turns themselves: a measurement that cannot end, ends."""

from __future__ import annotations

import pytest
import trio

from tests.budget.turns import taking_turns


async def test_a_wait_in_which_nobody_has_anything_to_do_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        taking_turns() as turns,
        pytest.raises(AssertionError, match="nobody has anything to do"),
        turns.counting(monkeypatch),
    ):
        await trio.sleep_forever()
