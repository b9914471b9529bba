"""The client of an MCP server: who it is by each of its messages, and the lines for it.

A client of the newer era states its version in each request; one of the older era once, in
`initialize`. So one endpoint serves both: a request with a version in its `_meta` or its headers,
or with a method of the newer era only, belongs to that era (`client_of`).

Over HTTP, headers repeat parts of the body for routers. One that contradicts the body is refused:
else one party would believe the header, and another the body. A value that a header cannot hold is
written as `=?base64?...?=`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from protocol.dialects.mcp.vocabulary import (
    BATCH,
    BATCHES,
    DISCOVER,
    INITIALIZE,
    LEGACY,
    LISTEN,
    META,
    MODERN,
    Era,
)
from protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcCall,
    RpcError,
)
from protocol.problem import described, kind, quoted

REVISIONS = (MODERN, *LEGACY)

UNSUPPORTED_VERSION = -32022
MISSING_CAPABILITY = -32021
HEADER_MISMATCH = -32020

VERSION, METHOD, NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
SESSION = "mcp-session-id"

PARAM = "mcp-param-"
MARK = "x-mcp-header"
"""The key in an arg's schema with the rest of the name of the header that repeats the arg."""

Headers = Mapping[str, str]
"""By lower-case name."""

SSE = "text/event-stream"

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The log levels that a client may choose as the least, in order."""

_LEVEL_OF = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
"""The MCP level of each level of Spec 001."""

_VERSION, _CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"


class McpRequestError(Exception):
    """A request is refused, with this error."""

    def __init__(self, error: RpcError) -> None:
        super().__init__(error.message)
        self.error = error


def refused(code: int, words: str, data: Any = None) -> McpRequestError:
    return McpRequestError(RpcError(code, words, data))


class McpClient(msgspec.Struct, frozen=True):
    era: Era
    revision: str
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    """The least level that the client gets; None for no logs."""

    @property
    def is_modern(self) -> bool:
        return self.era is Era.MODERN

    def wants(self, level: str) -> str | None:
        """Return the MCP level of a log, None if the client does not want it."""
        said = _LEVEL_OF[level]
        if self.log_level is None or LEVELS.index(said) < LEVELS.index(self.log_level):
            return None
        return said


BEFORE_INITIALIZE = McpClient(Era.LEGACY, LEGACY[0], {})
"""A client of the older era that pings before it says who it is."""


def client_of(call: RpcCall, headers: Headers | None, known: McpClient | None) -> McpClient:
    """Return the client of a request; raises `McpRequestError`.

    `headers` are those of HTTP, and `known` is the client that has said `initialize` before.
    """
    said = None if headers is None else headers.get(VERSION)
    if is_modern(call, headers):
        meta = call.params.get("_meta")
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        if headers is not None and isinstance(version, str):
            check_headers(headers, call.method, call.params, version)
        return modern_client(call.params)
    if said is not None and said not in LEGACY:
        raise unsupported(said)
    if call.method == INITIALIZE:
        if known is not None:
            raise refused(INVALID_REQUEST, f'"{INITIALIZE}" was said before')
        return legacy_client(call.params)
    if known is None and call.method == "ping":
        return BEFORE_INITIALIZE
    if known is None:
        words = f'"{INITIALIZE}" comes first, or each request says "{_VERSION}" in its _meta'
        raise refused(INVALID_REQUEST, words)
    return known


def is_modern(call: RpcCall, headers: Headers | None) -> bool:
    """Tell whether a request is of the newer era."""
    said = None if headers is None else headers.get(VERSION)
    return said == MODERN or says_modern(call.method, call.params)


def says_modern(method: str, params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta")
    return method in (DISCOVER, LISTEN) or (isinstance(meta, dict) and _VERSION in meta)


def modern_client(params: Mapping[str, Any]) -> McpClient:
    """Return the client that a request of the newer era describes; raises `McpRequestError`."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        words = f'the request has no object "_meta" with "{_VERSION}" and "{_CAPABILITIES}"'
        raise refused(INVALID_PARAMS, words)
    for key, wanted, a_kind in (
        (_VERSION, str, "a string"),
        (_CAPABILITIES, dict, "an object"),
    ):
        value = meta.get(key)
        if not isinstance(value, wanted):
            found = f"is {kind(value)}" if key in meta else "is missing"
            raise refused(INVALID_PARAMS, f'"{key}" in _meta {found}, it must be {a_kind}')
    version, level = meta[_VERSION], meta.get(f"{META}logLevel")
    if version != MODERN:
        raise unsupported(version)
    if level is not None and level not in LEVELS:
        words = f"the logLevel {described(level)} is none of {', '.join(LEVELS)}"
        raise refused(INVALID_PARAMS, words)
    return McpClient(Era.MODERN, MODERN, meta[_CAPABILITIES], level)


