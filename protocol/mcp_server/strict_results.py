"""Results as strict clients take them: they refuse all of one for a block that does not fit.

What fits is returned as it is, the same object. Else null and odd optional members are left out,
and content that no client knows is said in a text, as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.mcp_server.mending import (
    Annotations,
    AnyObject,
    Flag,
    Resource,
    Shape,
    Text,
    fits,
    mended,
    mended_resource,
)
from protocol.problem import described

Uri = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9+.-]*:")]
"""One that is relative is refused (pydantic's `AnyUrl`)."""

UNKNOWN_TYPE = "application/octet-stream"


class Block(Shape, tag_field="type"):
    """Content of any type."""

    annotations: Annotations | UnsetType = UNSET
    meta: AnyObject = msgspec.field(default=UNSET, name="_meta")


class TextBlock(Block, tag="text", kw_only=True):
    """Content that is text."""

    text: str


class ImageBlock(Block, tag="image", kw_only=True):
    """Content that is an image."""

    data: str
    mime_type: str


class AudioBlock(Block, tag="audio", kw_only=True):
    """Content that is sound."""

    data: str
    mime_type: str


class LinkBlock(Resource, tag_field="type", tag="resource_link", kw_only=True):
    """A link to a resource."""

    uri: Uri


class Contents(Shape, kw_only=True):
    """The contents of a resource; it has the one or the other."""

    uri: Uri
    text: Text = UNSET
    blob: Text = UNSET
    mime_type: Text = UNSET
    meta: AnyObject = msgspec.field(default=UNSET, name="_meta")


class ResourceBlock(Block, tag="resource", kw_only=True):
    """A resource in content."""

    resource: Contents


AnyBlock = TextBlock | ImageBlock | AudioBlock | LinkBlock | ResourceBlock


class Message(Shape):
    """Of a prompt."""

    role: Literal["user", "assistant"]
    content: AnyBlock


class Meta(Shape):
    """What has a meaning in `_meta` of a result."""

    progress_token: str | int | UnsetType = UNSET
    related_task: AnyObject = msgspec.field(
        default=UNSET, name="io.modelcontextprotocol/related-task"
    )


class Completion(Shape):
    """What can be completed."""

    values: list[str]
    total: int | UnsetType = UNSET
    has_more: Flag = UNSET


class Loose(Shape):
    """What a result may have beside content."""

    description: Text = UNSET
    is_error: Flag = UNSET
    completion: Completion | UnsetType = UNSET
    meta: Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class Strict(Loose):
    """A result that all clients take, but for resources without text and blob."""

    content: list[AnyBlock] | UnsetType = UNSET
    contents: list[Contents] | UnsetType = UNSET
    messages: list[Message] | UnsetType = UNSET


_SHAPES: dict[str, type[Shape]] = {
    "text": TextBlock,
    "image": ImageBlock,
    "audio": AudioBlock,
    "resource_link": LinkBlock,
    "resource": ResourceBlock,
}


def strict_result(result: Mapping[str, Any], uri: object = None) -> Mapping[str, Any]:
    """Return a result that strict clients take; `uri` is what was to be read."""
    try:
        found = msgspec.convert(result, Strict)
    except msgspec.ValidationError:
        found = None
    if found is not None and not _lacks_bodies(found):
        return result
    mending = mended(dict(result), Loose, [])
    for field, strict in (("content", _block), ("contents", _contents), ("messages", _message)):
        if field in mending:
            given = mending[field]
            given = given if isinstance(given, list) else [] if given is None else [given]
            mending[field] = [one for each in given for one in strict(each, str(uri or ""))]
    return mending


def _lacks_bodies(found: Strict) -> bool:
    blocks = found.content or []
    resources = [one.resource for one in blocks if isinstance(one, ResourceBlock)]
    messages = [one.content for one in found.messages or []]
    resources += [one.resource for one in messages if isinstance(one, ResourceBlock)]
    return any(one.text is one.blob is UNSET for one in (*resources, *(found.contents or ())))


def _block(value: Any, uri: str) -> list[Any]:
    if not isinstance(value, dict):
        return [] if value is None else [{"type": "text", "text": _text(value)}]
    block = value if "type" in value or "text" not in value else {"type": "text", **value}
    shape = _SHAPES.get(str(block.get("type")))
    if shape is TextBlock:
        block = {**block, "text": _text(block.get("text"))}
    elif shape is ImageBlock or shape is AudioBlock:
        if not isinstance(block.get("mimeType"), str):
            block = {**block, "mimeType": UNKNOWN_TYPE}
    elif shape is LinkBlock and isinstance(block.get("uri"), str):
        block = mended_resource(block, Resource, [])
    elif shape is ResourceBlock:
        block = {**block, "resource": _contents(block.get("resource"), uri)[0]}
    if shape is not None:
        block = mended(block, shape, [])
        if fits(block, shape):
            return [block]
    return [{"type": "text", "text": _text(value)}]


def _contents(value: Any, uri: str) -> list[Any]:
    if not isinstance(value, dict):
        return [{"uri": uri, "text": _text(value)}]
    named = value.get("uri")
    is_fine = fits(named, Uri) or (isinstance(named, str) and not fits(uri, Uri))
    found = value if is_fine else {**value, "uri": uri}
    if not isinstance(found.get("text"), str) and not isinstance(found.get("blob"), str):
        found = {**found, "text": _text(found.get("text", value))}
    return [mended(found, Contents, [])]


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
