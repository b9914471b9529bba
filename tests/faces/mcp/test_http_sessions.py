"""How many sessions there may be over HTTP, whose they are, and when they end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.http_session import ALL_SESSIONS, SESSIONS, HttpSessions
from supervisor.faces.mcp.session import Whose
from supervisor.kernel.parties import Party
from supervisor.policy.mcp_views import McpOptions, View
from supervisor.policy.principals import Principal
from supervisor.runtime.held_bytes import HeldBytes
from supervisor.runtime.supervision.deadlines import Deadlines
from tests.faces.http.client import Reply
from tests.faces.http.in_process import LOOPBACK, served
from tests.faces.mcp.test_http import message
from tests.kernel.conftest import daemon_with
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


async def test_a_session_is_nobody_elses_and_no_page_reaches_it(tmp_path: Path) -> None:
    options = McpOptions({"little": View("little", ("m",))})
    async with (
        daemon_with(tmp_path, mcp=options) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
    ):

        async def ask(method: str, path: str, body: Any, **more: Any) -> Reply:
            async with face.tcp() as client:  # a refusal may end the connection
                return await client.ask(method, path, body, **more)

        hers = await face.token(name="ada", scopes=["read", "invoke"])
        his = await face.token(name="bob", scopes=["read", "invoke"])
        greeting = message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert (await ask("POST", "/mcp", greeting)).status == 401
        failed = await ask("POST", "/mcp", message("initialize", {}), token=hers)
        assert "error" in failed.json
        assert "mcp-session-id" not in failed.headers
        begun = await ask("POST", "/mcp", greeting, token=hers)
        named = ("Mcp-Session-Id", begun.headers["mcp-session-id"])
        for token, path, more, status in (
            (hers, "/mcp", [], 200),
            (his, "/mcp", [], 404),
            (hers, "/mcp/little", [], 404),
            (hers, "/mcp", [("Origin", "http://evil.example")], 403),
        ):
            reply = await ask("POST", path, message("ping"), token=token, headers=[named, *more])
            assert reply.status == status, (path, more)
        assert (await ask("DELETE", "/mcp", None, token=his, headers=[named])).status == 404
        older = [named, ("MCP-Protocol-Version", "1999-01-01")]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for method, body in (
            ("POST", message("ping")),
            ("POST", note),
            ("GET", None),
            ("DELETE", None),
        ):
            reply = await ask(method, "/mcp", body, token=hers, headers=older)
            assert (reply.status, "1999-01-01" in reply.body.decode()) == (400, True), method
        missing = await ask("POST", "/mcp", message("ping"), token=his, headers=[named])
        assert "begin anew with initialize" in missing.json["error"]
        async with face.tcp() as client:  # as a page does whose name leads here
            head = b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n"
            await client.write(head + b"Content-Type: application/json\r\n\r\n{}")
            client.expect_reply()
            assert (await client.reply()).status == 421


@pytest.mark.parametrize("cut_at", ["head", "body"])
async def test_a_request_that_is_cut_anywhere_begins_nothing(cut_at: str, tmp_path: Path) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}'
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    start, end = (1, len(head)) if cut_at == "head" else (len(head), len(head) + len(body))
    async with daemon_with(tmp_path) as daemon, served(daemon, tmp_path) as face:
        for at in range(start, end):
            async with face.unix() as client:
                await client.write((head + body)[:at])
        async with face.unix() as client:
            for byte in head + body:
                await client.write(bytes([byte]))
            client.expect_reply()
            assert (await client.reply()).json["result"]["protocolVersion"] == "2025-11-25"
