"""Clients that hear nothing for long, and one that reads nothing for long."""

from __future__ import annotations

import pytest
import trio
from wsproto.events import Ping

from tests.faces.http.test_websocket import upgraded
from tests.faces.running import ENDLESS, SOCK, Running, running
from tests.system.descriptors import actor

TOO_SLOW = 1013
INVOKE = "/api/v1/modules/{}/invoke"
SSE = [("Accept", "text/event-stream")]


@pytest.mark.bound(300)
async def test_whoever_hears_nothing_for_long_is_shown_that_the_stream_lives() -> None:
    module = actor(inputs={"hang": {}}, supervision={"concurrency": 4})
    async with running(module, http=SOCK) as face, trio.open_nursery() as nursery:
        nursery.start_soon(_stream_of_a_call, face)
        nursery.start_soon(_websocket, face)
        nursery.start_soon(_mcp_call, face)


async def _stream_of_a_call(face: Running) -> None:
    async with face.unix() as client:
        await client.send("POST", INVOKE.format("m"), {"op": "hang"}, headers=SSE)
        assert (await client.head()).status == 200
        assert await client.more() == b": \n\n"


async def _websocket(face: Running) -> None:
    async with face.unix() as client:
        socket = await upgraded(client)
        assert isinstance(await socket.event(), Ping)


async def _mcp_call(face: Running) -> None:
    async with face.unix() as client:
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {}}
        begun = await client.ask("POST", "/mcp", _message("initialize", greeting))
        named = ("Mcp-Session-Id", begun.headers["mcp-session-id"])
        call = _message("tools/call", {"name": "m__hang", "arguments": {}})
        await client.send("POST", "/mcp", call, headers=[named, *SSE])
        assert (await client.head()).headers["content-type"] == "text/event-stream"


def _message(method: str, params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.bound(300)
async def test_a_websocket_that_is_not_read_is_closed_with_1013_and_nobody_else_waits() -> None:
    modules = actor(name="noisy"), actor(name="quiet")
    async with running(*modules, http=SOCK) as face, face.unix() as slow, face.unix() as other:
        socket = await upgraded(slow)
        await socket.ask("1", "invoke", module="noisy", op="events", args=ENDLESS)
        await face.has_in_flight(1, "noisy")
        while face.daemon.status("noisy")["in_flight"]:
            reply = await other.ask("POST", INVOKE.format("quiet"), {"op": "echo"})
            assert reply.status == 200
            assert face.held_bytes < 8 << 20
        assert (await socket.closed())[0] == TOO_SLOW