def legacy_client(params: Mapping[str, Any]) -> McpClient:
    """Return the client that `initialize` describes: at a revision known here, or the newest."""
    version, capabilities = params.get("protocolVersion"), params.get("capabilities")
    if not isinstance(version, str):
        words = f'"protocolVersion" is {described(version)}, it must be a string'
        raise refused(INVALID_PARAMS, words)
    revision = version if version in LEGACY else LEGACY[0]
    said = capabilities if isinstance(capabilities, dict) else {}
    return McpClient(Era.LEGACY, revision, said, "info")


def unsupported(requested: str) -> McpRequestError:
    data = {"supported": list(REVISIONS), "requested": requested}
    words = f"the revision {quoted(requested)} is not spoken here; there are {', '.join(REVISIONS)}"
    return refused(UNSUPPORTED_VERSION, words, data)


# --- Headers -----------------------------------------------------------------


def accepts(headers: Headers, media: str) -> bool:
    """Tell whether a client accepts that type, or any."""
    said = headers.get("accept", "*/*").lower()
    return any(one.partition(";")[0].strip() in (media, "*/*") for one in said.split(","))


_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_WHOLE = re.compile(r"-?[0-9]+(?:\.0+)?")
_DIGITS = 400


def check_headers(headers: Headers, method: str, params: Mapping[str, Any], version: str) -> None:
    """Raise `McpRequestError` unless headers of the newer era match the body."""
    said = {VERSION: version, METHOD: method}
    field = _NAMED_BY.get(method)
    value = params.get(field) if field is not None else None
    if isinstance(value, str):
        said[NAME] = value
    for header, wanted in said.items():
        found = headers.get(header)
        if found is not None:
            found = decoded(found.strip()) if header == NAME else found.strip()
        if found != wanted:
            raise _mismatch(header, "is missing, or says something else than the body")


def check_param_headers(
    schema: Mapping[str, Any], args: Mapping[str, Any], headers: Headers
) -> None:
    """Raise `McpRequestError` unless the headers that repeat args match them."""
    for path, name, kind_of_arg, value in _repeated(schema, args):
        header = f"{PARAM}{name.lower()}"
        said, shown = headers.get(header), _shown(value)
        if shown is None:
            if said is not None:
                raise _mismatch(header, f"is there, and {path} is not in the body")
            continue
        if said is None:
            raise _mismatch(header, f"is missing, and {path} is in the body")
        meant = decoded(said.strip())
        if meant is None:
            raise _mismatch(header, "is not base64 of UTF-8")
        if meant != shown and not (kind_of_arg == "integer" and _same_number(meant, value)):
            raise _mismatch(header, f"says something else than {path} in the body")


def decoded(value: str) -> str | None:
    """Return the value of a header; None for bad base64."""
    found = _ENCODED.fullmatch(value)
    if found is None:
        return value
    try:
        data = base64.b64decode(found[1], validate=True)
        text = data.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    # Of several ways to write the same, only one would be compared by others.
    return text if base64.b64encode(data).decode() == found[1] else None


def _repeated(
    schema: Mapping[str, Any], args: Any, path: str = ""
) -> Iterator[tuple[str, str, object, Any]]:
    """Yield the args that headers repeat: path, name, type by the schema, and value."""
    properties = schema.get("properties")
    for name, one in properties.items() if isinstance(properties, dict) else ():
        if isinstance(one, dict):
            value = args.get(name) if isinstance(args, Mapping) else None
            mark = one.get(MARK)
            if isinstance(mark, str):
                yield f"{path}{name}", mark, one.get("type"), value
            yield from _repeated(one, value, f"{path}{name}.")


def _shown(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() if value.bit_length() > _DIGITS:
            return None
        case int() | float():
            return str(value)
    return None


def _same_number(said: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or len(said) > _DIGITS:
        return False
    return _WHOLE.fullmatch(said) is not None and int(said.partition(".")[0]) == value


def _mismatch(header: str, why: str) -> McpRequestError:
    return refused(HEADER_MISMATCH, f"the header {header} {why}")


# --- Batches -------------------------------------------------------------------

is_array = re.compile(rb"\s*\[").match


def split_batch(
    line: bytes, client: McpClient | None, headers: Headers | None = None
) -> list[bytes]:
    """Return the messages of an array; raises `McpRequestError` if the client may send none."""
    if headers is not None and not accepts(headers, SSE):
        words = f"the answers to a batch come as a stream; accept {SSE}"
        raise refused(INVALID_REQUEST, words)
    if client is None or client.revision != BATCHES:
        words = f"a batch is for clients that have agreed on the revision {BATCHES} in initialize"
        raise refused(INVALID_REQUEST, f"{words}; send each message by itself")
    try:
        messages = [bytes(one) for one in msgspec.json.decode(line, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(PARSE_ERROR, f"the batch is not JSON: {error}") from None
    if not 0 < len(messages) <= BATCH or any(map(is_array, messages)):
        words = f"a batch has 1 to {BATCH} messages, none of which is a batch"
        raise refused(INVALID_REQUEST, f"{words}; this one has {len(messages)} members")
    return messages
