"""The vectors of what amcp-agent makes of its own events, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.amcp import EventType, UnifiedEvent, from_acp, from_ws, to_acp, to_sse, to_ws
from protocol.amcp_errors import (
    HTTP_STATUS,
    AmcpError,
    ErrorCode,
    session_not_found,
    tool_not_found,
    validation_error,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "vectors" / "amcp_adapter.json").read_text(encoding="utf-8")
)
AT = "2026-01-08T12:00:00"
ERRORS: dict[str, AmcpError] = {
    "SessionNotFoundError": session_not_found("s"),
    "ToolNotFoundError": tool_not_found("t"),
    "ValidationError": validation_error("bad"),
}


def words(value: Any) -> str:
    return str(value)[:60]


def test_the_types_and_the_codes_are_those_of_the_vectors_and_one_of_ours() -> None:
    assert [str(one) for one in EventType] == VECTORS["event_types"]
    ours = {str(code): status for code, status in HTTP_STATUS.items()}
    assert ours == {**VECTORS["error_codes"], "CANCELLED": 499}
    assert set(HTTP_STATUS) == set(ErrorCode)


@pytest.mark.parametrize("case", VECTORS["event_to_wire"], ids=lambda case: case["type"])
def test_an_event_is_told_as_the_adapter_tells_it(case: dict[str, Any]) -> None:
    event = UnifiedEvent(EventType(case["type"]), "s1", AT, case["payload"])
    assert to_ws(event, "id1") == case["ws"]
    assert to_acp(event) == case["acp"]
    # Where the two differ the document counts: it names the event, the adapter does not.
    name, data, *rest = to_sse(event).decode().split("\n")
    assert (name, rest) == (f"event: {case['type']}", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == json.loads(case["sse"].removeprefix("data: "))


@pytest.mark.parametrize("case", VECTORS["acp_to_event"], ids=words)
def test_an_update_is_read_as_the_adapter_reads_it(case: dict[str, Any]) -> None:
    event = from_acp(case["acp"], "s1", AT)
    assert event == UnifiedEvent(EventType(case["type"]), "s1", AT, case["payload"])


@pytest.mark.parametrize("case", VECTORS["ws_to_event"], ids=words)
def test_a_frame_is_read_as_the_adapter_reads_it(case: dict[str, Any]) -> None:
    event = from_ws(case["ws"], AT)
    if case["type"] is None:
        assert event is None
    else:
        assert event is not None
        assert (str(event.type), event.payload) == (case["type"], case["payload"])
        assert event.session_id == case["payload"].get("session_id")
        assert event.timestamp == case["ws"].get("timestamp", AT)


@pytest.mark.parametrize("case", VECTORS["errors"], ids=lambda case: case["class"])
def test_an_error_is_told_as_the_adapter_tells_it(case: dict[str, Any]) -> None:
    error = ERRORS[case["class"]]
    assert [error.body(), error.status] == case["http"]
    assert error.frame("i") == case["ws"]
