"""The unified event model of AMCP, and its forms on WebSocket, SSE and ACP-style updates.

    to_ws                a frame {"type","id","timestamp","payload"}, in either vocabulary
    to_line              a line of a streamed answer, in either vocabulary
    to_acp   from_acp    an update {"session_update",...}; for the protocol ACP, to come
    of_ui_event          the unified event of a `ui_event`, if it has one

An update that was made of an event, and is read and made again, is the same one. The documented
words are those of vectors/amcp_adapter.json; the deployed ones are what clients of that server
read. The time and ids are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec

from protocol.events import UiEvent, built
from protocol.host_events import HostUiEvent, SeenUiEvent

Payload = Mapping[str, Any]


class EventType(StrEnum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    HEARTBEAT = "heartbeat"
    SESSION_CREATED = "session.created"
    SESSION_DELETED = "session.deleted"
    SESSION_STATUS_CHANGED = "session.status_changed"
    MESSAGE_START = "message.start"
    MESSAGE_CHUNK = "message.chunk"
    MESSAGE_COMPLETE = "message.complete"
    MESSAGE_ERROR = "message.error"
    TOOL_CALL_START = "tool.call_start"
    TOOL_CALL_COMPLETE = "tool.call_complete"
    TOOL_CALL_ERROR = "tool.call_error"
    AGENT_THINKING = "agent.thinking"
    AGENT_IDLE = "agent.idle"
    PROMPT_RECEIVED = "prompt.received"
    PROMPT_STARTED = "prompt.started"
    PROMPT_QUEUED = "prompt.queued"
    PROMPT_REJECTED = "prompt.rejected"


class Vocabulary(StrEnum):
    DOCUMENTED = "documented"
    DEPLOYED = "deployed"


class UnifiedEvent(msgspec.Struct, frozen=True):
    """One event; `timestamp` is ISO 8601."""

    type: EventType
    session_id: str | None = None
    timestamp: str = ""
    payload: dict[str, Any] = {}


MODULE_TYPES: Final = frozenset(
    {
        EventType.MESSAGE_CHUNK,
        EventType.AGENT_THINKING,
        EventType.TOOL_CALL_START,
        EventType.TOOL_CALL_COMPLETE,
        EventType.TOOL_CALL_ERROR,
    }
)
"""The types that a module may report by itself, as a `ui_event` of that name; all others are the
host's."""

_TYPES: Final = {str(one): one for one in EventType}


def of_ui_event(event: UiEvent, session_id: str | None, at: str) -> UnifiedEvent | None:
    """Return the unified event of a `ui_event`; None if it has none."""
    kind = _TYPES.get(event.event)
    by_host = isinstance(event, HostUiEvent) or (
        isinstance(event, SeenUiEvent) and event.by_host is True
    )
    if kind is None or not (by_host or kind in MODULE_TYPES):
        return None
    return UnifiedEvent(kind, session_id, at, built(event.payload))


# WebSocket.


def _message(payload: Payload, *, last: bool) -> dict[str, Any]:
    return {
        "content": payload.get("content", ""),
        "done": last or payload.get("done", False),
    }


_part, _whole = partial(_message, last=False), partial(_message, last=True)


def _call(payload: Payload) -> dict[str, Any]:
    named = {key: payload.get(key) for key in ("tool_name", "tool_call_id")}
    return {**named, "arguments": payload.get("arguments", {})}


def _result(payload: Payload) -> dict[str, Any]:
    named = {key: payload.get(key) for key in ("tool_name", "tool_call_id", "result")}
    return {**named, "success": True}


def _failed(payload: Payload) -> dict[str, Any]:
    return {**_result(payload), "success": False}


def _error(payload: Payload) -> dict[str, Any]:
    return {
        "error": payload.get("error", "Unknown error"),
        "code": payload.get("code", "INTERNAL_ERROR"),
    }


_ALL: Final[Callable[[Payload], dict[str, Any]]] = dict


class _Frame(msgspec.Struct, frozen=True):
    """How an event is put in a WebSocket frame: type of the frame, documented kind, payload."""

    type: str
    kind: str
    told: Callable[[Payload], dict[str, Any]] = _ALL


_NAMELESS = "unknown"
"""The documented kind of events that the document has no word for."""

