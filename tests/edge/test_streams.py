"""How many streams a gateway has, and what becomes of them when its daemon is killed."""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.edge.gateway import Gateway, HttpClient, gateway
from tests.system.daemon import Daemon
from tests.system.descriptors import actor

EVENTS = "/api/v1/events"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        yield Path(name)


def kill(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait()
    daemon.client.close()
    daemon.kill_left()


def found(server: Gateway, token: str) -> None:
    """Wait until the gateway has found the daemon."""

    def is_served() -> bool:
        with server.client() as client:
            return client.ask("GET", "/api/v1/health", token=token).status == 200

    until(is_served, "the daemon being found")


def entries(response: http.client.HTTPResponse) -> Iterator[int]:
    """Yield the numbers of the entries of a stream."""
    for line in response:
        if line.startswith(b"id: "):
            yield int(line[4:])


def test_a_stream_of_entries_is_cut_off_with_the_daemon_and_resumed_without_a_gap(
    folder: Path,
) -> None:
    first = Daemon(folder, actor())
    token = first.op("token.new", name="ada", scopes=["read", "admin"])["token"]
    with gateway(first.socket) as server:
        found(server, token)
        said = {"token": token, "Accept": "text/event-stream"}
        with server.client() as client:
            client.send("GET", f"{EVENTS}?since=0", **said)
            response = client.stream()
            numbers = entries(response)
            seen = [next(numbers) for _ in range(3)]
            kill(first)
            assert not response.fp.read().endswith(b"0\r\n\r\n")
        with server.client() as client:
            assert client.ask("GET", EVENTS, token=token).status == 503
        with Daemon(folder, actor()) as second:
            second.invoke("m", "echo")
            found(server, token)
            last = second.op("events", last=1)["last_seq"]
            with server.client() as client:
                client.send("GET", EVENTS, **said, Last_Event_ID=str(seen[-1]))
                numbers = entries(client.stream())
                while seen[-1] < last:
                    seen.append(next(numbers))
    assert seen == list(range(seen[0], last + 1))


def rpc(client: HttpClient, method: str, params: dict[str, Any], **more: str) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.ask("POST", "/mcp", body, Accept="application/json", **more)


def test_an_mcp_session_outlives_the_daemon(folder: Path) -> None:
    echo = actor(inputs={"echo": {}})
    first = Daemon(folder, echo)
    token = first.op("token.new", name="ada", scopes=["read", "invoke"])["token"]
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}}
    call = {"name": "m_echo", "arguments": {"a": 1}}
    with gateway(first.socket) as server:
        found(server, token)
        with server.client() as client:
            begun = rpc(client, "initialize", greeting, token=token)
            session = {"Mcp_Session_Id": begun.headers["mcp-session-id"], "token": token}
            named = rpc(client, "tools/list", {}, **session).json["result"]["tools"][0]["name"]
            call["name"] = named
            assert rpc(client, "tools/call", call, **session).json["result"]["structuredContent"]
            kill(first)
            assert rpc(client, "tools/call", call, **session).status == 503
        with Daemon(folder, echo):
            found(server, token)
            with server.client() as client:
                again = rpc(client, "tools/call", call, **session)
                assert json.loads(again.body)["result"]["structuredContent"] == {"a": 1}
