"""`module.invoke`: one module invokes another on behalf of a request.

The client of an agent, or of an orchestrator, is told of each of its calls to a tool: so the agent
need not tell of them, and cannot tell otherwise. The events are `tool.call_start` and then
`tool.call_complete` or `tool.call_error`, with args and results cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from protocol.amcp import EventType
from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason
from protocol.events import Progress
from protocol.host_call import UNENCODABLE
from protocol.host_events import HostUiEvent
from protocol.problem import shortened
from protocol.response import Response
from supervisor.kernel.host_calls.method import HostMethod, HostServices, PendingHostCall, invalid
from supervisor.kernel.parties import NOBODY, Caller, Client, RefusedError
from supervisor.policy.capabilities import INVOKE, invoke_capability
from supervisor.runtime.supervision.call import Congestion

DEPTH = 16
"""The longest chain of calls from module to module; an endless one ends here."""


class ModuleInvoke(HostMethod):
    """`module.invoke`, also written `invoke`."""

    names = (INVOKE, "invoke")
    params = MappingProxyType(
        {
            "module": str,
            "op": str,
            "args": dict,
            "session_id": str,
            "timeout_s": float,
            "stream": bool,
        }
    )
    required = ("module", "op")

    def capability(self, call: PendingHostCall, host: HostServices) -> str:
        del host
        params = call.params
        for field in ("module", "op"):
            if not params[field]:
                raise RefusedError(invalid(f'"{field}" is empty'))
        return invoke_capability(params["module"], params["op"])

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        """Submit the invocation; its response answers the call."""
        caller, params = call.caller, call.params
        session_id = params.get("session_id")
        if session_id is not None and session_id != caller.session_id:
            own = "none" if caller.session_id is None else repr(caller.session_id)
            words = (
                f"a call can be of the session of the request being served ({own}), or of none;"
                f" not of {session_id!r:.130}"
            )
            raise RefusedError.because(Reason.CAPABILITY, words)
        if params.get("stream"):
            call.begin_stream()
        content: dict[str, Any] = {
            key: params[key] for key in ("op", "args", "session_id", "timeout_s") if key in params
        }
        told = tool_call(call, host)
        if told is not None:
            told.begin(params.get("args", {}))
        begin_child(
            call,
            host,
            params["module"],
            content,
            lambda one: call.answer(one.document(built=False)),
            told=None if told is None else told.ended,
        )


def begin_child(
    call: PendingHostCall,
    host: HostServices,
    module: str,
    content: Mapping[str, Any],
    answer: Callable[[Response], None],
    *,
    told: Callable[[Response], None] | None = None,
) -> None:
    """Serve a call by an invocation; raises `RefusedError` where calls are nested too deeply.

    `answer` is called if the invocation succeeds, and else its failure is the call's; `told` is
    called before, however it ends. `content` is as in `Requests.invoke`.
    """
    caller = call.caller
    chain = [caller.module.name, *(one.module.name for one in caller.ancestors)][::-1]
    if len(chain) >= DEPTH:
        words = f"calls are nested {DEPTH} deep, which is the deepest there may be"
        raise RefusedError.because(Reason.LIMIT_REACHED, words, chain=chain, most=DEPTH)
    child = host.invoke(
        caller.principal.delegated(),
        module,
        content,
        _ChildClient(call, host, answer, told),
        parent=caller.serving,
        behind=_behind(caller),
        order=call.order,
    )
    call.child = None if call.done else child


def _behind(caller: Caller) -> frozenset[str]:
    """Return the hook that calls on its own account: it is not told of the consequences."""
    own = caller.serving is None and caller.module.descriptor.kind is Kind.HOOK
    return frozenset({caller.module.name}) if own else NOBODY


class _ChildClient(Client):
    """The client of a child: the call that it serves."""

    def __init__(
        self,
        call: PendingHostCall,
        host: HostServices,
        answer: Callable[[Response], None],
        told: Callable[[Response], None] | None,
    ) -> None:
        self._call = call
        self._answer = answer
        self._told = told
        self._lineage = host.effects.lineage

    def event(self, event: Progress, line: bytes | None) -> None:
        """Send an event as a chunk, if the call streams."""
        del line  # it is a part of a result, not a line of its own
        if self._call.streams:
            self._call.chunk(event)

    def finished(self, response: Response) -> None:
        self._lineage.end(response.request_id)
        if self._told is not None:
            self._told(response)
        failure = response.outcome
        if isinstance(failure, Failure):
            if response.injected:
                details = {**failure.details, "injected": list(response.injected)}
                failure = msgspec.structs.replace(failure, details=details)
            self._call.refuse(failure)
        else:
            self._answer(response)

    def congested(self) -> Congestion:
        """Whether the calling module does not read its answers."""
        return self._call.congested()


CALLERS = (Kind.AGENT, Kind.ORCHESTRATOR)

ARGUMENTS_BYTES = 16384
"""Larger arguments are left out, with `cut`."""

RESULT_CHARS = 16384
"""A longer result is cut, with `cut`."""

_encode = msgspec.json.Encoder().encode


class ToolCall:
    """The events of one call of a tool."""

    def __init__(
        self, call: PendingHostCall, host: HostServices, tool_name: str, request_id: str
    ) -> None:
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


def tool_call(call: PendingHostCall, host: HostServices) -> ToolCall | None:
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