_FRAMES: Final[Mapping[EventType, _Frame]] = {
    EventType.CONNECTED: _Frame("event", "connected"),
    EventType.DISCONNECTED: _Frame("event", "disconnected"),
    EventType.HEARTBEAT: _Frame("event", "heartbeat"),
    EventType.SESSION_CREATED: _Frame("event", "session_created"),
    EventType.SESSION_DELETED: _Frame("event", "session_deleted"),
    EventType.SESSION_STATUS_CHANGED: _Frame("event", "session_status"),
    EventType.MESSAGE_START: _Frame("response", "text", _part),
    EventType.MESSAGE_CHUNK: _Frame("response", "text", _part),
    EventType.MESSAGE_COMPLETE: _Frame("response", "complete", _whole),
    EventType.MESSAGE_ERROR: _Frame("error", "error", _error),
    EventType.TOOL_CALL_START: _Frame("event", "tool_call", _call),
    EventType.TOOL_CALL_COMPLETE: _Frame("event", "tool_result", _result),
    EventType.TOOL_CALL_ERROR: _Frame("event", "tool_error", _failed),
    EventType.AGENT_THINKING: _Frame("event", "thinking"),
    EventType.AGENT_IDLE: _Frame("event", "idle"),
    EventType.PROMPT_RECEIVED: _Frame("event", _NAMELESS),
    EventType.PROMPT_STARTED: _Frame("event", _NAMELESS),
    EventType.PROMPT_QUEUED: _Frame("event", _NAMELESS),
    EventType.PROMPT_REJECTED: _Frame("event", _NAMELESS),
}

_DEPLOYED: Final[Mapping[EventType, _Frame]] = {
    **{one: _Frame("event", str(one)) for one in EventType},
    EventType.MESSAGE_CHUNK: _Frame("response", "chunk"),
    EventType.MESSAGE_COMPLETE: _Frame("response", "complete"),
    EventType.MESSAGE_ERROR: _Frame("error", "error"),
}
"""The frames that the deployed clients read; their payload is the event's, whole."""


def to_ws(
    event: UnifiedEvent,
    message_id: str | None = None,
    vocabulary: Vocabulary = Vocabulary.DOCUMENTED,
) -> dict[str, Any]:
    """Return an event as a frame; `message_id` is the id of the request that it answers."""
    if vocabulary is Vocabulary.DOCUMENTED:
        frame = _FRAMES[event.type]
        # What is told whole may have a kind of its own, of a tool for example.
        own = {"kind": frame.kind, "session_id": event.session_id}
        payload = {**own, **frame.told(event.payload)}
    else:
        frame = _DEPLOYED[event.type]
        payload = {"session_id": event.session_id, **event.payload, "kind": frame.kind}
        if frame.type == "response":
            payload["type"] = frame.kind  # newer ones of them look there first
    return {
        "type": frame.type,
        "id": message_id,
        "timestamp": event.timestamp,
        "payload": payload,
    }


# Lines of NDJSON, and the data of server-sent events.

_encode = msgspec.json.Encoder().encode

_LINES: Final[Mapping[EventType, str]] = {
    EventType.MESSAGE_CHUNK: "chunk",
    EventType.MESSAGE_COMPLETE: "complete",
    EventType.MESSAGE_ERROR: "error",
    EventType.TOOL_CALL_START: "tool_call",
    EventType.TOOL_CALL_COMPLETE: "tool_result",
    EventType.TOOL_CALL_ERROR: "tool_result",
}
"""The types of lines that the deployed clients read; all others keep their own."""


def to_line(event: UnifiedEvent, vocabulary: Vocabulary = Vocabulary.DOCUMENTED) -> bytes:
    """Return an event as a line of NDJSON; the documented form is a server-sent event's data."""
    if vocabulary is Vocabulary.DOCUMENTED:
        return _encode(event) + b"\n"
    word = _LINES.get(event.type, str(event.type))
    return _encode({"session_id": event.session_id, **event.payload, "type": word}) + b"\n"


# ACP-style updates.

_UPDATES: Final[Mapping[str, EventType]] = {
    "agent_message": EventType.MESSAGE_CHUNK,
    "agent_response": EventType.MESSAGE_COMPLETE,
    "agent_thought": EventType.AGENT_THINKING,
    "tool_call_start": EventType.TOOL_CALL_START,
    "tool_call_update": EventType.TOOL_CALL_COMPLETE,
    "current_mode_update": EventType.SESSION_STATUS_CHANGED,
    "available_commands_update": EventType.SESSION_STATUS_CHANGED,
    "plan": EventType.AGENT_THINKING,
    "idle": EventType.AGENT_IDLE,
}

