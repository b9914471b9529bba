"""Batches over HTTP: one stream with the answer to each request, or 202 where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.http.client import Client, Reply
from tests.faces.mcp.test_http import events, message
from tests.faces.mcp.test_http_streams import serving
from tests.faces.running import Running

TOLD = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}


async def begun(client: Client, revision: str = "2025-03-26", path: str = "/mcp/own") -> str:
    params = {"protocolVersion": revision, "capabilities": {}}
    return (await client.ask("POST", path, message("initialize", params))).headers["mcp-session-id"]


async def post(
    client: Client, batch: Any, session: str = "", accept: str = "application/json, */*"
) -> Reply:
    headers = [("Accept", accept), *[("Mcp-Session-Id", session)] * bool(session)]
    return await client.ask("POST", "/mcp/own", batch, headers=headers)


async def test_each_request_of_a_batch_has_its_answer_as_an_event(fixtures: Running) -> None:
    async with fixtures.unix() as client:
        session = await begun(client)
        pings = [message("ping", named=number) for number in range(995)]
        meta = {"progressToken": "t"}
        call = {"name": "test_tool_with_progress", "arguments": {}, "_meta": meta}
        again = message("initialize", {}, named="again")
        batch = [TOLD, message("tools/call", call, "c"), again, 3, *pings]
        said = events(await post(client, batch, session))
        answers = [one for one in said if "method" not in one]
        assert len(answers) == 998
        assert {one.get("id") for one in answers if "result" in one} == {"c", *range(995)}
        assert {one.get("id") for one in answers if "error" in one} == {"again", None}
        assert {one["params"]["progressToken"] for one in said if "method" in one} == {"t"}
        assert (await post(client, message("ping"), session)).json["result"] == {}


async def test_a_batch_that_asks_nothing_has_no_answer(fixtures: Running) -> None:
    async with fixtures.unix() as client:
        session = await begun(client)
        answer = {"jsonrpc": "2.0", "id": "x", "result": {}}
        for batch in ([TOLD] * 1000, [answer, TOLD]):
            reply = await post(client, batch, session)
            assert (reply.status, reply.body) == (202, b"")
        assert (await post(client, message("ping"), session)).json["result"] == {}


@pytest.mark.parametrize(
    ("revision", "batch", "words"),
    [
        ("2025-03-26", [], "1 to 1000 messages"),
        ("2025-03-26", [3] * 1001, "1 to 1000 messages"),
        ("2025-03-26", [[message("ping")]], "none of which is a batch"),
        ("2025-03-26", b'[{"a":1]', "the batch is not JSON"),
        ("2025-06-18", [message("ping")], "send each message by itself"),
        ("", [message("initialize", {"protocolVersion": "2025-03-26"})], "in initialize"),
    ],
)
async def test_what_is_no_batch_or_of_another_revision_is_refused(
    revision: str, batch: Any, words: str, fixtures: Running
) -> None:
    async with fixtures.unix() as client:
        reply = await post(client, batch, await begun(client, revision) if revision else "")
        assert (reply.status, "id" in reply.json) == (400, False)
        assert words in reply.json["error"]["message"]


async def test_a_client_that_takes_no_stream_is_told_that_a_batch_needs_one(
    fixtures: Running,
) -> None:
    async with fixtures.unix() as client:
        session = await begun(client)
        reply = await post(client, [message("ping")], session, accept="application/json")
        assert "accept text/event-stream" in reply.json["error"]["message"]


async def test_a_request_of_a_batch_can_be_cancelled_and_outlives_a_client_that_hangs_up() -> None:
    async with serving() as face:
        hangs = [message("tools/call", {"name": "hang", "arguments": {}}, n) for n in "ab"]
        async with face.unix() as client, face.unix() as other:
            session = await begun(client)
            headers = [("Mcp-Session-Id", session)]
            await client.send("POST", "/mcp/own", [*hangs, message("ping")], headers=headers)
            await face.has_in_flight(2)
            cancel = {"method": "notifications/cancelled", "jsonrpc": "2.0"}
            await post(other, [{**cancel, "params": {"requestId": "a"}}, TOLD], session)
            await face.has_in_flight(1)
            await client.stream.aclose()
            twice = (await post(other, [hangs[1]], session)).body
            assert b"is open already" in twice
            await post(other, [{**cancel, "params": {"requestId": "b"}}], session)
            await face.has_in_flight(0)
