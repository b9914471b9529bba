"""What holds the lines of a server to the schemas does find what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema.exceptions import ValidationError

from tests.protocol.mcp_revisions import check_of_server

NEW, OLD = "2026-07-28", "2025-11-25"
UPDATED = "notifications/resources/updated"


def answer(**result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def error(code: int, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **more, "error": {"code": code, "message": "m"}}


@pytest.mark.parametrize(
    ("revision", "asked", "line"),
    [
        (NEW, "tools/list", answer(tools=[], resultType="complete", ttlMs=0)),
        (NEW, "tools/list", answer(tools=[], ttlMs=0, cacheScope="private")),
        (NEW, "tools/call", answer(content=[{"type": "text"}], resultType="complete")),
        (NEW, "tools/call", answer(content=[], resultType="complete", is_error=True)),
        (OLD, "tools/list", answer(tools=[{"name": "t"}])),
        (OLD, "tools/call", answer(content=[], structuredContent=[1])),
        ("2024-11-05", "tools/call", answer(content=[{"type": "audio", "data": ""}])),
        (OLD, "initialize", answer(capabilities={}, protocolVersion=OLD)),
        (NEW, None, {"jsonrpc": "2.0", "method": UPDATED, "params": {}}),
        (NEW, None, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}),
        (OLD, None, {"jsonrpc": "2.0", "method": "notifications/updated"}),
        (OLD, "ping", error(-32600, id=None)),
        (NEW, "ping", error(-32022, id=1)),
        (NEW, None, answer()),
    ],
)
def test_a_line_that_is_none_of_its_revision_is_found(
    revision: str, asked: str | None, line: dict[str, Any]
) -> None:
    with pytest.raises((ValidationError, AssertionError, ValueError)):
        check_of_server(line, revision, asked)


def test_good_lines_are_let_through() -> None:
    check_of_server(error(-32600), OLD, None)
    check_of_server({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, OLD, None)
    check_of_server(
        answer(tools=[], resultType="complete", ttlMs=0, cacheScope="private"), NEW, "tools/list"
    )
