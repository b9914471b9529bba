"""Of `test_tokens.py`, what is bound to the structure."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import trio.testing

from supervisor.kernel.tokens import ENDED_A_TURN, Tokens
from supervisor.policy.principals import ALL_SCOPES, EVERYTHING
from supervisor.runtime.supervision.deadlines import Deadlines
from tests.kernel.conftest import daemon_with, own
from tests.kernel.remembering import Remembering
from tests.kernel.tokens import made, nothing
from tests.principals import ADA


async def test_a_token_is_told_once_and_kept_as_a_digest(tmp_path: Path) -> None:
    recorder = Remembering()
    async with daemon_with(tmp_path, recorder=recorder) as daemon:
        said = (await made(daemon))["token"]
        listed = await own(daemon, ADA, "token.list")
        (one,) = listed["tokens"]
        assert (one["name"], one["scopes"], one["modules"]) == ("ada", ["read", "invoke"], ["*"])
        secret = said.split("_", 2)[2]
        known = json.dumps([listed, recorder.entries], default=repr) + repr(recorder.kept)
        assert secret not in known
        assert "sha256" not in one


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_of_many_who_came_in_with_a_token_some_are_told_in_each_turn_that_it_is_over(
    how: str, mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """Of issue 13: to revoke a token with 3,000 connections stopped the event loop for 238 ms.

    The clock stands still, as the loop's does after a stall.
    """
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    tokens = Tokens(Remembering(), trio.current_time, deadlines)
    _, said = tokens.new(ADA, "ada", ALL_SCOPES, EVERYTHING, expires_s=1000)
    turn, told = 0, Counter[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await trio.lowlevel.checkpoint()
            turn += 1

    def be_told() -> None:
        told[turn] += 1

    count = 5 * ENDED_A_TURN + 1
    logins = [tokens.login(said, "http", be_told) for _ in range(count)]
    nursery.start_soon(count_turns)
    if how == "revoked":
        tokens.revoke("ada")
    else:
        for login in logins:
            assert login is not None
            assert login.timer is not None
            assert login.timer.action is not None
            login.timer.action()
    left = logins[-1]
    assert left is not None
    tokens.leave(left)  # who leaves meanwhile is told nothing
    await tokens.wait_all_over()
    # Who of the two comes first in a turn is chance.
    assert max(told.values()) <= 2 * ENDED_A_TURN
    assert told.total() == count - 1
    nursery.cancel_scope.cancel()


async def test_one_whose_end_fails_keeps_no_other_from_being_told() -> None:
    deadlines = Deadlines()
    tokens = Tokens(Remembering(), trio.current_time, deadlines)
    _, said = tokens.new(ADA, "ada", ALL_SCOPES, EVERYTHING)
    told = list[int]()

    def fail() -> None:
        told.append(1)
        raise ValueError("fails")

    for _ in range(3):
        tokens.login(said, "http", fail)
    tokens.revoke("ada")
    for count in (1, 2, 3):
        with pytest.raises(ValueError, match="fails"):
            deadlines._tell_who_is_due(trio.current_time())
        assert len(told) == count
    with trio.fail_after(0):
        await tokens.wait_all_over()


async def test_who_still_asks_with_a_token_that_was_revoked_leaves_no_bucket() -> None:
    tokens = Tokens(Remembering(), trio.current_time, Deadlines())
    _, said = tokens.new(ADA, "ada", ALL_SCOPES, EVERYTHING, rate_per_s=1)
    login = tokens.login(said, "http", nothing)
    assert login is not None
    assert tokens.wait_s(login, 0.0) == 0
    assert tokens.wait_s(login, 0.0) == 1
    tokens.revoke("ada")  # its connections are closed some in each turn
    tokens.wait_s(login, 0.0)
    assert tokens._buckets == {}


async def test_a_token_ends_with_its_time(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    tokens = Tokens(Remembering(), trio.current_time, deadlines)
    _, said = tokens.new(ADA, "ada", ALL_SCOPES, EVERYTHING, expires_s=10)
    over = trio.Event()
    login = tokens.login(said, "http", over.set)
    assert login is not None
    await trio.sleep(9.9)
    assert tokens.is_of(login, said)
    assert not over.is_set()
    await trio.sleep(0.2)
    assert over.is_set()
    assert not tokens.is_of(login, said)
    assert tokens.login(said, "http", nothing) is None
    assert tokens.shown() == []
    tokens.new(ADA, "ada", ALL_SCOPES, EVERYTHING)  # its name is free again
