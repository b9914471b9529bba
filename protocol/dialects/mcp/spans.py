"""Attributes of a request for the journal.

OpenTelemetry's names for a client of MCP. https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp.
`mcp.session.id` and `server.address` are of servers over HTTP. The id of the JSON-RPC request is
the entry's `request_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.connection import Request
from protocol.dialects.mcp.catalogue import CALL, OPS
from protocol.errors import Failure, Outcome

VALUE_CHARS = 256
"""Of values that the client chose."""

_CHOSEN = {
    "prompts/get": ("gen_ai.prompt.name", "name"),
    "resources/read": ("mcp.resource.uri", "uri"),
}


def span_attributes(
    description: Mapping[str, Any] | None, request: Request, outcome: Outcome
) -> dict[str, str]:
    said = {} if description is None else description
    named, tools = OPS.get(request.op), said.get("tools", ())
    is_tool = named is None or any(one["name"] == request.op for one in tools)
    method = CALL if named is None or is_tool else named.method
    found = {"mcp.method.name": method, "network.transport": "pipe"}
    if description is not None:
        found["mcp.protocol.version"] = description["mcp"]["revision"]
    if method == CALL:
        found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": request.op}
    elif method in _CHOSEN:
        attribute, arg = _CHOSEN[method]
        found[attribute] = str(request.args.get(arg))
    if isinstance(outcome, Failure):
        reported = outcome.details.get("reported")
        reported = reported if isinstance(reported, dict) else {}
        found["error.type"] = "tool_error" if reported.get("isError") is True else outcome.code
        if type(reported.get("code")) is int:
            found["rpc.response.status_code"] = str(reported["code"])
    return {name: value[:VALUE_CHARS] for name, value in found.items()}
