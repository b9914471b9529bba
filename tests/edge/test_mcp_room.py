"""What MCP clients cause a gateway to hold between their requests: it is theirs, and bounded."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.edge.http import mcp_servers, sse
from supervisor.faces.admission import CLIENTS, OF_ONE_USER
from tests.bounds import until
from tests.edge.gateway import Gateway, HttpClient, Reply, gateway
from tests.edge.test_room import MOST_BYTES, OTHER, served, token
from tests.faces.mcp.clients import modern
from tests.faces.running import PERMISSIVE
from tests.system.daemon import Daemon
from tests.system.descriptors import actor, descriptor

ACCEPT = "application/json, text/event-stream"

PROGRAM = r"""
import json, sys
asking = []
def say(request_id, **fields):
    print(json.dumps({"version": "0", "requestId": request_id, **fields}), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    named = frame.get("requestId")
    match frame.get("operation"), frame.get("input", {}).get("op"):
        case "health", _:
            say(named, type="done", ok=True, result={"status": "ok"})
        case "describe", _:
            ops = dict.fromkeys(["tell", "ask", "answer"], {"type": "object"})
            known = {"name": "long", "version": "1", "kind": "tool", "capabilities": []}
            more = {"inputs": ops, "outputs": {}, "features": ["host_call"]}
            print(json.dumps({"requestId": named, **known, **more}), flush=True)
        case "invoke", "tell":
            say(named, type="ui_event", event="progress", payload={"done": 1})
            say(named, type="done", ok=True, result={"x": "y" * (6 << 20)})
        case "invoke", "ask":
            asking.append(named)
            payload = {"call_id": "c", "method": "roots.list", "params": {}}
            say(named, type="host_call", payload=payload)
        case "invoke", "answer":
            for one in asking:
                say(one, type="done", ok=True, result={"x": "y" * (6 << 20)})
            asking.clear()
            say(named, type="done", ok=True, result={})
        case _:
            print(line, file=sys.stderr, flush=True)
"""

PICTURE = r"""
head -c 15000000 /dev/zero > x
echo '{"version":"0","type":"asset","assetId":"x","kind":"k","mediaType":"image/png","path":"x"}'
echo '{"version":"0","type":"done","ok":true}'
"""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        folder = Path(name)
        (folder / "long.py").write_text(PROGRAM)
        (folder / "policy.toml").write_text(PERMISSIVE)
        long = descriptor("long", [sys.executable, str(folder / "long.py")])
        long |= {"capabilities": ["roots.list"], "supervision": {"concurrency": 64}}
        painter = descriptor("painter", ["sh", "-c", PICTURE], protocol="narratoria")
        options = ("--policy", str(folder / "policy.toml"))
        with Daemon(folder, long, painter, actor(name="n"), options=options) as started:
            yield started


@pytest.fixture
def server(daemon: Daemon) -> Iterator[Gateway]:
    with gateway(daemon.socket) as started:
        until(lambda: served(started, token(daemon, "first")), "the daemon being found")
        yield started


def message(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def begin(client: HttpClient, token: str) -> str:
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}}
    begun = client.ask("POST", "/mcp", message("initialize", greeting), token=token, Accept=ACCEPT)
    return begun.headers["mcp-session-id"]


def assert_served(server: Gateway, daemon: Daemon) -> None:
    """Assert that another principal is served, and memory was bounded."""
    with server.client() as client:
        answer = client.ask("POST", OTHER, {"op": "echo"}, token=token(daemon, "other"))
        assert answer.status == 200
    assert server.most_bytes < MOST_BYTES


@pytest.mark.fault(38)
def test_long_results_that_wait_cost_their_own_principal_alone(
    daemon: Daemon, server: Gateway
) -> None:
    greedy = token(daemon, "greedy")
    call = {"name": "long__tell", "arguments": {}, "_meta": {"progressToken": 1}}
    for _ in range(8):
        with server.client() as client:
            session = begin(client, greedy)
            for _ in range(4):
                answer = client.ask(
                    "POST",
                    "/mcp",
                    message("tools/call", call),
                    token=greedy,
                    Accept=ACCEPT,
                    Mcp_Session_Id=session,
                )
                assert b"stdiod://results/" in answer.body
    assert_served(server, daemon)


@pytest.mark.fault(38)
def test_files_that_are_gathered_cost_their_own_principal_alone(
    daemon: Daemon, server: Gateway
) -> None:
    greedy = token(daemon, "greedy")
    with contextlib.ExitStack() as left:
        client = left.enter_context(server.client())
        session = begin(client, greedy)
        client.ask("POST", "/api/v1/modules/painter/invoke", {"op": "go"}, token=greedy)
        asset = client.ask("GET", "/api/v1/assets", token=greedy).json["assets"][0]["asset"]
        readers = [left.enter_context(server.client()) for _ in range(150)]
        for number, one in enumerate(readers):
            read = {**message("resources/read", {"uri": f"stdiod://assets/{asset}"}), "id": number}
            one.send("POST", "/mcp", read, token=greedy, Accept=ACCEPT, Mcp_Session_Id=session)
        assert_served(server, daemon)
        # How many files are held at a time depends on how fast each is answered.
        assert {one.stream().status for one in readers} <= {200, 404, 503}
    assert server.most_bytes < MOST_BYTES


@pytest.mark.fault(38)
def test_answers_that_are_parked_cost_their_own_principal_alone(
    daemon: Daemon, server: Gateway
) -> None:
    greedy = token(daemon, "greedy")

    def call(client: HttpClient, op: str) -> Reply:
        name = f"long__{op}"
        params = {"name": name, "arguments": {}, "_meta": modern(roots={})}
        told = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": name}
        body = message("tools/call", params)
        return client.ask("POST", "/mcp", body, token=greedy, Accept=ACCEPT, **told)

    with server.client() as client:
        for _ in range(30):
            assert b"input_required" in call(client, "ask").body
        assert call(client, "answer").status in {200, 503}
        assert call(client, "answer").status == 200
    assert_served(server, daemon)


@pytest.mark.fault(38)
@pytest.mark.parametrize("field", ["arguments", "_meta"])
def test_long_params_that_wait_cost_their_own_principal_alone(
    daemon: Daemon, server: Gateway, field: str
) -> None:
    greedy = token(daemon, "greedy")
    call = {"name": "long__ask", "arguments": {}, field: {"x": "y" * (12 << 20)}}
    with contextlib.ExitStack() as left:
        session = begin(left.enter_context(server.client()), greedy)
        waiting = [left.enter_context(server.client()) for _ in range(20)]
        for number, one in enumerate(waiting):
            body = {**message("tools/call", call), "id": number}
            one.send("POST", "/mcp", body, token=greedy, Accept=ACCEPT, Mcp_Session_Id=session)
        if field == "_meta":
            assert waiting[-1].stream().status in {404, 503}
        assert_served(server, daemon)


def test_all_that_has_a_connection_of_its_own_fits_into_the_daemons_places() -> None:
    shared = 1
    own = mcp_servers.ALL_SESSIONS + mcp_servers.CALLERS + sse.MOST
    assert shared + own < CLIENTS * OF_ONE_USER
