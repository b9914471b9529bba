"""A response for an MCP client: a result, an `isError`, or an error of the protocol.

- An error that a tool reports, and the failure of a call (a crash, a deadline, args that its schema
  refuses), is a result with `isError`: the model reads it. The host's evidence is in `_meta`.
- An unknown tool, and the server's own JSON-RPC errors, are errors of the protocol.
- A hosted server's result stays as it is, and so does one of a module with good content. Any other
  becomes text, and structured content too if it is an object.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from protocol.errors import Failure, Origin, Reason, Success
from protocol.frames import encode
from protocol.host_events import RegisteredAsset
from protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RpcError,
)
from protocol.mcp_server.client import McpRequestError
from protocol.mcp_server.daemon_link import RequestEnd, fields_of
from protocol.mcp_server.request import ClientRequest

ERROR_META = "stdiod/error"
"""The key in `_meta` of a failed call for its code and evidence."""

FILE_BYTES = 16 << 20
"""The longest file in an answer, and all files of one answer together."""

ASSET_SCHEME = "stdiod://assets/"
"""The prefix of an asset's URI; the daemon's id of the asset follows."""

RESULT_SCHEME = "stdiod://results/"
"""The prefix of the URI of a result that was too long for an event of a stream."""


def renamed_contents(result: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return contents that were read, with the client's prefix before the URIs of the module."""
    found = dict(result)
    if prefix and isinstance(found.get("contents"), list):
        found["contents"] = [
            {**one, "uri": prefix + one["uri"]}
            if isinstance(one, dict) and isinstance(one.get("uri"), str)
            else one
            for one in found["contents"]
        ]
    return found


def tool_result(
    outcome: Success | Failure, assets: Sequence[RegisteredAsset], *, structured: bool
) -> dict[str, Any]:
    """Return the result of a tool call; `structured` if the tool announces an output schema.

    Embedded assets are still to be put in (`embedded`); the others are linked. Raises
    `McpRequestError` for a JSON-RPC error of a hosted server.
    """
    if isinstance(outcome, Failure):
        result = _failed(outcome)
    else:
        result = _succeeded(outcome, structured=structured)
    inside = {holder["assetId"] for holder, _ in embedded(result)}
    links = [_link(one) for one in assets if one.asset_id not in inside]
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return result if blocks is content and not links else {**result, "content": [*blocks, *links]}


def _succeeded(outcome: Success, *, structured: bool) -> dict[str, Any]:
    if outcome.whole is not None:
        return outcome.whole
    value = outcome.result
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(content, list) and all(map(_is_block, content)):
        return value
    if value is None:
        return {"content": [_text(outcome.summary)] if outcome.summary else []}
    text = value if isinstance(value, str) else encode(value).decode()
    found: dict[str, Any] = {"content": [_text(text)]}
    if isinstance(value, dict) or structured:
        found["structuredContent"] = value
    return found


def _is_block(block: object) -> bool:
    """Tell whether a value is content of MCP; an asset may stand for the bytes."""
    match block:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image" | "audio", "mimeType": str(), **more}:
            return any(isinstance(more.get(one), str) for one in ("data", "assetId"))
        case {"type": "resource", "resource": {"uri": str(), **more}}:
            return any(isinstance(more.get(one), str) for one in ("text", "blob", "assetId"))
        case {"type": "resource_link", "uri": str(), "name": str()}:
            return True
    return False


def _failed(failure: Failure) -> dict[str, Any]:
    error = servers_own_error(failure)
    if error is not None:
        raise McpRequestError(error)
    reported = _reported(failure)
    if reported.get("isError") is True:
        return reported
    words = failure.message
    tail = failure.details.get("stderr_tail")
    if isinstance(tail, list) and tail:
        words += "\n" + "\n".join(map(str, tail))
    known = {"code": failure.code, "message": failure.message, "details": failure.details}
    return {"content": [_text(words)], "isError": True, "_meta": {ERROR_META: known}}


def _reported(failure: Failure) -> dict[str, Any]:
    """Return the error that the module itself reported; nothing if the failure is the host's."""
    found = failure.details.get("reported")
    if failure.details.get("origin") != Origin.MODULE or not isinstance(found, dict):
        return {}
    return found


def servers_own_error(failure: Failure) -> RpcError | None:
    """Return the JSON-RPC error with which a hosted server answered, if any."""
    reported = _reported(failure)
    code = reported.get("code")
    if not isinstance(code, int):
        return None
    return RpcError(code, failure.message, reported.get("data"))


