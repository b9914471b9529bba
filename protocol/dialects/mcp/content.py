"""What an answer comes to: its result, its failure, and the files that it carries.

Structured content is the result; without it the answer is, as it came. Binary content becomes an
asset in the same place: `data` and `blob` give way to `assetId`, so that nothing is held twice. A
link is left a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from protocol.assets import is_media_type
from protocol.connection import EventReceived, Received
from protocol.dialects.mcp.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import AssetBytes
from protocol.problem import kind

UNKNOWN_TYPE = "application/octet-stream"

MESSAGE_CHARS = 4_000
"""Of what a tool says of its failure; the whole stands in `details`."""


class Unpacking:
    """The files that one answer carries."""

    def __init__(self, request_id: str) -> None:
        self.events: list[Received] = []
        self._request_id = request_id
        self._count = 0

    def result(self, method: str, result: dict[str, Any]) -> Outcome:
        """Return what an answer to a method comes to."""
        result = {key: value for key, value in result.items() if key != "resultType"}
        if method == "tools/call":
            return self._tool_result(result)
        if method == "resources/read" and isinstance(result.get("contents"), list):
            result["contents"] = [self._resource(one) for one in result["contents"]]
        if method == "prompts/get" and isinstance(result.get("messages"), list):
            result["messages"] = [self._message(one) for one in result["messages"]]
        return Success(result)

    def _tool_result(self, result: dict[str, Any]) -> Outcome:
        content = result.get("content")
        if isinstance(content, list):
            content = result["content"] = [self._block(one) for one in content]
        elif "structuredContent" not in result:
            words = f"the answer to tools/call has a content that is {kind(content)}, no array"
            return Failure.because(Reason.INVALID_EVENT, words)
        if result.get("isError") is True:
            words = _text(content if isinstance(content, list) else [])
            return Failure.reported(
                Code.INTERNAL,
                words or "the tool failed and does not say why",
                result,
                reason=str(Reason.REPORTED),
            )
        if "structuredContent" in result:
            return Success(result["structuredContent"], whole=result)
        return Success(result, whole=result)

    def _message(self, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        return {**message, "content": self._block(message.get("content"))}

    def _block(self, block: Any) -> Any:
        match block:
            case {"type": "image" | "audio" as sort, "data": str(data)}:
                return self._unpacked(block, "data", data, sort)
            case {"type": "resource", "resource": resource}:
                return {**block, "resource": self._resource(resource)}
        return block

    def _resource(self, resource: Any) -> Any:
        match resource:
            case {"blob": str(blob)}:
                return self._unpacked(resource, "blob", blob, "file")
        return resource

    def _unpacked(self, holder: dict[str, Any], field: str, data: str, sort: str) -> dict[str, Any]:
        self._count += 1
        named = f"{sort}-{self._count}"
        media_type = holder.get("mimeType")
        if not isinstance(media_type, str) or not is_media_type(media_type):
            media_type = UNKNOWN_TYPE
        uri = holder.get("uri")
        piece = AssetBytes(
            asset_id=named,
            kind=sort,
            media_type=media_type,
            data=data,
            last=True,
            metadata={"uri": uri} if isinstance(uri, str) else UNSET,
        )
        self.events.append(EventReceived(self._request_id, piece))
        left = {key: value for key, value in holder.items() if key != "assetId"}
        return {
            "assetId" if key == field else key: named if key == field else value
            for key, value in left.items()
        }


def failure_of(error: RpcError) -> Failure:
    """Return what an error of the server's comes to."""
    code = {METHOD_NOT_FOUND: Code.UNSUPPORTED_OP, INVALID_PARAMS: Code.BAD_REQUEST}.get(
        error.code, Code.INTERNAL
    )
    reported: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        reported["data"] = error.data
    words = error.message or f"the server answered with the error {error.code}"
    return Failure.reported(code, words[:MESSAGE_CHARS], reported, reason=str(Reason.REPORTED))


def _text(content: Iterable[Any]) -> str:
    texts = [one["text"] for one in content if isinstance(one, dict) and _is_text(one)]
    return "\n".join(texts)[:MESSAGE_CHARS]


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)
