"""The methods that a module can call."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason
from protocol.events import Log
from protocol.journal_event import module_event_problem
from protocol.problem import described, did_you_mean
from supervisor.kernel.host_calls.invoking import ModuleInvoke
from supervisor.kernel.host_calls.method import HostMethod, HostServices, PendingHostCall, invalid
from supervisor.kernel.host_calls.of_client import ModelSample, RootsList, UserAsk
from supervisor.kernel.parties import RefusedError, or_refused, refuse_if
from supervisor.kernel.sessions.session import Session
from supervisor.policy.capabilities import (
    EMIT,
    LOG,
    SESSION_READ,
    SESSION_WRITE,
    emit_capability,
)
from supervisor.policy.session import revision_problem
from supervisor.runtime.files.module_log import log_text

EMIT_BYTES = 64 << 10
"""The most bytes of an event's data, as JSON."""


class SessionRead(HostMethod):
    """`session.read`: the state and the plan of the session of the request being served."""

    names = (SESSION_READ,)

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        shown = _session(call, host).shown()
        wanted = ("session_id", "title", "cwd", "status", "revision", "plan", "state")
        call.answer({key: shown[key] for key in wanted})


class SessionWrite(HostMethod):
    """`session.write`: merge a patch into the state, and answer once that is stored."""

    names = (SESSION_WRITE,)
    params = MappingProxyType({"patch": dict, "if_revision": int})
    required = ("patch",)

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        session = _session(call, host)
        sessions = host.effects.sessions
        refusal = revision_problem(session.kept.revision, call.params.get("if_revision"))
        refuse_if(refusal or sessions.patch(session, call.params["patch"], call.caller.origin))
        output = {"session_id": session.id, "revision": session.kept.revision}

        def stored(failure: Failure | None) -> None:
            if failure is None:
                call.answer(output)
            else:
                call.refuse(failure)

        host.effects.durability.confirm(stored)


class EventEmit(HostMethod):
    """`event.emit`: an entry of the journal in the module's name."""

    names = (EMIT,)
    params = MappingProxyType({"event": str, "data": dict, "status": str})
    required = ("event",)

    def capability(self, call: PendingHostCall, host: HostServices) -> str:
        del host
        params = call.params
        problem = module_event_problem(params)
        if problem is not None:
            raise RefusedError(invalid(problem))
        return emit_capability(params["event"])

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        if call.caller.serving is None and call.caller.module.descriptor.kind is Kind.HOOK:
            # The event that made it emit is not known here, so two hooks would go on and
            # on telling each other (kernel.parties).
            words = "a hook can emit an event in the course of a request only"
            raise RefusedError.because(Reason.MALFORMED_REQUEST, words)
        origin, params = call.caller.origin, call.params
        data = params.get("data", {})
        if len(msgspec.json.encode(data)) > EMIT_BYTES:
            words = f'"data" of an event may take at most {EMIT_BYTES} bytes'
            raise RefusedError.because(Reason.LIMIT_REACHED, words)
        host.effects.recorder.record(
            params["event"],
            module=origin.module,
            status=params.get("status"),
            data=data,
            **origin.recorded(),
        )
        call.answer({})


class LogWrite(HostMethod):
    """`log`: a line of the module's log."""

    names = (LOG,)
    params = MappingProxyType({"message": str, "level": str, "fields": dict})
    required = ("message",)

    def capability(self, call: PendingHostCall, host: HostServices) -> str:
        del host
        params = call.params
        level = params.get("level", "info")
        if level not in _LEVELS:
            words = f'"level" is {described(level)}, it must be one of {", ".join(_LEVELS)}'
            raise RefusedError(invalid(words))
        return LOG

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        del host
        params = call.params
        line = Log(
            version="0",
            level=params.get("level", "info"),
            message=params["message"],
            fields=params.get("fields", msgspec.UNSET),
        )
        call.caller.module.log.log_event(call.instance, log_text(line))
        call.answer({})


_LEVELS = ("debug", "info", "warn", "error")


def _session(call: PendingHostCall, host: HostServices) -> Session:
    serving, session_id = call.caller.serving, call.caller.session_id
    if serving is None or session_id is None or not host.effects.with_sessions:
        words = "the request that is being served has no session"
        if serving is None:
            words = "the call is of no request, and so of no session"
        raise RefusedError.because(Reason.UNKNOWN_SESSION, words)
    return or_refused(host.effects.sessions.find_live(session_id, serving.first.principal))


METHODS: tuple[HostMethod, ...] = (
    ModuleInvoke(),
    SessionRead(),
    SessionWrite(),
    EventEmit(),
    LogWrite(),
    RootsList(),
    UserAsk(),
    ModelSample(),
)

_BY_NAME = {name: method for method in METHODS for name in method.names}


def method_named(name: str) -> HostMethod:
    """Return a method; raises `RefusedError` if there is none of that name."""
    method = _BY_NAME.get(name)
    if method is None:
        names = [one.names[0] for one in METHODS]
        near = did_you_mean(name, names) or f"; there are {', '.join(names)}"
        words = f"there is no method {described(name)}{near}"
        raise RefusedError.because(Reason.UNKNOWN_OP, words)
    return method