def own_error(failure: Failure, uri: str | None = None) -> RpcError:
    """Return the error of a request that is no tool call; `uri` is the one to be read."""
    found = servers_own_error(failure)
    if found is not None:
        return found
    reason = failure.details.get("reason")
    code = _CODES.get(str(reason), INTERNAL_ERROR)
    data: dict[str, Any] = {"code": failure.code, "details": failure.details}
    return RpcError(code, failure.message, data if uri is None else {**data, "uri": uri})


_CODES: dict[str, int] = {
    Reason.INVALID_ARGS: INVALID_PARAMS,
    Reason.UNKNOWN_ASSET: INVALID_PARAMS,
    Reason.UNKNOWN_OP: METHOD_NOT_FOUND,
}


def _link(asset: RegisteredAsset) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": f"{ASSET_SCHEME}{asset.registered.id}",
        "name": asset.asset_id,
        "mimeType": asset.media_type,
        "size": asset.registered.bytes,
    }


def _text(text: str | None) -> dict[str, Any]:
    return {"type": "text", "text": text or ""}


# --- Files -------------------------------------------------------------------


def embedded(result: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the objects in a result whose `assetId` stands for bytes, and the field for those.

    They are in content, contents, and messages; the dialect has taken the bytes out.
    """
    places: list[tuple[dict[str, Any], str]] = []
    for name in ("content", "contents", "messages"):
        entries = result.get(name)
        for entry in entries if isinstance(entries, list) else ():
            is_message = name == "messages" and isinstance(entry, dict)
            block: Any = entry.get("content") if is_message else entry
            match block:
                case {"type": "image" | "audio", "assetId": str()} as holder:
                    places.append((holder, "data"))
                case {"type": "resource", "resource": {"assetId": str()} as holder}:
                    places.append((holder, "blob"))
                case {"assetId": str()} as holder if name == "contents":
                    places.append((holder, "blob"))
    return [(holder, field) for holder, field in places if field not in holder]


def embed(holder: dict[str, Any], field: str, data: bytes) -> None:
    """Put bytes where their `assetId` stood: an answer is as the server wrote it."""
    members = dict(holder)
    holder.clear()
    for key, value in members.items():
        if key == "assetId":
            holder[field] = base64.b64encode(data).decode()
        else:
            holder[key] = value


async def read_file(request: ClientRequest, asset: str) -> tuple[str, bytes] | Failure:
    """Return the media type and the bytes of an asset's file, by the daemon's id of the asset."""
    media_type, data = "", bytearray()
    with request.server.daemon.read("asset.content", {"asset": asset}) as reading:
        while not isinstance(event := await reading.next(), RequestEnd):
            fields = fields_of(event)
            if "data" in fields:
                piece = base64.b64decode(fields["data"])
                data += piece
                request.gather(len(piece))
            elif "size" in fields:  # the first event, or that of another daemon
                request.gather(-len(data))
                media_type, data = fields["media_type"], bytearray()
            if fields.get("size", 0) > FILE_BYTES:
                words = f"it has {fields['size']} bytes, and an answer takes {FILE_BYTES};"
                words += f" `stdiod asset open {fields['asset']}` and HTTP have no such limit"
                return Failure.because(Reason.LIMIT_REACHED, words)
    return event.outcome if isinstance(event.outcome, Failure) else (media_type, bytes(data))


async def filled(
    request: ClientRequest, result: dict[str, Any], assets: Mapping[str, RegisteredAsset]
) -> dict[str, Any]:
    """Return a result with the bytes of the files that it embeds.

    Where bytes are missing, `_meta` says why: the form allows an empty file.
    """
    size = 0
    for holder, field in embedded(result):
        data, why = b"", None
        asset = assets.get(holder["assetId"])
        if asset is None:
            why = "the file was not taken in"
        elif size + asset.registered.bytes > FILE_BYTES:
            why = f"the files of an answer take at most {FILE_BYTES} bytes"
        else:
            size += asset.registered.bytes
            file = await read_file(request, asset.registered.id)
            if isinstance(file, Failure):
                why = file.message
            else:
                data = file[1]
        embed(holder, field, data)
        if why is not None:
            meta = holder.get("_meta")
            meta = meta if isinstance(meta, dict) else {}
            holder["_meta"] = {**meta, ERROR_META: {"message": why}}
    return result


def is_text(media_type: str) -> bool:
    """Tell whether the bytes of a media type are put in as text."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in ("application/json", "application/xml")


def contents(uri: str, media_type: str, data: bytes) -> dict[str, Any]:
    if is_text(media_type):
        try:
            return {"uri": uri, "mimeType": media_type, "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"uri": uri, "mimeType": media_type, "blob": base64.b64encode(data).decode()}
