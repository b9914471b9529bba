"""Answers in older revisions: content without a form there becomes words, or is left out.

structured content, and output schemas    that are of no object: from 2026-07-28 on
true and false                            as schemas of a property: from 2026-07-28 on
links to resources in content             from 2025-06-18 on
sound in content                          from 2025-03-26 on
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.dialects.mcp.greeting import MODERN
from protocol.mcp_server.mending import older_definition

_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}

OLDEST_WITH_ALL = max(_SINCE.values())


def result_for(revision: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    if revision == MODERN:
        return result
    if not isinstance(result.get("structuredContent", {}), dict):
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    if revision >= OLDEST_WITH_ALL:
        return result
    content, messages = result.get("content"), result.get("messages")
    if isinstance(content, list):
        result = {**result, "content": [_block(revision, one) for one in content]}
    if isinstance(messages, list):
        result = {**result, "messages": [_message(revision, one) for one in messages]}
    return result


def definition_for(revision: str, definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition, mended before, in the form of a revision."""
    return definition if revision == MODERN else older_definition(definition)


def _message(revision: str, message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {**message, "content": _block(revision, message.get("content"))}


def _block(revision: str, block: Any) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in _SINCE or revision >= _SINCE[kind]:
        return block
    named = block.get("uri") or block.get("mimeType") or "of no type"
    words = f"({kind}: {named}; the revision {revision} of MCP has no form for it)"
    return {"type": "text", "text": words}
