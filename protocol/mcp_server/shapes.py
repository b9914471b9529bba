"""The shapes that SDKs check: for one object that does not fit, they refuse its list or result.

A shape names the members that have a type, and allows all others. None of them may be null.
"""

from __future__ import annotations

from datetime import datetime
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


def _shape(name: str, needed: dict[str, Any], tag: str | None = None, **optional: Any) -> Any:
    fields: list[Any] = [*needed.items()]
    fields += [(key, of | UnsetType, UNSET) for key, of in optional.items()]
    tag_field = None if tag is None else "type"
    names = {"schema": "$schema", "related": "io.modelcontextprotocol/related-task"}
    return msgspec.defstruct(name, fields, tag=tag, tag_field=tag_field, rename=names, kw_only=True)


def _list(of: Any) -> Any:
    return GenericAlias(list, (of,))


_META = dict[str, Any]
_MOMENT = Annotated[datetime, msgspec.Meta(tz=True)]
_PART = Annotated[float, msgspec.Meta(ge=0, le=1)]
URI = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9+.-]*:")]
"""An absolute URI: pydantic's `AnyUrl` refuses a relative one."""

# Definitions, but for the names of tools and prompts, and the URIs of resources.

_ICON = _shape("Icon", {"src": str}, mimeType=str, sizes=list[str], theme=Literal["light", "dark"])
_ANNOTATIONS = _shape(
    "Annotations",
    {},
    audience=list[Literal["user", "assistant"]],
    priority=_PART,
    lastModified=_MOMENT,
)
_HINT = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_FLAGS: dict[str, Any] = dict.fromkeys(_HINT, bool)
_HINTS = _shape("Hints", {}, title=str, **_FLAGS)
_EXECUTION = _shape("Execution", {}, taskSupport=Literal["required", "optional", "forbidden"])
_ARGUMENT = _shape("Argument", {"name": str}, title=str, description=str, required=bool)
_ENTRY: dict[str, Any] = {"title": str, "description": str, "icons": _list(_ICON), "_meta": _META}
_TEMPLATE = {**_ENTRY, "mimeType": str, "annotations": _ANNOTATIONS}

TOOL = _shape("Tool", {}, **_ENTRY, annotations=_HINTS, execution=_EXECUTION)
PROMPT = _shape("Prompt", {}, **_ENTRY, arguments=_list(_ARGUMENT))
_RESOURCE = {**_TEMPLATE, "size": int}
TEMPLATE = _shape("Template", {"name": str}, **_TEMPLATE)
RESOURCE = _shape("Resource", {"name": str}, **_RESOURCE)

# The top of a schema of a tool: of args, whatever its type and properties are; of args; and before
# 2026-07-28, where `true` and `false` are no schemas of a property.

_TOP: dict[str, Any] = {"required": list[str], "schema": str}
TOP = _shape("Top", {}, **_TOP, properties=_META)
_OBJECT = {"type": Literal["object"]}
SCHEMA = _shape("Schema", _OBJECT, **_TOP, properties=dict[str, dict[str, Any] | bool])
OLDER_SCHEMA = _shape("OlderSchema", _OBJECT, **_TOP, properties=dict[str, dict[str, Any]])

# Results.

CONTENTS = _shape("Contents", {"uri": URI}, text=str, blob=str, mimeType=str, _meta=_META)
"""The contents of a resource; they also need a `text` or a `blob`."""
_ANY = {"annotations": _ANNOTATIONS, "_meta": _META}
_DATA = {"data": str, "mimeType": str}
BLOCKS = {
    "text": _shape("Text", {"text": str}, "text", **_ANY),
    "image": _shape("Image", _DATA, "image", **_ANY),
    "audio": _shape("Audio", _DATA, "audio", **_ANY),
    "resource": _shape("Embedded", {"resource": CONTENTS}, "resource", **_ANY),
    "resource_link": _shape("Link", {"uri": URI, "name": str}, "resource_link", **_RESOURCE),
}
_BLOCK = (
    BLOCKS["text"]
    | BLOCKS["image"]
    | BLOCKS["audio"]
    | BLOCKS["resource"]
    | BLOCKS["resource_link"]
)
_MESSAGE = _shape("Message", {"role": Literal["user", "assistant"], "content": _BLOCK})
_COMPLETION = _shape("Completion", {"values": list[str]}, total=int, hasMore=bool)
_LOOSE: dict[str, Any] = {
    "description": str,
    "isError": bool,
    "completion": _COMPLETION,
    "_meta": _shape("Meta", {}, progressToken=str | int, related=_META),
}
LOOSE = _shape("Loose", {}, **_LOOSE)
"""A result, whatever its content is."""
RESULT = _shape(
    "Result",
    {},
    **_LOOSE,
    content=_list(_BLOCK),
    contents=_list(CONTENTS),
    messages=_list(_MESSAGE),
)
