"""Results as strict clients take them: one odd member costs itself, and not the result.

What fits is returned as it is, the same object. Else null and odd optional members are left out,
and content that no client knows is said in a text, as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.mcp_server.mending import fits, mended, mended_resource
from protocol.mcp_server.shapes import BLOCKS, CONTENTS, LOOSE, RESOURCE, RESULT, URI
from protocol.problem import described

UNKNOWN_TYPE = "application/octet-stream"


def strict_result(result: Mapping[str, Any], uri: object = None) -> Mapping[str, Any]:
    """Return a result that strict clients take; `uri` is what was to be read."""
    try:
        if not _lacks_bodies(msgspec.convert(result, RESULT)):
            return result
    except msgspec.ValidationError:
        pass
    mending = mended(dict(result), LOOSE, [])
    for field, strict in (("content", _block), ("contents", _contents), ("messages", _message)):
        if field in mending:
            given = mending[field]
            given = given if isinstance(given, list) else [] if given is None else [given]
            mending[field] = [one for each in given for one in strict(each, str(uri or ""))]
    return mending


def _lacks_bodies(found: Any) -> bool:
    blocks = [*(found.content or ()), *(one.content for one in found.messages or ())]
    embedded = (one.resource for one in blocks if isinstance(one, BLOCKS["resource"]))
    return any(one.text is one.blob is UNSET for one in (*embedded, *(found.contents or ())))


def _block(value: Any, uri: str) -> list[Any]:
    if not isinstance(value, dict):
        return [] if value is None else [{"type": "text", "text": _text(value)}]
    block = value if "type" in value or "text" not in value else {"type": "text", **value}
    match block.get("type"):
        case "text":
            block = {**block, "text": _text(block.get("text"))}
        case "image" | "audio" if not isinstance(block.get("mimeType"), str):
            block = {**block, "mimeType": UNKNOWN_TYPE}
        case "resource_link":
            block = mended_resource(block, RESOURCE, [])
        case "resource":
            block = {**block, "resource": _contents(block.get("resource"), uri)[0]}
    shape = BLOCKS.get(str(block.get("type")))
    if shape is not None:
        block = mended(block, shape, [])
        if fits(block, shape):
            return [block]
    return [{"type": "text", "text": _text(value)}]


def _contents(value: Any, uri: str) -> list[Any]:
    if not isinstance(value, dict):
        return [{"uri": uri, "text": _text(value)}]
    named = value.get("uri")
    is_fine = fits(named, URI) or (isinstance(named, str) and not fits(uri, URI))
    found = value if is_fine else {**value, "uri": uri}
    if not isinstance(found.get("text"), str) and not isinstance(found.get("blob"), str):
        found = {**found, "text": _text(found.get("text", value))}
    return [mended(found, CONTENTS, [])]


def _message(value: Any, uri: str) -> list[Any]:
    message = value if isinstance(value, dict) else {"content": value}
    role, content = message.get("role"), message.get("content")
    role = "assistant" if role == "assistant" else "user"
    blocks = content if isinstance(content, list) else [content]
    return [
        {**message, "role": role, "content": block}
        for each in blocks
        for block in _block(each, uri)
    ]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else encode(value).decode()
    except UNENCODABLE:
        return described(value)
