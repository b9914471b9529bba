"""The vectors of what amcp-agent makes of its own events, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.amcp import EventType, UnifiedEvent, from_acp, to_acp, to_line, to_ws
from protocol.amcp_errors import AmcpError, ErrorCode

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "vectors" / "amcp_adapter.json").read_text(encoding="utf-8")
)
AT = "2026-01-08T12:00:00"
ERRORS: dict[str, AmcpError] = {
    "SessionNotFoundError": AmcpError(
        ErrorCode.SESSION_NOT_FOUND, "Session not found: s", {"session_id": "s"}
    ),
    "ToolNotFoundError": AmcpError(
        ErrorCode.TOOL_NOT_FOUND, "Tool not found: t", {"tool_name": "t"}
    ),
    "ValidationError": AmcpError(ErrorCode.VALIDATION_ERROR, "bad"),
}


def words(value: Any) -> str:
    return str(value)[:60]


def test_the_types_and_the_codes_are_those_of_the_vectors_and_one_of_ours() -> None:
    assert [str(one) for one in EventType] == VECTORS["event_types"]
    ours = {str(code): code.status for code in ErrorCode}
    assert ours == {**VECTORS["error_codes"], "CANCELLED": 499}


@pytest.mark.parametrize("case", VECTORS["event_to_wire"], ids=lambda case: case["type"])
def test_an_event_is_told_as_the_adapter_tells_it(case: dict[str, Any]) -> None:
    event = UnifiedEvent(EventType(case["type"]), "s1", AT, case["payload"])
    assert to_ws(event, "id1") == case["ws"]
    assert to_acp(event) == case["acp"]
    assert json.loads(to_line(event)) == json.loads(case["sse"].removeprefix("data: "))


@pytest.mark.parametrize("case", VECTORS["acp_to_event"], ids=words)
def test_an_update_is_read_as_the_adapter_reads_it(case: dict[str, Any]) -> None:
    event = from_acp(case["acp"], "s1", AT)
    assert event == UnifiedEvent(EventType(case["type"]), "s1", AT, case["payload"])


@pytest.mark.parametrize("case", VECTORS["errors"], ids=lambda case: case["class"])
def test_an_error_is_told_as_the_adapter_tells_it(case: dict[str, Any]) -> None:
    error = ERRORS[case["class"]]
    assert [error.body(), error.status] == case["http"]
    assert error.frame("i") == case["ws"]
