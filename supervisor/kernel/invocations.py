"""The invoke pipeline: look up, validate, queue, dispatch, collect, respond.

`Invocations.submit` takes a request from any face and calls back: events as they come, then one
response. No task is started for an invocation of a persistent module; the reader of the module's
output calls the face directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Protocol

import structlog
import trio

from protocol.connection import Notice, Request
from protocol.errors import Failure, Outcome, Reason
from protocol.events import Asset, Progress
from protocol.replies import Operation
from protocol.response import Response
from supervisor.kernel.asset_files import resolve
from supervisor.kernel.cpu_bound import OutOfTimeError, in_cpu_time
from supervisor.policy.verdict import Stopped
from supervisor.runtime.call import Call
from supervisor.runtime.deadlines import Timer
from supervisor.runtime.host import Host
from supervisor.runtime.module import Module
from supervisor.runtime.program import module_folder

MAX_TIMEOUT_S = 7 * 24 * 3600.0
"""A longer one is no timeout; the bound also keeps arithmetic on times finite."""

VALIDATION_CPU_S = 0.5
"""For args and a schema that may take for ever, such as one with a `pattern`: all else waits."""

log = structlog.get_logger()


class Client(Protocol):
    """Whoever asked; none of its methods may block."""

    def event(self, event: Progress) -> None:
        """Take an event of the invocation."""

    def finished(self, response: Response) -> None:
        """Take the response; called once, and last."""

    def congested(self) -> bool:
        """Whether events should not come faster for now."""


class Invocation:
    """One accepted request, from acceptance to response."""

    __slots__ = (
        "_accepted_at",
        "_call",
        "_client",
        "_deadline",
        "_module",
        "_silence",
        "_timeout_s",
    )

    def __init__(self, request: Request, module: Module, client: Client) -> None:
        self._module = module
        self._client = client
        self._accepted_at = trio.current_time()
        self._deadline: Timer | None = None
        self._silence: Timer | None = None
        self._timeout_s = 0.0
        self._call = Call(request, self)

    @property
    def request_id(self) -> str:
        """The daemon's own id of the request."""
        return self._call.request.request_id

    def begin(self, host: Host, timeout_s: float, silence_s: float | None) -> None:
        """Set the bounds, then hand the call to the module."""
        self._timeout_s = timeout_s
        self._deadline = host.deadlines.after(timeout_s, self._expired)
        if silence_s is not None:
            self._call.heard_at = self._accepted_at
            self._watch_silence(host, silence_s, silence_s)
        self._module.submit(self._call)

    def give_up(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""
        self._module.give_up(self._call, stopped)

    def resume(self) -> None:
        """Tell the module's side that the client may have room again."""
        self._call.resume()

    # What the module's side tells (call.Listener).

    def event(self, event: Progress, call: Call) -> None:
        """Pass an event on; an asset whose file cannot be read becomes a warning."""
        if type(event) is Asset:  # streams pass here; `isinstance` is slow to say no
            checked = resolve(event, module_folder(self._module.descriptor))
            if isinstance(checked, Notice):
                call.warn(checked)
                return
            event = checked
        self._client.event(event)

    def settled(self, outcome: Outcome, call: Call) -> None:
        """Respond."""
        for timer in (self._deadline, self._silence):
            if timer is not None:
                timer.cancel()
        request = call.request
        self._module.counters.invocations += 1
        response = Response(
            outcome,
            request.request_id,
            self._module.name,
            request.op,
            round((trio.current_time() - self._accepted_at) * 1000),
            request.session_id,
            tuple(call.all_notices()),
        )
        if isinstance(outcome, Failure):
            self._module.counters.failures += 1
            _log_failure(response, outcome)
        self._client.finished(response)

    def congested(self) -> bool:
        """Whether the client cannot keep up."""
        return self._client.congested()

    @property
    def _what(self) -> str:
        return f"{self._module.name}.{self._call.request.op}"

    def _expired(self) -> None:
        words = f"{self._what} gave no answer in {self._timeout_s:g} s"
        self.give_up(Stopped(Reason.DEADLINE, words))

    def _watch_silence(self, host: Host, delay_s: float, silence_s: float) -> None:
        def look() -> None:
            silent_s = trio.current_time() - self._call.heard_at
            # Waiting for its turn is not the module's silence.
            if self._call.server is None:
                silent_s = 0.0
            if silent_s < silence_s:
                self._watch_silence(host, silence_s - silent_s, silence_s)
            else:
                words = f"{self._what} said nothing for {silence_s:g} s"
                self.give_up(Stopped(Reason.SILENCE, words))

        self._silence = host.deadlines.after(delay_s, look)


class Invocations:
    """The way in for all invocations."""

    def __init__(self, host: Host, modules: Mapping[str, Module]) -> None:
        self._host = host
        self._modules = modules

    def submit(
        self,
        tool: str,
        content: Mapping[str, Any],
        client: Client,
    ) -> Invocation | None:
        """Accept an invocation, or answer at once why not; `content` is the frame's `input`.

        Fields: `op`, `args` (an object, {} if absent), `session_id`, and `timeout_s`, which takes
        the place of the module's `invoke_s`. None is returned if there is nothing left to cancel.
        """
        op = content.get("op")
        session_id = content.get("session_id")
        request = Request(
            self._host.next_request_id(),
            Operation.INVOKE,
            op if isinstance(op, str) else "",
            args if isinstance(args := content.get("args", {}), dict) else {},
            session_id if isinstance(session_id, str) else None,
        )
        module = self._modules.get(tool)
        refusal = self._refusal(tool, module, content)
        if refusal is not None or module is None:
            assert refusal is not None  # noqa: S101 - no module is a refusal
            _refuse(refusal, request, tool, client)
            return None
        supervision = module.descriptor.supervision
        invocation = Invocation(request, module, client)
        timeout_s = content.get("timeout_s") or supervision.timeouts.invoke_s
        invocation.begin(self._host, timeout_s, supervision.timeouts.silence_s)
        return invocation

    def unknown_module(self, tool: str) -> Failure:
        """Say that there is no such module, and which name was probably meant."""
        near = get_close_matches(tool[:128], self._modules, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return Failure.because(
            Reason.UNKNOWN_MODULE, f"there is no module {tool!r:.130}{hint}", module=tool[:128]
        )

    def _refusal(
        self, tool: str, module: Module | None, content: Mapping[str, Any]
    ) -> Failure | None:
        if module is None:
            return self.unknown_module(tool)
        op = content.get("op")
        if not isinstance(op, str) or not op:
            words = f'invoke of {tool} names no op; "input" needs {{"op":"...","args":{{...}}}}'
            return Failure.because(Reason.MISSING_OP, words)
        args = content.get("args", {})
        if not isinstance(args, dict):
            words = f'"args" of {tool}.{op:.80} must be a JSON object'
            return Failure.because(Reason.INVALID_ARGS, words, pointer="")
        session_id = content.get("session_id")
        if session_id is not None and not isinstance(session_id, str):
            return Failure.because(Reason.MALFORMED_REQUEST, '"session_id" must be a string')
        timeout_s = content.get("timeout_s")
        if timeout_s is not None and not _is_timeout(timeout_s):
            words = f'"timeout_s" must be a number above 0 and at most {MAX_TIMEOUT_S:g}'
            return Failure.because(Reason.MALFORMED_REQUEST, words)
        return _args_refusal(module, op, args)


def _args_refusal(module: Module, op: str, args: dict[str, Any]) -> Failure | None:
    validator = module.validator
    if validator is None:
        return None
    if not validator.knows(op):
        near = get_close_matches(op[:128], validator.ops, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        words = f"{module.name} has no op {op!r:.130}{hint}"
        return Failure.because(Reason.UNKNOWN_OP, words, ops=list(validator.ops))
    try:
        if validator.is_cheap(op):
            problem = validator.problem(op, args)
        else:
            problem = in_cpu_time(VALIDATION_CPU_S, lambda: validator.problem(op, args))
    except OutOfTimeError:
        words = f"{module.name}.{op}: its schema takes too long to check these args"
        return Failure.because(Reason.INVALID_ARGS, words, pointer="")
    if problem is None:
        return None
    words = f"the args of {module.name}.{op} are not valid: {problem}"
    return Failure.because(Reason.INVALID_ARGS, words, pointer=problem.pointer)


def _is_timeout(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value <= MAX_TIMEOUT_S
    )


def _refuse(failure: Failure, request: Request, tool: str, client: Client) -> None:
    response = Response(failure, request.request_id, tool, request.op, 0, request.session_id)
    _log_failure(response, failure)
    client.finished(response)


def _log_failure(response: Response, failure: Failure) -> None:
    log.warning(
        "invocation failed",
        module=response.module,
        op=response.op,
        request=response.request_id,
        instance=failure.details.get("instance"),
        code=failure.code,
        reason=failure.details.get("reason"),
        words=failure.message,
        duration_ms=response.duration_ms,
    )
