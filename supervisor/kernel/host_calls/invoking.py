"""`module.invoke`: one module invokes another on behalf of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason
from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.host_calls.method import Host, Method, invalid
from supervisor.kernel.host_calls.open_call import OpenCall
from supervisor.kernel.host_calls.tool_calls import tool_call
from supervisor.kernel.parties import NOBODY, Caller, Client, RefusedError
from supervisor.policy.capabilities import INVOKE, invoke_capability
from supervisor.runtime.supervision.call import Congestion

DEPTH = 16
"""The longest chain of calls from module to module; an endless one ends here."""


class ModuleInvoke(Method):
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

    def capability(self, call: OpenCall, host: Host) -> str:
        del host
        params = call.params
        for field in ("module", "op"):
            if not params[field]:
                raise RefusedError(invalid(f'"{field}" is empty'))
        return invoke_capability(params["module"], params["op"])

    def begin(self, call: OpenCall, host: Host) -> None:
        """Submit the invocation; its response answers the call."""
        caller, params = call.caller, call.params
        session_id = params.get("session_id")
        if session_id is not None and session_id != caller.session_id:
            own = "none" if caller.session_id is None else repr(caller.session_id)
            words = (
                f"a call can be of the session of the request being served ({own}), or of none;"
                f" not of {session_id!r:.130}"
            )
            raise RefusedError(Failure.because(Reason.CAPABILITY, words))
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
    call: OpenCall,
    host: Host,
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
        failure = Failure.because(Reason.LIMIT_REACHED, words, chain=chain, most=DEPTH)
        raise RefusedError(failure)
    call.child = host.invoke(
        caller.principal.delegated(),
        module,
        content,
        _Asker(call, host, answer, told),
        parent=caller.serving,
        behind=_behind(caller),
        order=call.order,
    )


def _behind(caller: Caller) -> frozenset[str]:
    """Return the hook that calls on its own account: it is not told of the consequences."""
    own = caller.serving is None and caller.module.descriptor.kind is Kind.HOOK
    return frozenset({caller.module.name}) if own else NOBODY


class _Asker(Client):
    """The client of a child: the call that it serves."""

    def __init__(
        self,
        call: OpenCall,
        host: Host,
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
