"""The unified events: what becomes of one on its way to a wire and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amcp import (
    MODULE_TYPES,
    EventType,
    UnifiedEvent,
    Vocabulary,
    from_acp,
    of_ui_event,
    to_acp,
    to_line,
    to_ws,
)
from protocol.amcp_errors import ErrorCode, error_of
from protocol.errors import Code, Failure, Reason
from protocol.events import UiEvent
from protocol.host_events import HostUiEvent, SeenUiEvent

AT = "2026-01-08T12:00:00"

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
FIELDS = [
    *("content", "done", "thought", "plan", "message_id", "tool_name", "tool_call_id", "status"),
    *("arguments", "title", "result", "error", "code", "success", "position", "reason"),
    *("available_commands", "current_mode_id"),
]
payloads = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), values, max_size=6)
events = st.builds(
    UnifiedEvent,
    st.sampled_from(EventType),
    st.none() | st.text(max_size=5),
    st.just(AT),
    payloads,
)


@given(events)
def test_a_line_is_an_event_whole_or_as_the_deployed_clients_read_it(event: UnifiedEvent) -> None:
    assert msgspec.json.decode(to_line(event), type=UnifiedEvent) == event
    line = to_line(event, Vocabulary.DEPLOYED)
    assert line.count(b"\n") == 1
    document = msgspec.json.decode(line)
    assert document["type"] == DEPLOYED_LINES.get(event.type, event.type)
    payload = {key: value for key, value in event.payload.items() if key != "type"}
    assert payload.items() <= document.items()


DEPLOYED_LINES = {
    "message.chunk": "chunk",
    "message.complete": "complete",
    "message.error": "error",
    "tool.call_start": "tool_call",
    "tool.call_complete": "tool_result",
    "tool.call_error": "tool_result",
}


@given(events)
def test_an_update_that_is_read_and_told_again_is_the_same(event: UnifiedEvent) -> None:
    update = to_acp(event)
    assert all(isinstance(one["text"], str) for one in texts_of(update))
    if update["session_update"] == "agent_message" and event.type not in _SAID:
        return  # told whole, for want of an update of its own; it is read as a message
    assert to_acp(from_acp(update, event.session_id, AT)) == update


_SAID = {EventType.MESSAGE_START, EventType.MESSAGE_CHUNK, EventType.MESSAGE_ERROR}


def texts_of(update: dict[str, Any]) -> list[dict[str, Any]]:
    if update["session_update"] in ("agent_response", "agent_thought"):
        return list(update["content"])
    return []


@given(st.dictionaries(st.sampled_from(["session_update", "content", "entries", "status"]), values))
def test_whatever_comes_as_an_update_is_an_event(update: dict[str, Any]) -> None:
    assert isinstance(from_acp(update, None, AT).payload, dict)


@pytest.mark.parametrize(
    ("kind", "payload", "frame"),
    [
        ("message.chunk", {"content": "a"}, ("response", "chunk")),
        ("message.complete", {"content": "ab"}, ("response", "complete")),
        ("message.error", {"error": "boom", "code": "TIMEOUT"}, ("error", "error")),
        ("connected", {}, ("event", "connected")),
        ("tool.call_start", {"tool_name": "dice"}, ("event", "tool.call_start")),
        ("prompt.queued", {"position": 1}, ("event", "prompt.queued")),
    ],
)
def test_the_deployed_words_are_those_its_clients_read(
    kind: str, payload: dict[str, Any], frame: tuple[str, str]
) -> None:
    told = to_ws(UnifiedEvent(EventType(kind), "s", AT, payload), "m", Vocabulary.DEPLOYED)
    assert (told["type"], told["payload"]["kind"]) == frame
    newer = {"type": frame[1]} if frame[0] == "response" else {}
    assert told["payload"] == {"session_id": "s", **payload, "kind": frame[1], **newer}
    assert (told["id"], told["timestamp"]) == ("m", AT)


def test_a_call_that_failed_is_told_and_read_as_one_that_has_ended() -> None:
    update = to_acp(UnifiedEvent(EventType.TOOL_CALL_ERROR, "s", AT, {"result": "no dice"}))
    assert update["status"] == "failed"
    event = from_acp(update, "s", AT)
    assert event.type is EventType.TOOL_CALL_COMPLETE
    assert event.payload == {"tool_call_id": None, "status": "failed", "result": "no dice"}
    assert to_acp(event) == update


def test_what_a_payload_says_decides_on_the_update() -> None:
    def name(kind: EventType, **payload: Any) -> str:
        return str(to_acp(UnifiedEvent(kind, "s", AT, payload))["session_update"])

    assert name(EventType.AGENT_THINKING, content="hm") == "agent_thought"
    assert name(EventType.AGENT_THINKING, plan=[{"content": "look"}]) == "plan"
    assert name(EventType.SESSION_STATUS_CHANGED, current_mode_id="ask") == "current_mode_update"
    status = EventType.SESSION_STATUS_CHANGED
    assert name(status, available_commands=[]) == "available_commands_update"
    named = to_acp(UnifiedEvent(EventType.TOOL_CALL_START, "s", AT, {"tool_name": "dice.roll"}))
    assert (named["title"], named["kind"]) == ("dice.roll", "other")


@pytest.mark.parametrize("kind", EventType)
def test_only_some_events_are_a_modules_to_tell(kind: EventType) -> None:
    said = of_ui_event(UiEvent(version="0", event=kind, payload={"content": "x"}), "s", AT)
    told = HostUiEvent(version="0", event=kind, payload={"content": "x"})
    event = UnifiedEvent(kind, "s", AT, {"content": "x"})
    assert said == (event if kind in MODULE_TYPES else None)
    assert of_ui_event(told, "s", AT) == event
    fields = msgspec.structs.asdict(told)
    assert of_ui_event(SeenUiEvent(**fields, origin={}), "s", AT) == event
    fields["by_host"] = msgspec.UNSET
    assert of_ui_event(SeenUiEvent(**fields, origin={}), "s", AT) == said


def test_other_ui_events_have_no_place_in_it() -> None:
    assert of_ui_event(UiEvent(version="0", event="progress"), "s", AT) is None
    assert of_ui_event(HostUiEvent(version="0", event="approval.request"), "s", AT) is None


@pytest.mark.parametrize(
    ("failure", "code", "status"),
    [
        (Failure.because(Reason.UNKNOWN_SESSION, "w"), "SESSION_NOT_FOUND", 404),
        (Failure.because(Reason.SESSION_ENDED, "w"), "SESSION_NOT_FOUND", 404),
        (Failure.because(Reason.INVALID_ARGS, "w"), "VALIDATION_ERROR", 400),
        (Failure.because(Reason.MALFORMED_REQUEST, "w"), "BAD_REQUEST", 400),
        (Failure.because(Reason.REVISION_CONFLICT, "w"), "CONFLICT", 409),
        (Failure.because(Reason.SCOPE, "w"), "FORBIDDEN", 403),
        (Failure.because(Reason.DEADLINE, "w"), "TIMEOUT", 504),
        (Failure.because(Reason.CLIENT, "w"), "CANCELLED", 499),
        (Failure.because(Reason.QUEUE_FULL, "w"), "RATE_LIMITED", 429),
        (Failure.reported("wet", "w"), "TOOL_ERROR", 500),
        # What a module claims to have found is no finding of the host's.
        (Failure.reported("bad_request", "w", {"reason": "scope"}), "BAD_REQUEST", 400),
    ],
)
def test_a_failure_has_a_code_and_a_status_there(failure: Failure, code: str, status: int) -> None:
    error = error_of(failure)
    assert (error.code, error.status, error.message) == (code, status, "w")
    assert error.details == {**failure.details, "code": failure.code}


def test_every_code_of_ours_has_one_there() -> None:
    known = {error_of(Failure(code, "w")).code for code in Code}
    assert ErrorCode.TOOL_ERROR not in known


STATUSES = {
    400: "BAD_REQUEST VALIDATION_ERROR INVALID_JSON PROTOCOL_ERROR UNSUPPORTED_ACTION "
    "INVALID_MESSAGE",
    401: "UNAUTHORIZED INVALID_TOKEN INVALID_API_KEY",
    403: "FORBIDDEN",
    404: "NOT_FOUND SESSION_NOT_FOUND TOOL_NOT_FOUND AGENT_NOT_FOUND",
    409: "CONFLICT SESSION_BUSY ALREADY_EXISTS",
    429: "RATE_LIMITED",
    499: "CANCELLED",
    500: "INTERNAL_ERROR LLM_ERROR TOOL_ERROR MCP_ERROR CONNECTION_CLOSED CONNECTION_FAILED",
    504: "TIMEOUT",
}


def test_each_code_there_has_its_status() -> None:
    expected = {code: status for status, codes in STATUSES.items() for code in codes.split()}
    assert {str(code): code.status for code in ErrorCode} == expected
