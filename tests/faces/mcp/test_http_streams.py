"""Streams over HTTP: who hangs up, comes back, or cancels, and answers too long for an event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.faces.http.client import Client
from tests.faces.mcp.clients import Frames, hosted, modern
from tests.faces.mcp.test_bridge import NOTE
from tests.faces.mcp.test_http import ask, ask_modern, events, headers_of, hello, message
from tests.faces.running import SOCK, Running, running
from tests.system.descriptors import CALM, actor

OWN, HOSTED = "/mcp/own", "/mcp/hosted"
VIEWS = {
    "own": {"modules": ["m"], "prefix": False},
    "hosted": {"modules": ["hosted"], "prefix": False},
}
EVENTS = 256
"""Kept of a session for a client that comes back."""
FREE_BYTES = 1 << 20
"""The longest event of a stream."""
SET_ASIDE = "stdiod://results/"
OPS: dict[str, Any] = {"hang": {}, "echo": {}, "events": {}, "say": {}}


@asynccontextmanager
async def serving(*more: dict[str, Any]) -> AsyncIterator[Running]:
    module = actor(inputs=OPS, supervision={"concurrency": 4, **CALM})
    async with running(module, *more, views=VIEWS, http=SOCK) as face:
        yield face


async def event(client: Client) -> tuple[str, dict[str, Any]]:
    """Read the next event of a stream; returns its id, too, or ""."""
    data = b""
    while not data.endswith(b"\n\n") or not data.strip(b": \n"):
        data = b"" if not data.strip(b": \n") else data
        more = await client.more()
        assert more is not None
        data += more
    fields = dict(one.split(": ", 1) for one in data.decode().splitlines() if ": " in one[1:])
    return fields.get("id", ""), json.loads(fields["data"])


def said(*lines: dict[str, Any]) -> dict[str, Any]:
    return {"name": "say", "arguments": {"lines": [json.dumps(one) for one in lines]}}


def progress(done: int) -> dict[str, Any]:
    payload = {"done": done}
    return {"version": "0", "type": "ui_event", "event": "progress", "payload": payload}


DONE = {"version": "0", "type": "done", "ok": True, "result": "it is done"}


async def test_who_hangs_up_in_the_newer_era_has_cancelled() -> None:
    async with serving() as face:
        async with face.unix() as client:
            asked = message("tools/call", {"name": "hang", "_meta": modern()})
            headers = list(headers_of(asked).items())
            await client.send("POST", OWN, asked, headers=headers)
            await face.has_in_flight(1)
        await face.has_in_flight(0)
        async with face.unix() as client:
            filter_ = {"toolsListChanged": True}
            asked = message("subscriptions/listen", {"notifications": filter_, "_meta": modern()})
            headers = list(headers_of(asked).items())
            await client.send("POST", OWN, asked, headers=headers)
            await client.head()
            _, first = await event(client)
            assert first["method"] == "notifications/subscriptions/acknowledged"
        async with face.unix() as client:
            found = await ask_modern(client, "tools/call", {"name": "echo", "arguments": {"a": 1}})
            assert found.json["result"]["structuredContent"] == {"a": 1}


async def test_in_the_older_era_a_client_comes_back_for_the_rest_of_a_stream() -> None:
    async with serving(hosted("legacy")) as face:
        async with face.unix() as client:
            named = [("Mcp-Session-Id", await hello(client, HOSTED))]
            call = {"name": "hang", "arguments": {}, "_meta": {"progressToken": "t"}}
            await client.send("POST", HOSTED, message("tools/call", call, 7), headers=named)
            await client.head()
            number, told = await event(client)
            assert told["params"] == {"progressToken": "t", "progress": 1}
        await face.has_in_flight(1, "hosted")
        again = [*named, ("Last-Event-ID", number)]
        note: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        note["params"] = {"requestId": 7}
        async with face.unix() as client, face.unix() as newest, face.unix() as other:
            await client.send("GET", HOSTED, headers=again)
            await client.head()
            await newest.send("GET", HOSTED, headers=again)
            await newest.head()
            assert (await client.rest()).strip(b": \n") == b""
            where = {"path": HOSTED, "Mcp_Session_Id": named[0][1]}
            twice = await ask(other, message("ping", named=7), **where)
            assert twice.json["error"]["code"] == -32600
            await face.has_in_flight(1, "hosted")
            assert (await ask(other, note, **where)).status == 202
            assert (await newest.rest()).strip(b": \n") == b""
        await face.has_in_flight(0, "hosted")


async def test_an_answer_that_came_meanwhile_is_told_to_who_comes_back() -> None:
    async with serving() as face, face.unix() as client:
        named = await hello(client)
        call = said(progress(1), progress(2), DONE)
        call["_meta"] = {"progressToken": "t"}
        reply = await ask(client, message("tools/call", call), Mcp_Session_Id=named)
        assert len(events(reply)) == 3
        first = reply.body.decode().split("id: ")[1].split("\n")[0]
        again = [("Mcp-Session-Id", named), ("Last-Event-ID", first)]
        missed = await client.ask("GET", OWN, headers=again)
        assert events(missed) == events(reply)[1:]


async def test_an_answer_is_told_however_much_was_missed_as_long_as_it_is_kept() -> None:
    async with serving() as face, face.unix() as client:
        named = await hello(client)
        call = said(*map(progress, range(1, 2 * EVENTS)), DONE)
        call["_meta"] = {"progressToken": "t"}
        reply = await ask(client, message("tools/call", call), Mcp_Session_Id=named)
        first = reply.body.decode().split("id: ")[1].split("\n")[0]
        again = [("Mcp-Session-Id", named), ("Last-Event-ID", first)]
        missed = await client.ask("GET", OWN, headers=again)
        assert events(missed) == events(reply)[-EVENTS:]
        call = said(*map(progress, range(1, 2 * EVENTS)), DONE)
        call["_meta"] = {"progressToken": "t"}
        await ask(client, message("tools/call", call), Mcp_Session_Id=named)
        gone = await client.ask("GET", OWN, headers=again)
        assert (gone.status, "not kept any more" in gone.body.decode()) == (400, True)


async def test_the_stream_of_a_session_tells_what_was_missed() -> None:
    async with serving(hosted("legacy")) as face, face.unix() as client:
        session = await hello(client, HOSTED)
        named = [("Mcp-Session-Id", session)]
        followed = message("resources/subscribe", {"uri": NOTE})
        assert (await ask(client, followed, path=HOSTED, Mcp_Session_Id=session)).json[
            "result"
        ] == {}
        frames = Frames()
        async with face.unix() as listening:
            await listening.send("GET", HOSTED, headers=named)
            await listening.head()
            touch = message("tools/call", {"name": "touch", "arguments": {}})
            await ask(client, touch, path=HOSTED, Mcp_Session_Id=session)
            number, told = await event(listening)
            frames.check(told)
            assert told["params"] == {"uri": NOTE}
        touch["params"]["arguments"]["below"] = True
        await ask(client, touch, path=HOSTED, Mcp_Session_Id=session)
        async with face.unix() as listening:
            again = [*named, ("Last-Event-ID", number)]
            await listening.send("GET", HOSTED, headers=again)
            await listening.head()
            later, told = await event(listening)
            assert told["params"] == {"uri": f"{NOTE}/page"}
            assert (number, later) == ("0-1", "0-2")


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_long_result_is_a_document_or_where_a_stream_has_begun_a_link(
    is_modern: bool,
) -> None:
    long = "x" * (FREE_BYTES + 1)
    async with serving() as face, face.unix() as client:
        session = "" if is_modern else await hello(client)

        async def asked(method: str, params: dict[str, Any]) -> Any:
            if is_modern:
                return await ask_modern(client, method, params)
            return await ask(client, message(method, params), Mcp_Session_Id=session)

        alone = await asked("tools/call", said({**DONE, "result": long}))
        assert alone.headers["content-type"] == "application/json"
        assert alone.json["result"]["content"][0]["text"] == long
        call = said(progress(1), {**DONE, "result": long})
        call["_meta"] = {"progressToken": "t"}
        streamed = await asked("tools/call", call)
        assert len(streamed.body) < FREE_BYTES
        words, link = events(streamed)[-1]["result"]["content"]
        assert link["uri"].startswith(SET_ASIDE)
        assert link["uri"] in words["text"]
        read = await asked("resources/read", {"uri": link["uri"]})
        assert read.headers["content-type"] == "application/json"
        (contents,) = read.json["result"]["contents"]
        assert json.loads(contents["text"])["content"][0]["text"] == long
        missing = await asked("resources/read", {"uri": f"{SET_ASIDE}none"})
        assert missing.json["error"]["code"] == -32602


async def test_a_client_that_is_killed_leaves_nothing_open_in_either_era() -> None:
    async with serving() as face:
        for era in ("modern", "legacy"):
            async with face.unix() as client:
                headers: dict[str, str] = {}
                params: dict[str, Any] = {"name": "hang", "arguments": {}}
                if era == "modern":
                    params["_meta"] = modern()
                    headers = headers_of(message("tools/call", params))
                else:
                    headers = {"Mcp-Session-Id": await hello(client)}
                asked = message("tools/call", params)
                await client.send("POST", OWN, asked, headers=list(headers.items()))
                await face.has_in_flight(1)
            if era == "legacy":  # what it asked goes on as long as its session
                async with face.unix() as client:
                    ended = await client.ask("DELETE", OWN, headers=list(headers.items()))
                    assert ended.status == 204
            await face.has_in_flight(0)
