"""MCP over HTTP: `/mcp` in both eras."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.http.client import Client, Reply
from tests.faces.mcp.clients import META, Frames, modern
from tests.faces.running import Running

SESSIONS = 256
"""Of one principal, as docs/mcp-clients.md has it."""


def message(method: str, params: dict[str, Any] | None = None, named: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": named, "method": method, "params": params or {}}


def headers_of(asked: dict[str, Any]) -> dict[str, str]:
    params = asked["params"]
    said = {"Mcp-Method": asked["method"], "MCP-Protocol-Version": "2026-07-28"}
    name = params.get("name", params.get("uri"))
    return said if name is None else {**said, "Mcp-Name": name}


async def ask(
    client: Client, asked: dict[str, Any], path: str = "/mcp/own", **headers: str
) -> Reply:
    said = [(name.replace("_", "-"), value) for name, value in headers.items()]
    reply = await client.ask("POST", path, asked, headers=said)
    frames = Frames()
    if "id" in asked:
        frames.asked(asked["id"], asked["method"], asked["params"])
    for line in frames_of(reply):
        frames.check(line)
    return reply


def frames_of(reply: Reply) -> list[dict[str, Any]]:
    if reply.headers.get("content-type") == "text/event-stream":
        return events(reply)
    return [reply.json] if b'"jsonrpc"' in reply.body else []


async def ask_modern(
    client: Client, method: str, params: dict[str, Any] | None = None, **other: str
) -> Reply:
    asked = message(
        method, {**(params or {}), "_meta": {**modern(), **(params or {}).get("_meta", {})}}
    )
    return await ask(client, asked, **{**headers_of(asked), **other})


def events(reply: Reply) -> list[dict[str, Any]]:
    assert reply.headers["content-type"] == "text/event-stream"
    lines = reply.body.decode().splitlines()
    return [json.loads(one.removeprefix("data: ")) for one in lines if one.startswith("data: ")]


async def test_each_request_of_the_newer_era_stands_alone(fixtures: Running) -> None:
    async with fixtures.unix() as client:
        found = (await ask_modern(client, "server/discover")).json
        assert found["result"]["supportedVersions"][0] == "2026-07-28"
        said = await ask_modern(client, "tools/call", {"name": "test_simple_text"})
        assert (said.status, said.headers["content-type"]) == (200, "application/json")
        assert said.json["result"]["resultType"] == "complete"
        assert "mcp-session-id" not in said.headers
        unknown = await ask_modern(client, "ping")
        assert (unknown.status, unknown.json["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"Mcp-Method": "tools/list"}, -32020),
        ({"Mcp-Method": "TOOLS/CALL"}, -32020),
        ({"Mcp-Name": "another"}, -32020),
        ({"Mcp-Name": "=?base64?%%?="}, -32020),
        ({"MCP-Protocol-Version": "2025-11-25"}, -32020),
        ({"Mcp-Name": "=?base64?dGVzdF9zaW1wbGVfdGV4dA==?="}, None),
    ],
)
async def test_headers_have_to_fit_the_body(
    other: dict[str, str], code: int | None, fixtures: Running
) -> None:
    async with fixtures.unix() as client:
        reply = await ask_modern(client, "tools/call", {"name": "test_simple_text"}, **other)
        assert reply.json.get("error", {}).get("code") == code
        assert reply.status == (200 if code is None else 400)


async def test_what_is_told_before_the_answer_makes_a_stream_of_it(fixtures: Running) -> None:
    async with fixtures.unix() as client:
        call = {"name": "test_tool_with_progress", "_meta": {"progressToken": 7}}
        *told, answer = events(await ask_modern(client, "tools/call", call))
        assert [one["params"]["progress"] for one in told] == [0, 50, 100]
        assert answer["result"]["content"][0]["text"] == "done"
        whole = await ask_modern(client, "tools/call", call, Accept="application/json")
        assert whole.json["result"]["content"][0]["text"] == "done"


async def hello(client: Client, path: str = "/mcp/own") -> str:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    reply = await ask(client, message("initialize", params), path)
    assert reply.json["result"]["protocolVersion"] == "2025-11-25"
    named = reply.headers["mcp-session-id"]
    noted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await ask(client, noted, path, Mcp_Session_Id=named)).status == 202
    return named


async def test_a_session_of_the_older_era_from_its_id_to_its_end(fixtures: Running) -> None:
    async with fixtures.unix() as client:
        named = await hello(client)
        listed = await ask(client, message("tools/list"), Mcp_Session_Id=named)
        assert listed.json["result"]["tools"][0]["name"] == "test_simple_text"
        unknown = await ask(client, message("no/such"), Mcp_Session_Id=named)
        assert (unknown.status, unknown.json["error"]["code"]) == (200, -32601)
        assert (await ask(client, message("tools/list"))).status == 400
        assert (await ask(client, message("tools/list"), Mcp_Session_Id="none")).status == 404
        elsewhere = await ask(client, message("ping"), "/mcp", Mcp_Session_Id=named)
        assert elsewhere.status == 404
        old = {"Mcp_Session_Id": named, "MCP_Protocol_Version": "1999-01-01"}
        assert (await ask(client, message("ping"), **old)).json["error"]["code"] == -32022
        ended = await client.ask("DELETE", "/mcp/own", headers=[("Mcp-Session-Id", named)])
        assert ended.status == 204
        assert (await ask(client, message("ping"), Mcp_Session_Id=named)).status == 404


async def test_the_sessions_of_a_principal_have_a_bound_and_its_oldest_one_gives_way(
    fixtures: Running,
) -> None:
    async with fixtures.unix() as client:
        other = [("Authorization", f"Bearer {await fixtures.token()}")]
        greeting = message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        begun = await client.ask("POST", "/mcp", greeting, headers=other)
        first, second, *_, third = [await hello(client) for _ in range(SESSIONS + 1)]
        for named, status in ((first, 404), (second, 200), (third, 200)):
            assert (await ask(client, message("ping"), Mcp_Session_Id=named)).status == status
        other.append(("Mcp-Session-Id", begun.headers["mcp-session-id"]))
        assert (await client.ask("POST", "/mcp", message("ping"), headers=other)).status == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"id":1}'])
async def test_what_is_no_message_is_refused_as_json_rpc_does(
    body: bytes, fixtures: Running
) -> None:
    async with fixtures.unix() as client:
        reply = await client.ask("POST", "/mcp", body)
        assert reply.status == 400
        assert reply.json["error"]["code"] in (-32700, -32600)
        assert (await client.ask("POST", "/mcp/bobs", message("ping"))).status == 404


async def test_requests_without_a_version_are_told_what_they_lack(fixtures: Running) -> None:
    async with fixtures.unix() as client:
        reply = await ask(client, message("server/discover"))
        assert (reply.status, reply.json["error"]["code"]) == (400, -32602)
        assert f"{META}protocolVersion" in reply.json["error"]["message"]
