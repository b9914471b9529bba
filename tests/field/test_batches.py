"""Batches of clients, which one revision of MCP has, and byte order marks before their lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, McpClient
from tests.system.daemon import Daemon

Host = Callable[..., Daemon]

HAS, BEFORE, AFTER = "2025-03-26", "2024-11-05", "2025-06-18"


def asked(rpc_id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}


def write(client: McpClient, line: str | list[Any], mark: str = "") -> None:
    assert client.process.stdin is not None
    text = line if isinstance(line, str) else json.dumps(line)
    client.process.stdin.write(f"{mark}{text}\n".encode())
    client.process.stdin.flush()


def read(client: McpClient) -> dict[str, Any]:
    assert client.process.stdout is not None
    message: dict[str, Any] = json.loads(client.process.stdout.readline())
    return message


def test_each_request_of_a_batch_is_answered_and_the_lines_behind_it_come_after(
    host: Host, connect: Connect
) -> None:
    client = connect(host(server("plain")), revision=HAS)
    told = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    batch = [asked("a", "ping"), told, asked(7, "tools/call", name="echo", arguments={"x": 1})]
    pings = [asked(f"p{number}", "ping") for number in range(998)]
    write(client, f"{json.dumps(batch)}\n{json.dumps(asked('behind', 'ping'))}")
    assert "result" in client.answer("a")
    assert json.loads(client.answer(7)["result"]["content"][0]["text"])["arguments"] == {"x": 1}
    assert "result" in client.answer("behind")
    write(client, [*pings, asked("b", "ping"), told])
    assert all("result" in client.answer(f"p{number}") for number in range(998))
    write(client, [told])  # nothing is answered
    write(client, [asked("b", "ping"), told])
    assert "result" in client.answer("b")


REFUSED = {
    "[]": "a batch has 1 to 1000 messages",
    "[" + ",".join(["1"] * 1001) + "]": "this one has 1001 members",
    '[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]': "none of which is a batch",
    '[{"jsonrpc":"2.0","id":1,"method":"ping"}': "the batch is not JSON",
    "[3]": "a JSON number",
    '[{"jsonrpc":"2.0"}]': "not an MCP message",
}


def test_what_is_no_batch_is_an_error_without_an_id(host: Host, connect: Connect) -> None:
    client = connect(host(server("plain")), revision=HAS)
    for line, words in REFUSED.items():
        write(client, line)
        answer = read(client)
        assert words in answer["error"]["message"], line
        assert "id" not in answer
    write(client, [asked("i", "initialize", protocolVersion=HAS, capabilities={}), 3])
    assert "was said before" in read(client)["error"]["message"]
    assert "must be a JSON object" in read(client)["error"]["message"]
    assert client.ask("ping") == {}


@pytest.mark.parametrize("revision", [BEFORE, AFTER, NEWER])
def test_in_another_revision_a_batch_is_refused(
    host: Host, connect: Connect, revision: str
) -> None:
    client = connect(host(server("plain")), revision=revision)
    write(client, [asked("a", "ping")])
    error = read(client)["error"]
    assert error["code"] == -32600
    assert f"agreed on the revision {HAS} in initialize; send each message" in error["message"]
    assert client.tools().keys() == {"echo"}


def test_a_byte_order_mark_before_a_line_of_a_client_is_passed_over(
    host: Host, connect: Connect
) -> None:
    daemon = host(server("plain"))
    client = connect(daemon, revision=HAS)
    for line in (json.dumps(asked("a", "ping")), [asked("a", "ping")]):
        for _ in range(2):
            write(client, line, mark="\ufeff")
            assert "result" in client.answer("a")
