"""The gateway beside a real daemon: what the daemon's own server never had."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces.http.client import Client
from tests.faces.running import SOCK, Running, started
from tests.system.descriptors import actor, agent, descriptor

POLICY = '[modules.asker]\nallow = ["module.invoke:m.echo"]\n'
FAILS = {"lines": ['{"ok":false,"error":{"code":"odd","message":"too wet"}}']}


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    asker = descriptor("asker", [sys.executable, "-I", str(Path(__file__).with_name("asker.py"))])
    asker["capabilities"] = ["module.invoke:m"]
    modules = asker, actor(), agent()
    with started(*modules, policy=POLICY, http=SOCK) as running:
        yield running


@pytest.fixture
async def client(served: Running) -> AsyncIterator[Client]:
    async with served.unix() as one:
        yield one


@pytest.mark.fault(46)
async def test_a_module_has_over_http_what_it_is_granted(served: Running) -> None:
    invoke = "/api/v1/modules/{}/invoke"
    requests = [
        ["POST", invoke.format("m"), {"op": "echo", "args": {"a": 1}}],
        ["POST", invoke.format("m"), {"op": "whoami"}],
        ["POST", "/api/v1/reload", {}],
        ["GET", "/api/v1/status", None],
    ]
    socket = str(served.daemon.folder / "http.sock")
    answers = served.daemon.invoke("asker", "ask", socket=socket, requests=requests).result
    assert [status for status, _ in answers] == [200, 403, 403, 403]
    assert answers[0][1]["result"] == {"a": 1}
    words = answers[2][1]["error"]
    assert words.startswith("module:asker may only invoke over this socket what its"), words


async def test_one_tool_and_one_agent_are_shown_by_their_names(client: Client) -> None:
    tool = await client.ask("GET", "/api/v1/tools/asker")
    assert (tool.status, tool.json["name"], tool.json["kind"]) == (200, "asker", "tool")
    assert tool.json["ops"]["inputs"] == {"ask": {}}
    shown = await client.ask("GET", "/api/v1/agents/a")
    assert (shown.status, shown.json["kind"]) == (200, "agent")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "tools/a", "TOOL_NOT_FOUND"),  # which is an agent
        ("GET", "tools/nobody", "TOOL_NOT_FOUND"),
        ("GET", "agents/m", "AGENT_NOT_FOUND"),
        ("GET", "agents/nobody", "AGENT_NOT_FOUND"),
        ("POST", "tools/a/execute", "TOOL_NOT_FOUND"),
        ("POST", "tools/nobody/execute", "TOOL_NOT_FOUND"),
    ],
)
async def test_what_is_of_another_kind_is_not_there(
    client: Client, method: str, path: str, code: str
) -> None:
    reply = await client.ask(method, f"/api/v1/{path}", {} if method == "POST" else None)
    assert (reply.status, reply.json["code"]) == (404, code)


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"op": "echo", "arguments": {"x": 1}}, 200, (True, {"x": 1}, None)),
        ({"op": "echo"}, 200, (True, {}, None)),
        ({"op": "say", "arguments": FAILS}, 200, (False, None, "too wet")),
        ({"op": "hang", "timeout_s": 0.05}, 504, "TIMEOUT"),
        ({"op": "echo", "arguments": []}, 400, "VALIDATION_ERROR"),
        ({"op": "echo", "args": {}}, 400, "VALIDATION_ERROR"),
        ({"op": 1}, 400, "VALIDATION_ERROR"),
        ({"op": "echo", "session_id": "none"}, 404, "SESSION_NOT_FOUND"),
        ({}, 400, "VALIDATION_ERROR"),  # it has several
    ],
)
async def test_a_tool_is_called_as_amcp_has_it(
    client: Client, body: dict[str, Any], status: int, told: Any
) -> None:
    reply = await client.ask("POST", "/api/v1/tools/m/execute", body)
    assert reply.status == status, reply.body
    if status == 200:
        assert tuple(reply.json[name] for name in ("success", "result", "error")) == told
    else:
        assert reply.json["code"] == told


async def test_a_tool_with_one_op_is_called_without_its_name(
    served: Running, client: Client
) -> None:
    socket = str(served.daemon.folder / "http.sock")
    arguments = {"socket": socket, "requests": []}
    reply = await client.ask("POST", "/api/v1/tools/asker/execute", {"arguments": arguments})
    assert reply.json == {"success": True, "result": [], "error": None}


async def test_who_narrows_a_request_narrows_no_other(client: Client) -> None:
    path = "/api/v1/modules/supervisor/invoke"
    narrow = {"op": "narrow", "args": {"scopes": []}}
    assert (await client.ask("POST", path, narrow)).json["result"]["scopes"] == []
    assert (await client.ask("GET", "/api/v1/status")).status == 200
