"""The client of an MCP server: era, revision, capabilities, and wanted logs.

A client of the newer era states its version in each request; one of the older era once, in
`initialize`. So one endpoint serves both: a request with a version in its `_meta`, or with a method
of the newer era only, belongs to that era.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.dialects.mcp.greeting import DISCOVER, LEGACY, META, MODERN, Era
from protocol.dialects.mcp.rpc import INVALID_PARAMS, RpcError
from protocol.problem import described, kind

LISTEN = "subscriptions/listen"

REVISIONS = (MODERN, *LEGACY)

UNSUPPORTED_VERSION = -32022
MISSING_CAPABILITY = -32021
HEADER_MISMATCH = -32020

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The log levels that a client may choose as the least, in order."""

_LEVEL_OF = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
"""The MCP level of each level of Spec 001."""

_VERSION, _CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"


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


def says_modern(method: str, params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta")
    return method in (DISCOVER, LISTEN) or (isinstance(meta, dict) and _VERSION in meta)


def modern_client(params: Mapping[str, Any]) -> McpClient | RpcError:
    """Return the client that a request of the newer era describes, or why it is refused."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        words = f'the request has no object "_meta" with "{_VERSION}" and "{_CAPABILITIES}"'
        return RpcError(INVALID_PARAMS, words)
    for key, wanted, a_kind in (
        (_VERSION, str, "a string"),
        (_CAPABILITIES, dict, "an object"),
    ):
        value = meta.get(key)
        if not isinstance(value, wanted):
            found = f"is {kind(value)}" if key in meta else "is missing"
            return RpcError(INVALID_PARAMS, f'"{key}" in _meta {found}, it must be {a_kind}')
    version, level = meta[_VERSION], meta.get(f"{META}logLevel")
    if version != MODERN:
        words = f"the revision {described(version)} is not spoken here"
        return unsupported(version, words)
    if level is not None and level not in LEVELS:
        words = f"the logLevel {described(level)} is none of {', '.join(LEVELS)}"
        return RpcError(INVALID_PARAMS, words)
    return McpClient(Era.MODERN, MODERN, meta[_CAPABILITIES], level)


def legacy_client(params: Mapping[str, Any]) -> McpClient | RpcError:
    """Return the client that `initialize` describes: at a revision known here, or the newest."""
    version, capabilities = params.get("protocolVersion"), params.get("capabilities")
    if not isinstance(version, str):
        words = f'"protocolVersion" is {described(version)}, it must be a string'
        return RpcError(INVALID_PARAMS, words)
    revision = version if version in LEGACY else LEGACY[0]
    said = capabilities if isinstance(capabilities, dict) else {}
    return McpClient(Era.LEGACY, revision, said, "info")


def unsupported(requested: str, words: str) -> RpcError:
    data = {"supported": list(REVISIONS), "requested": requested}
    return RpcError(UNSUPPORTED_VERSION, f"{words}; there are {', '.join(REVISIONS)}", data)
