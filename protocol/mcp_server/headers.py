"""The headers of MCP over HTTP, which repeat parts of the body for routers.

A header that contradicts the body is refused: else one party would believe the header, and another
the body. A value that a header cannot hold is written as `=?base64?...?=`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.dialects.mcp.rpc import RpcError
from protocol.mcp_server.client import HEADER_MISMATCH

VERSION, METHOD, NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
SESSION = "mcp-session-id"

PARAM = "mcp-param-"
MARK = "x-mcp-header"
"""The key in an arg's schema with the rest of the name of the header that repeats the arg."""

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_WHOLE = re.compile(r"-?[0-9]+(?:\.0+)?")
_DIGITS = 400

Headers = Mapping[str, str]
"""By lower-case name."""


def header_problem(
    headers: Headers, method: str, params: Mapping[str, Any], version: str
) -> RpcError | None:
    """Return why the headers of a request of the newer era do not match its body, or None."""
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
            return _mismatch(header, "is missing, or says something else than the body")
    return None


def param_problem(
    schema: Mapping[str, Any], args: Mapping[str, Any], headers: Headers
) -> RpcError | None:
    """Return why the headers that repeat args do not match them, or None."""
    for path, name, kind in _marked(schema, ()):
        header = f"{PARAM}{name.lower()}"
        value, said = _at(args, path), headers.get(header)
        shown = _shown(value)
        if shown is None:
            if said is not None:
                return _mismatch(header, f"is there, and {'.'.join(path)} is not in the body")
            continue
        if said is None:
            return _mismatch(header, f"is missing, and {'.'.join(path)} is in the body")
        found = decoded(said.strip())
        if found is None:
            return _mismatch(header, "is not base64 of UTF-8")
        if found != shown and not (kind == "integer" and _same_number(found, value)):
            return _mismatch(header, f"says something else than {'.'.join(path)} in the body")
    return None


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


def _marked(
    schema: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, object]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, one in properties.items():
        if isinstance(one, dict):
            mark = one.get(MARK)
            if isinstance(mark, str):
                yield (*path, name), mark, one.get("type")
            yield from _marked(one, (*path, name))


def _at(args: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = args
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


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


def _mismatch(header: str, why: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"the header {header} {why}")