_CALL_STATUSES: Final = ("pending", "in_progress", "completed", "failed")

_CHANGES: Final = {
    "available_commands": "available_commands_update",
    "current_mode_id": "current_mode_update",
}
"""The updates of a session that a payload with that field is."""


def to_acp(event: UnifiedEvent) -> dict[str, Any]:
    """Return an event as an update; an event without an update of its own is put in whole."""
    payload = event.payload
    match event.type:
        case EventType.MESSAGE_START | EventType.MESSAGE_CHUNK:
            return _said("agent_message", payload.get("content", ""))
        case EventType.MESSAGE_COMPLETE:
            return _said("agent_response", payload.get("content", ""))
        case EventType.MESSAGE_ERROR:
            return _said("agent_message", f"Error: {payload.get('error', 'Unknown error')}")
        case EventType.AGENT_THINKING if "thought" not in payload and "plan" in payload:
            return {"session_update": "plan", "entries": _entries(payload["plan"])}
        case EventType.AGENT_THINKING:
            return _said("agent_thought", payload.get("thought", payload.get("content", "")))
        case EventType.TOOL_CALL_START:
            return {
                "session_update": "tool_call_start",
                "tool_call_id": payload.get("tool_call_id"),
                "title": payload.get("title", payload.get("tool_name")),
                "kind": payload.get("kind", "other"),
            }
        case EventType.TOOL_CALL_COMPLETE | EventType.TOOL_CALL_ERROR:
            usual = "completed" if event.type is EventType.TOOL_CALL_COMPLETE else "failed"
            status = payload.get("status")
            return {
                "session_update": "tool_call_update",
                "tool_call_id": payload.get("tool_call_id"),
                "status": status if status in _CALL_STATUSES else usual,
                "content": [{"type": "content", "content": _text(payload.get("result", ""))}],
            }
        case EventType.AGENT_IDLE:
            return {**payload, "session_update": "idle"}
        case EventType.SESSION_STATUS_CHANGED:
            changes = (update for field, update in _CHANGES.items() if field in payload)
            return {**payload, "session_update": next(changes, "agent_message")}
    return {**payload, "session_update": "agent_message"}


def from_acp(update: Payload, session_id: str | None, at: str) -> UnifiedEvent:
    """Read an update; an unknown one is read as a message, with all its fields."""
    name = update.get("session_update")
    kind = _UPDATES.get(name) if isinstance(name, str) else None
    blocks = update.get("content")
    payload: dict[str, Any]
    match name:
        case "agent_message" | "agent_response":
            payload = {"content": "".join(_texts(blocks)), "done": name == "agent_response"}
        case "agent_thought":
            payload = {"thought": "".join(_texts(blocks))}
        case "tool_call_start":
            payload = {key: update.get(key) for key in ("tool_call_id", "title", "kind")}
        case "tool_call_update":
            payload = {key: update.get(key) for key in ("tool_call_id", "status")}
            inner = [one.get("content") for one in _objects(blocks) if one.get("type") == "content"]
            if found := _texts(inner):
                payload["result"] = found[0]
        case "plan":
            payload = {"plan": _entries(update.get("entries"))}
        case _:
            payload = {key: value for key, value in update.items() if key != "session_update"}
    return UnifiedEvent(kind or EventType.MESSAGE_CHUNK, session_id, at, payload)


def _said(update: str, content: object) -> dict[str, Any]:
    return {"session_update": update, "content": [_text(content)]}


def _text(content: object) -> dict[str, str]:
    return {
        "type": "text",
        "text": content if isinstance(content, str) else _encode(content).decode(),
    }


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(blocks: object) -> list[str]:
    found = [one.get("text", "") for one in _objects(blocks) if one.get("type") == "text"]
    return [one for one in found if isinstance(one, str)]


def _entries(plan: object) -> list[dict[str, Any]]:
    usual = {"content": "", "priority": "medium", "status": "pending"}
    return [
        {key: one.get(key, default) for key, default in usual.items()} for one in _objects(plan)
    ]
