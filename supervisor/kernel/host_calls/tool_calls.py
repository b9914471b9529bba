"""The calls of an agent, or an orchestrator, to tools: its client is told of each.

So the agent need not tell of them, and cannot tell otherwise. The events are `tool.call_start` and
then `tool.call_complete` or `tool.call_error`, with args and results cut.
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.amcp import EventType
from protocol.descriptor.model import Kind
from protocol.errors import Failure
from protocol.host_call import UNENCODABLE
from protocol.host_events import HostUiEvent
from protocol.problem import shortened
from protocol.response import Response
from supervisor.kernel.host_calls.method import Host
from supervisor.kernel.host_calls.open_call import OpenCall

CALLERS = (Kind.AGENT, Kind.ORCHESTRATOR)

ARGUMENTS_BYTES = 16384
"""Larger arguments are left out, with `cut`."""

RESULT_CHARS = 16384
"""A longer result is cut, with `cut`."""

_encode = msgspec.json.Encoder().encode


class ToolCall:
    """The events of one call of a tool."""

    def __init__(self, call: OpenCall, host: Host, tool_name: str, request_id: str) -> None:
        self._caller = call.caller
        self._ui = host.effects.ui
        self._known = {"tool_name": tool_name, "tool_call_id": f"{request_id}.{call.call_id}"}

    def begin(self, arguments: dict[str, Any]) -> None:
        told: dict[str, Any] = {"arguments": arguments}
        if _size(arguments) > ARGUMENTS_BYTES:
            told = {"arguments": {}, "cut": True}
        self._tell(EventType.TOOL_CALL_START, told)

    def ended(self, response: Response) -> None:
        outcome = response.outcome
        if isinstance(outcome, Failure):
            told = {"success": False, "error": outcome.message, "code": outcome.code}
            told |= _cut(f"{outcome.code}: {outcome.message}")
            kind = EventType.TOOL_CALL_ERROR
        else:
            told = {"success": True, **_cut(_text(outcome.said))}
            kind = EventType.TOOL_CALL_COMPLETE
        self._tell(kind, {**told, "duration_ms": response.duration_ms})

    def _tell(self, kind: EventType, payload: dict[str, Any]) -> None:
        event = HostUiEvent(version="0", event=kind, payload={**self._known, **payload})
        self._ui.tell(event, self._caller.origin)
        self._caller.tell_first(event)


def tool_call(call: OpenCall, host: Host) -> ToolCall | None:
    """Return the call that an invocation by a module is; None if it is no call of a tool."""
    serving = call.caller.serving
    if serving is None or call.caller.module.descriptor.kind not in CALLERS:
        return None
    module = host.fleet.modules.get(call.params["module"])
    if module is None or module.descriptor.kind is not Kind.TOOL:
        return None
    name = f"{module.name}.{call.params['op']}"
    return ToolCall(call, host, shortened(name, 300), serving.request_id)


def _size(value: object) -> int:
    try:
        return len(_encode(value))
    except UNENCODABLE:
        return ARGUMENTS_BYTES + 1


def _text(value: object) -> str:
    """Return a result as text: a string as it is, anything else as JSON."""
    if isinstance(value, msgspec.Raw):
        data = bytes(value)
        value = msgspec.json.decode(data) if data.lstrip().startswith(b'"') else None
        return value if isinstance(value, str) else data.decode(errors="replace")
    try:
        return value if isinstance(value, str) else _encode(value).decode(errors="replace")
    except UNENCODABLE:
        return ""


def _cut(result: str) -> dict[str, Any]:
    if len(result) <= RESULT_CHARS:
        return {"result": result}
    return {"result": result[:RESULT_CHARS], "cut": True}
