"""The lists of a server, and which of its requests are ops of its module (`OPS`)."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.args_schema import ArgsValidator
from protocol.dialects.mcp.vocabulary import SUBSCRIBE, UNSUBSCRIBE
from protocol.mcp_server.mending import PROMPT, RESOURCE, TEMPLATE, TOOL

CALL = "tools/call"

TOOLS = "tools/list"


class ListKind(msgspec.Struct, frozen=True):
    """A list's method and answer; `field` holds the entries, `named_by` their name."""

    capability: str
    field: str
    named_by: str
    told_as: str
    of: Any


LISTS = {
    TOOLS: ListKind("tools", "tools", "name", "tools", TOOL),
    "prompts/list": ListKind("prompts", "prompts", "name", "prompts", PROMPT),
    "resources/list": ListKind("resources", "resources", "uri", "resources", RESOURCE),
    "resources/templates/list": ListKind(
        "resources", "resourceTemplates", "uriTemplate", "resource_templates", TEMPLATE
    ),
}

_TEXT: dict[str, Any] = {"type": "string"}
_CURSOR = {"type": "object", "properties": {"cursor": _TEXT}, "additionalProperties": False}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}


def _taking(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class OpOfServer(msgspec.Struct, frozen=True):
    """An op that is no tool but a request of MCP's own, of the same name."""

    capability: str
    args: dict[str, Any]
    """The schema of its args, which become the params."""
    method: str


OPS = {
    "resources/list": OpOfServer("resources", _CURSOR, "resources/list"),
    "resources/templates": OpOfServer("resources", _CURSOR, "resources/templates/list"),
    "resources/read": OpOfServer("resources", _taking(("uri",), uri=_TEXT), "resources/read"),
    SUBSCRIBE: OpOfServer("resources", _taking(("uri",), uri=_TEXT), SUBSCRIBE),
    UNSUBSCRIBE: OpOfServer("resources", _taking(("uri",), uri=_TEXT), UNSUBSCRIBE),
    "prompts/list": OpOfServer("prompts", _CURSOR, "prompts/list"),
    "prompts/get": OpOfServer(
        "prompts", _taking(("name",), name=_TEXT, arguments=_TEXTS), "prompts/get"
    ),
    "completion/complete": OpOfServer(
        "completions",
        _taking(
            ("ref", "argument"),
            ref={
                "anyOf": [
                    _taking(("type", "name"), type={"const": "ref/prompt"}, name=_TEXT),
                    _taking(("type", "uri"), type={"const": "ref/resource"}, uri=_TEXT),
                ]
            },
            argument=_taking(("name", "value"), name=_TEXT, value=_TEXT),
            context=_taking((), arguments=_TEXTS),
        ),
        "completion/complete",
    ),
}
"""Hidden by a tool of the same name."""

CHANGED = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}

ARGS = ArgsValidator({op: one.args for op, one in OPS.items()})


def op_of_server(op: str, capabilities: dict[str, Any]) -> OpOfServer | None:
    """Return the request of MCP that an op names, if the server offers it."""
    found = OPS.get(op)
    if found is None or found.capability not in capabilities:
        return None
    if op in (SUBSCRIBE, UNSUBSCRIBE):
        offered = capabilities["resources"]
        if not isinstance(offered, dict) or offered.get("subscribe") is not True:
            return None
    return found
