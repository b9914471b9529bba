"""The MCP server with a daemon that is there."""

from __future__ import annotations

from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, tool


def test_from_the_handshake_to_a_call() -> None:
    bridge = Bridge(ScriptedDaemon(offer("dice", tool("roll"))))
    assert bridge.initialize()["protocolVersion"] == "2025-11-25"
    (listed,) = bridge.result("tools/list")["tools"]
    assert listed["name"] == "dice__roll"
    asked = bridge.ask("tools/call", {"name": "dice__roll", "arguments": {"sides": 6}})
    assert bridge.daemon is not None
    call = bridge.daemon.call()
    assert (call["tool"], call["input"]) == ("dice", {"op": "roll", "args": {"sides": 6}})
    bridge.daemon.done(call, {"total": 4})
    bridge.turn()
    assert bridge.answer(asked)["result"]["structuredContent"] == {"total": 4}
