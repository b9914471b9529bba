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
from urllib.parse import quote, unquote

import msgspec

from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RpcError,
)
from protocol.errors import Failure, Origin, Reason, Success
from protocol.frames import encode
from protocol.host_events import RegisteredAsset
from protocol.mcp_server.names import Op

ERROR_META = "stdiod/error"
"""The key in `_meta` of a failed call for its code and evidence."""

ASSET_SCHEME = "stdiod://assets/"
"""The prefix of an asset's URI; the daemon's id of the asset follows."""


OWN_SCHEME = "stdiod://"
"""The scheme of the daemon's own URIs; a module's resource with this scheme is renamed."""


def uri_of_module(module: str, uri: str) -> str:
    """Return a URI for a module's resource that no other module has.

    The module's own URI stands in it unchanged, so that clients can fill in a template.
    """
    return f"{OWN_SCHEME}modules/{quote(module, safe='')}/{uri}"


def module_of_uri(uri: str) -> Op | None:
    """Return the module and its own URI that a URI was made of, if it was."""
    head, _, rest = uri.partition(f"{OWN_SCHEME}modules/")
    module, slash, own = rest.partition("/")
    return (unquote(module), own) if slash and not head else None


def own_uri(uri: str) -> str:
    of_module = module_of_uri(uri)
    return uri if of_module is None else of_module[1]


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


class EmbeddedAsset(msgspec.Struct):
    """A place in a result for the bytes of a file, which the dialect took out."""

    holder: dict[str, Any]
    field: str
    asset_id: str

    def put(self, data: bytes) -> None:
        self._replace(base64.b64encode(data).decode())

    def leave_out(self, why: str) -> None:
        """Say why the bytes are missing; the form allows an empty file."""
        self._replace("")
        said = self.holder.get("_meta")
        meta = said if isinstance(said, dict) else {}
        self.holder["_meta"] = {**meta, ERROR_META: {"message": why}}

    def _replace(self, encoded: str) -> None:
        # Where it stood: an answer is as the server wrote it.
        members = {
            self.field if key == "assetId" else key: encoded if key == "assetId" else value
            for key, value in self.holder.items()
        }
        self.holder.clear()
        self.holder.update(members)


def tool_result(
    outcome: Success | Failure, assets: Sequence[RegisteredAsset], *, structured: bool
) -> dict[str, Any] | RpcError:
    """Return the result of a tool call; `structured` if the tool announces an output schema.

    Embedded assets are still to be put in (`embedded`); the others are linked.
    """
    if isinstance(outcome, Failure):
        found = _failed(outcome)
    else:
        found = _succeeded(outcome, structured=structured)
    if isinstance(found, RpcError):
        return found
    inside = {one.asset_id for one in embedded(found)}
    links = [_link(one) for one in assets if one.asset_id not in inside]
    content = found.get("content")
    blocks = content if isinstance(content, list) else []
    return found if blocks is content and not links else {**found, "content": [*blocks, *links]}


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


def _failed(failure: Failure) -> dict[str, Any] | RpcError:
    error = servers_own_error(failure)
    if error is not None:
        return error
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


def linked(
    result: Mapping[str, Any], uri: str, size_bytes: int, *, has_schema: bool
) -> dict[str, Any]:
    """Return a link in place of a result that can be read at a URI.

    If an output schema demands structured content, the link has to be an error.
    """
    words = f"The result has {size_bytes} bytes. It is not here but in {uri}, for a while."
    link = {"type": "resource_link", "uri": uri, "name": "result", "size": size_bytes}
    found = {key: value for key, value in result.items() if key != "structuredContent"}
    found["content"] = [_text(words), {**link, "mimeType": "application/json"}]
    return {**found, "isError": True} if has_schema else found


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


def embedded(result: Mapping[str, Any]) -> list[EmbeddedAsset]:
    """Return the places for bytes: in content, contents, and messages."""
    places = []
    for field in ("content", "contents", "messages"):
        entries = result.get(field)
        for one in entries if isinstance(entries, list) else ():
            is_message = field == "messages" and isinstance(one, dict)
            block: Any = one.get("content") if is_message else one
            match block:
                case {"type": "image" | "audio", "assetId": str(named)} as holder:
                    places.append(EmbeddedAsset(holder, "data", named))
                case {"type": "resource", "resource": {"assetId": str(named)} as holder}:
                    places.append(EmbeddedAsset(holder, "blob", named))
                case {"assetId": str(named)} as holder if field == "contents":
                    places.append(EmbeddedAsset(holder, "blob", named))
    return [one for one in places if one.field not in one.holder]


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
