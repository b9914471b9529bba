"""What is looked at before a request is accepted: who asks, its fields, then its args."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from protocol.errors import Failure, Reason
from supervisor.kernel.cpu_bound import OutOfTimeError, in_cpu_time
from supervisor.policy.findings import Quarantined
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.fleet import Fleet
from supervisor.runtime.module import Module

MAX_TIMEOUT_S = 7 * 24 * 3600.0
"""A longer one is no timeout; the bound also keeps arithmetic on times finite."""

VALIDATION_CPU_S = 0.5
"""For args and a schema that may take for ever, such as one with a `pattern`: all else waits."""


def scope_refusal(principal: Principal, needed: Scope | None, what: str) -> Failure | None:
    """Say that a principal lacks the scope for `what`, or return None."""
    if needed is None or needed in principal.scopes:
        return None
    has = ", ".join(one for one in Scope if one in principal.scopes) or "none"
    words = f"{principal.name} may not {what}: that needs the scope {needed}, and it has {has}"
    return Failure.because(Reason.SCOPE, words, scope=str(needed))


def module_refusal(
    principal: Principal, fleet: Fleet, module: str, op: str | None = None
) -> Failure | None:
    """Say that a principal's globs do not cover a module as a whole, or an op of it, or None.

    One of which they could cover nothing is answered as one that is not there; an `op` that is
    empty is none, and it is for others to say so.
    """
    if principal.covers(module, op) or (op == "" and principal.sees(module)):
        return None
    if not principal.sees(module):
        return unknown_module(module, fleet, principal)
    what = f"{module:.130} as a whole" if op is None else f"{module:.130}.{op:.80}"
    globs = ", ".join(principal.modules)
    words = f"{principal.name} may not use {what}; what it may use is {globs:.1000}"
    return Failure.because(Reason.SCOPE, words, module=module[:128])


def unknown_module(tool: str, fleet: Fleet, principal: Principal) -> Failure:
    """Say that there is no such module, and which name or descriptor was probably meant."""
    bad: Quarantined | None = None
    if principal.sees(tool):
        bad = next((one for one in fleet.quarantined if _file_name(one) == tool), None)
    near = get_close_matches(tool[:128], filter(principal.sees, fleet.modules), n=1)
    if bad is not None:
        hint = f"; {bad.descriptor} is quarantined: {bad.reason}"
    else:
        hint = f"; did you mean {near[0]!r}?" if near else ""
    return Failure.because(
        Reason.UNKNOWN_MODULE, f"there is no module {tool!r:.130}{hint}", module=tool[:128]
    )


def _file_name(one: Quarantined) -> str:
    """Return what a descriptor that cannot be read probably calls its module."""
    path = PurePath(one.descriptor)
    return path.parent.name if path.name == "module.json" else path.stem


def request_refusal(tool: str, module: Module, content: Mapping[str, Any]) -> Failure | None:
    """Say why a request cannot be accepted, or None; `content` is the frame's `input`."""
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
    if validator is None or validator.accepts(op, args):
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
