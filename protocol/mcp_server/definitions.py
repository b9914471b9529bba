"""The definitions for a client: a module's own ones, or those made of its ops.

The definition of a tool, by an MCP server or a module's `describe`, stays as it is, but for the
name, for a missing description, and for members that strict clients refuse (`mending`). An op with
nothing but `inputs` becomes a tool by that. Entries that make no sense are left out: no client
could call them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from protocol.dialects.mcp.catalogue import EXTRAS, LISTS, OPS
from protocol.mcp_server.mending import TOOL, strict_definition

PROMPTS, RESOURCES, TEMPLATES = "prompts", "resources", "resource_templates"
_KINDS = {one.told_as: one for one in LISTS.values()}

_EXPRESSION = re.compile(r"\{[^{}]*\}")


class Tool(msgspec.Struct, frozen=True):
    """An op of a module, and its definition without the name."""

    op: str
    definition: Mapping[str, Any]


def tools_of(said: Mapping[str, Any], summary: str | None) -> Iterator[Tool]:
    """Yield the tools of a module's description `said`; `summary` is its descriptor's."""
    inputs, outputs = _object(said, "inputs"), _object(said, "outputs")
    defined = {one["name"]: one for one in _entries(said, "tools", "name")}
    is_more = any(name in said for name in ("mcp", PROMPTS, RESOURCES, TEMPLATES))
    own = frozenset(OPS) if is_more else frozenset()
    for op in dict.fromkeys([*defined, *inputs]):
        if op in defined:
            definition = defined[op]
            if not isinstance(definition.get("inputSchema"), dict):
                definition = {**definition, "inputSchema": inputs.get(op)}
            yield Tool(op, _described(strict_definition(definition, TOOL), op, summary))
        elif op not in own:
            made = _made(op, inputs[op], outputs.get(op), summary)
            yield Tool(op, strict_definition(made, TOOL))


def _described(definition: dict[str, Any], op: str, summary: str | None) -> dict[str, Any]:
    text = definition.get("description")
    if isinstance(text, str) and text:
        return definition
    return {**definition, "description": _words(op, summary)}


def _made(op: str, schema: Any, output: Any, summary: str | None) -> dict[str, Any]:
    text = schema.get("description") if isinstance(schema, dict) else None
    words = text if isinstance(text, str) and text else _words(op, summary)
    made: dict[str, Any] = {"description": words, "inputSchema": schema}
    if isinstance(output, dict) and output.get("type") == "object":
        made["outputSchema"] = output
    return made


def _words(op: str, summary: str | None) -> str:
    return f"{op}: {summary}" if summary else op


def entries_of(said: Mapping[str, Any], field: str) -> Iterator[dict[str, Any]]:
    kind = _KINDS[field]
    return (strict_definition(one, kind.of) for one in _entries(said, field, kind.named_by))


def unlisted_of(said: Mapping[str, Any]) -> dict[str, str]:
    """Return why lists of a hosted server could not be fetched, by `tools`, `PROMPTS` and so on."""
    found = _object(_object(said, "mcp"), "unlisted")
    return {field: why for field, why in found.items() if isinstance(why, str)}


def extras_of(said: Mapping[str, Any]) -> dict[str, Any]:
    capabilities = _object(_object(said, "mcp"), "capabilities")
    found = {field: capabilities.get(field) for field in EXTRAS}
    return {field: value for field, value in found.items() if isinstance(value, dict)}


def offers(said: Mapping[str, Any], op: str) -> bool:
    return op in _object(said, "inputs")


def matches(template: str, uri: str) -> bool:
    """Tell whether a URI can match a template (RFC 6570); a yes may be wrong, a no never is.

    Each expression stands for any characters, so that one pass is enough for any template.
    """
    head, *parts = _EXPRESSION.split(template)
    if not parts:
        return uri == head
    *inner, last = parts
    if not uri.startswith(head) or len(uri) < len(head) + len(last) or not uri.endswith(last):
        return False
    at, end = len(head), len(uri) - len(last)
    for part in inner:
        found = uri.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _entries(said: Mapping[str, Any], field: str, named_by: str) -> list[dict[str, Any]]:
    entries = said.get(field)
    if not isinstance(entries, list):
        return []
    return [
        one
        for one in entries
        if isinstance(one, dict) and isinstance(one.get(named_by), str) and one[named_by]
    ]


def _object(said: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = said.get(field)
    return value if isinstance(value, dict) else {}
