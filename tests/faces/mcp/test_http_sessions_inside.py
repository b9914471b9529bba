"""How many sessions there may be over HTTP, and when they end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.http_session import ALL_SESSIONS, SESSIONS, HttpSessions
from supervisor.faces.mcp.session import Whose
from supervisor.kernel.parties import Party
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal
from supervisor.runtime.held_bytes import HeldBytes
from supervisor.runtime.supervision.deadlines import Deadlines
from tests.principals import ADA


def whose(principal: Principal = ADA) -> Whose:
    nothing: Any = None  # no server: nobody asks anything
    return Whose(nothing, Party(principal), View())


@asynccontextmanager
async def sessions(idle_s: float) -> AsyncIterator[HttpSessions]:
    deadlines = Deadlines()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        yield HttpSessions(Streams(), deadlines, HeldBytes(), idle_s)
        nursery.cancel_scope.cancel()


async def test_a_hundred_thousand_sessions_are_as_many_as_there_may_be() -> None:
    async with sessions(1e6) as found:
        quiet = whose(Principal("bob", "test"))
        his = found.begin(quiet)
        mine = whose()
        last = found.begin(mine)
        first = weakref.ref(last)
        for _ in range(100_000):
            last = found.begin(mine)
        assert len(found) == SESSIONS + 1
        gc.collect()
        assert first() is None  # not even until it would have been idle for too long
        assert found.find(last.id, mine) is last
        assert found.find(his.id, quiet) is his


async def test_who_begins_many_takes_no_session_of_who_has_few() -> None:
    async with sessions(1e6) as found:
        quiet = whose(Principal("bob", "test"))
        his = found.begin(quiet)
        for number in range(ALL_SESSIONS // SESSIONS + 1):
            other = whose(Principal(f"c{number}", "test"))
            for _ in range(SESSIONS):
                found.begin(other)
        assert len(found) == ALL_SESSIONS
        assert found.find(his.id, quiet) is his


async def test_a_session_that_nobody_uses_ends(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with sessions(10) as found:
        mine = whose()
        used, unused, serving = [found.begin(mine) for _ in range(3)]
        request: Any = object()
        serving.requests[1] = request
        await trio.sleep(6)
        assert found.find(used.id, mine) is used
        await trio.sleep(6)
        assert found.find(unused.id, mine) is None
        assert found.find(used.id, mine) is used
        assert len(found) == 2
        del serving.requests[1]
        await trio.sleep(21)
        assert len(found) == 0


async def test_what_is_kept_of_a_session_has_a_bound_in_bytes() -> None:
    async with sessions(1e6) as found:
        session = found.begin(whose())
        for _ in range(1000):
            session.keep(None, b"x" * 100_000)
        assert session._sent_bytes <= 256 << 10
        assert session.keep(None, b"x" * 1_000_000) == "0-1001"
        assert [number for number, _, _ in session._sent] == [1001]
