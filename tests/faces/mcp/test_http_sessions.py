"""Whose sessions over HTTP are, and what begins one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.http.client import Reply
from tests.faces.mcp.test_http import message
from tests.faces.running import LOOPBACK, SOCK, Running, running
from tests.system.descriptors import actor


async def test_a_session_is_nobody_elses_and_no_page_reaches_it() -> None:
    views = {"little": {"modules": ["m"]}}
    async with running(http=LOOPBACK, views=views) as face:

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
async def test_a_request_that_is_cut_anywhere_begins_nothing(cut_at: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}'
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    start, end = (1, len(head)) if cut_at == "head" else (len(head), len(head) + len(body))
    async with running(http=SOCK) as face:
        for at in range(start, end):
            async with face.unix() as client:
                await client.write((head + body)[:at])
        async with face.unix() as client:
            for byte in head + body:
                await client.write(bytes([byte]))
            client.expect_reply()
            assert (await client.reply()).json["result"]["protocolVersion"] == "2025-11-25"


async def test_a_session_that_nobody_uses_ends_and_one_with_a_call_open_does_not() -> None:
    config = "[mcp]\nsession_idle_s = 2\n"
    module = actor(inputs={"hang": {}})
    async with running(module, http=SOCK, config=config) as face, face.unix() as serving:
        alone = face.gateway_files
        used = await _begin(face)
        call = message("tools/call", {"name": "m__hang", "arguments": {}})
        await serving.send("POST", "/mcp", call, headers=[used])
        await face.has_in_flight(1)
        with_one = face.gateway_files
        assert with_one > alone
        unused = await _begin(face)
        await face.gateway_parts(with_one)  # a session has a connection to the daemon
        for session, status in ((unused, 404), (used, 200)):
            async with face.unix() as client:
                reply = await client.ask("POST", "/mcp", message("ping"), headers=[session])
                assert reply.status == status


async def test_a_request_whose_session_ends_before_its_answer_is_refused() -> None:
    async with running(actor(inputs={"hang": {}}), http=SOCK) as face, face.unix() as serving:
        session = await _begin(face)
        call = message("tools/call", {"name": "m__hang", "arguments": {}})
        await serving.send("POST", "/mcp", call, headers=[session])
        await face.has_in_flight(1)
        async with face.unix() as client:
            assert (await client.ask("DELETE", "/mcp", headers=[session])).status == 204
        refused = await serving.reply()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "may have been carried out" in refused.json["error"]


async def _begin(face: Running) -> tuple[str, str]:
    greeting = message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    async with face.unix() as client:
        await client.send("POST", "/mcp", greeting)
        begun = await client.reply()  # not held to its document, which takes a while at first
        return ("Mcp-Session-Id", begun.headers["mcp-session-id"])
