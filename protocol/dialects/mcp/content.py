"""The outcome of an answer: its result or failure, and the files that it carries.

Structured content is the result; without it the answer is, as it came. Binary content becomes an
asset in the same place, in structured content too: `data` and `blob` give way to `assetId`, so that
nothing is held twice. Text that is no base64 stays as it came. A link stays a link.
"""

from __future__ import annotations

import re
import string
from typing import Any
from urllib.parse import unquote

from msgspec import UNSET

from protocol.assets import is_media_type
from protocol.connection import EventReceived, Notice, Received, Warned
from protocol.dialects.mcp.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import AssetBytes
from protocol.mcp_server.mending import as_list

UNKNOWN_TYPE = "application/octet-stream"

FILES = 256
"""Per answer (`kernel.assets.spool.SPOOLS_WHOLE`); further files stay where they are."""

DEPTH = 64
"""Of structured content; what is deeper stays as it came."""

SHARED_CHARS = 64
"""A shorter text in structured content may equal data by chance."""

MESSAGE_CHARS = 4_000
"""Of a tool's error text; the whole stands in `details`."""


class Unpacking:
    def __init__(self, request_id: str) -> None:
        self.events: list[Received] = []
        self._request_id = request_id
        self._count = 0
        self._assets: dict[str, str] = {}
        """Asset ids by the base64 that they replace."""

    def result(self, method: str, result: dict[str, Any]) -> Outcome:
        """Return the outcome of an answer to a method; a null is an absent member."""
        result = {key: one for key, one in _present(result).items() if key != "resultType"}
        if method == "tools/call":
            return self._tool_result(result)
        if method == "resources/read" and "contents" in result:
            result["contents"] = [self._resource(one) for one in as_list(result["contents"])]
        if method == "prompts/get" and "messages" in result:
            messages = map(self._messages, as_list(result["messages"]))
            result["messages"] = [one for each in messages for one in each]
        return Success(result)

    def _tool_result(self, result: dict[str, Any]) -> Outcome:
        if "toolResult" in result and "content" not in result:  # as before 2024-11-05
            inner = result["toolResult"]
            result = _present(inner) if isinstance(inner, dict) else {"content": inner}
        failed = result.get("isError", False) is not False
        if failed or "content" in result or not result.keys() - {"_meta", "isError"}:
            result["content"] = [self._block(one) for one in as_list(result.get("content"))]
        if failed:
            result["isError"] = True
            texts = (one.get("text") for one in result["content"] if isinstance(one, dict))
            words = "\n".join(one for one in texts if isinstance(one, str))[:MESSAGE_CHARS]
            return Failure.reported(
                Code.INTERNAL,
                words or "the tool failed and does not say why",
                result,
                reason=str(Reason.REPORTED),
            )
        if "structuredContent" in result:
            return Success(self._shared(result["structuredContent"]), whole=result)
        return Success(result, whole=result if "content" in result else None)

    def _shared(self, value: Any, depth: int = 0) -> Any:
        """Return structured content with assets in the place of their base64."""
        if not self._assets or depth > DEPTH:
            return value
        if isinstance(value, list):
            return [self._shared(one, depth + 1) for one in value]
        if isinstance(value, str) and len(value) >= SHARED_CHARS and value in self._assets:
            return {"assetId": self._assets[value]}
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for key, one in value.items():
            if key in ("data", "blob") and isinstance(one, str) and one in self._assets:
                found["assetId"] = self._assets[one]
            else:
                found[key] = self._shared(one, depth + 1)
        return found

    def _messages(self, message: Any) -> list[Any]:
        """Return a message for each block of a message: MCP has one block per message."""
        said = message if isinstance(message, dict) else {"content": message}
        return [{**said, "content": self._block(one)} for one in as_list(said.get("content"))]

    def _block(self, block: Any) -> Any:
        block = _present(block)
        match block:
            case str(text):
                return {"type": "text", "text": text}
            case {"type": "image" | "audio" as sort, "data": str(data)}:
                return self._unpacked(block, "data", data, sort)
            case {"type": "resource", "resource": resource}:
                return {**block, "resource": self._resource(resource)}
        return block

    def _resource(self, resource: Any) -> Any:
        resource = _present(resource)
        if isinstance(resource, dict) and isinstance(resource.get("blob"), str):
            return self._unpacked(resource, "blob", resource["blob"], "file")
        return resource

    def _unpacked(self, holder: dict[str, Any], field: str, data: str, sort: str) -> dict[str, Any]:
        holder = {key: value for key, value in holder.items() if key != "assetId"}
        self._count += 1
        named = f"{sort}-{self._count}"
        of_url = _DATA_URL.match(data)
        said = "" if of_url is None else of_url[1]
        plain = plain_base64(data if of_url is None else unquote(data[of_url.end() :]))
        if plain is None or self._count > FILES:
            words = "its data is not base64" if plain is None else f"an answer has {FILES} at most"
            notice = f"asset {named!r}: {words}; it stays in the answer as it came"
            self.events.append(Warned(self._request_id, Notice("asset_not_copied", notice)))
            return holder
        self._assets[data] = self._assets[plain] = named
        media_type = holder.get("mimeType")
        if not isinstance(media_type, str) or not is_media_type(media_type):
            media_type = said if is_media_type(said) else UNKNOWN_TYPE
            if is_media_type(said):
                holder["mimeType"] = said
        uri = holder.get("uri")
        piece = AssetBytes(
            asset_id=named,
            kind=sort,
            media_type=media_type,
            data=plain,
            last=True,
            metadata={"uri": uri} if isinstance(uri, str) else UNSET,
        )
        self.events.append(EventReceived(self._request_id, piece))
        return {
            "assetId" if key == field else key: named if key == field else value
            for key, value in holder.items()
        }


_DATA_URL = re.compile(r"\s*data:([^,]{0,1024}?);base64,", re.IGNORECASE)
"""RFC 2397, with its media type."""
_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_STANDARD = bytes.maketrans(b"-_", b"+/")


def plain_base64(text: str) -> str | None:
    """Return base64 as RFC 4648 4 has it.

    None for other text, or no bytes. White space, the alphabet for URLs and missing padding are
    mended. A right one already takes 4 ms for 15 MB; it is decoded where it is written
    (`AssetBytes`).
    """
    if not text.isascii():
        return None
    raw = text.encode()
    rest = raw.translate(None, _ALPHABET)
    if rest in (b"", b"=", b"==") and raw.endswith(rest) and len(raw) % 4 == 0:
        return text or None
    body = raw.translate(_STANDARD, string.whitespace.encode()).rstrip(b"=")
    if not body or body.translate(None, _ALPHABET) or len(body) % 4 == 1:
        return None
    return (body + b"=" * (-len(body) % 4)).decode()


def _present(value: Any) -> Any:
    """Return an object without its null members."""
    if not isinstance(value, dict):
        return value
    return {key: one for key, one in value.items() if one is not None}


def failure_of(error: RpcError) -> Failure:
    code = {METHOD_NOT_FOUND: Code.UNSUPPORTED_OP, INVALID_PARAMS: Code.BAD_REQUEST}.get(
        error.code, Code.INTERNAL
    )
    reported: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        reported["data"] = error.data
    words = error.message or f"the server answered with the error {error.code}"
    return Failure.reported(code, words[:MESSAGE_CHARS], reported, reason=str(Reason.REPORTED))
