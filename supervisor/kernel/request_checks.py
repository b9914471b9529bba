"""Validation of a request before it is accepted: the principal, the fields, then the args.

A request for an op that its module may only have by now waits for the module's list
(`kernel.begin_order`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

import msgspec

from protocol.connection import Notice
from protocol.errors import Failure, Reason
from protocol.problem import Problem, described, did_you_mean, named
from protocol.trace_context import EXAMPLE, is_traceparent
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.refusal import ITS_TURN

OP_CHARS = 256
"""The longest `op`: each event, journal entry and message about a request has it."""

MAX_TIMEOUT_S = 7 * 24 * 3600.0
"""A longer one is refused; the bound also keeps arithmetic on times finite."""

NAME_CHARS = 128
"""Characters of an unknown name that a failure repeats."""

INPUT_FIELDS = frozenset({"op", "args", "session_id", "timeout_s", "traceparent"})
"""Those of the `input` of an `invoke`; others are ignored, with a warning for a misspelt one."""

FIELDS_LOOKED_AT = 16
"""Of more fields that are not known, none is taken for a misspelt one."""

NEAR = 0.8
"""How like a known field a misspelt one is: `tags` and `total_s` may be meant as they stand."""

OPS_SHOWN = 100
"""Ops of a module that a failure names."""


class Unlisted(msgspec.Struct, frozen=True):
    """An op that was not in its module's last list; the module may have it by now."""

    module: Module
    content: Mapping[str, Any]

    @property
    def why(self) -> str:
        """The words for a request that ends while its module is still asked for its list."""
        return f"{self.module.name} was still being asked whether it has that op by now"

    async def settled(self) -> Failure | None:
        """Ask the module for its list, and check the request again; return the refusal, if any."""
        await self.module.look_again()
        found = obstacle(self.module, self.content, again=False)
        assert not isinstance(found, Unlisted)  # noqa: S101 - that is only found once
        return found


def scope_refusal(principal: Principal, needed: Scope | None, what: str) -> Failure | None:
    """Return the refusal of a principal without the scope for `what`, or None."""
    if needed is None or needed in principal.scopes:
        return None
    has = ", ".join(one for one in Scope if one in principal.scopes) or "none"
    words = f"{principal.name} may not {what}: that needs the scope {needed}, and it has {has}"
    return Failure.because(Reason.SCOPE, words, scope=str(needed))


def module_refusal(
    principal: Principal, fleet: Fleet, module: str, op: str | None = None
) -> Failure | None:
    """Return the refusal of a principal whose globs do not cover a module, or an op of it, or None.

    A module that the globs cover nothing of is answered as an unknown one; an empty `op` is for
    later checks to refuse.
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
    """Return the failure for an unknown module, with the name that was probably meant."""
    bad = _quarantined(tool, fleet.quarantined) if principal.sees(tool) else None
    if bad is not None:
        hint = f"; {bad.descriptor} is quarantined: {bad.reason}"
    else:
        hint = did_you_mean(tool, fleet.modules if principal.is_full else _Seen(fleet, principal))
    words = f"there is no module {named(tool, NAME_CHARS)}{hint}"
    return Failure.because(Reason.UNKNOWN_MODULE, words, module=tool[:NAME_CHARS])


class _Seen(AbstractSet[str]):
    """The modules that a principal may see; of many, only the keys that are asked for are tried."""

    def __init__(self, fleet: Fleet, principal: Principal) -> None:
        self._modules = fleet.modules
        self._principal = principal

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._modules and self._principal.sees(name)

    def __iter__(self) -> Iterator[str]:
        return filter(self._principal.sees, self._modules)

    def __len__(self) -> int:
        """Return the most there can be."""
        return len(self._modules)


def without_unseen(failure: Failure, principal: Principal, module: str = "") -> Failure:
    """Remove names of modules that the principal may not see from a failure.

    `waits_for` is a name of `Fleet.verdict`, which stands in the words, too, or a list of
    `refusal.state_evidence`, whose words name none of its modules. `waits_for_op` stands in the
    words; it is removed for a module that the principal may not use as a whole.
    """
    if "waits_for_op" in failure.details and not principal.covers(module):
        details = {key: said for key, said in failure.details.items() if key != "waits_for_op"}
        words = failure.message.partition(ITS_TURN)[0]
        failure = msgspec.structs.replace(failure, message=words, details=details)
    waits_for = failure.details.get("waits_for")
    if waits_for is None or principal.covers_all():
        return failure
    details = {key: value for key, value in failure.details.items() if key != "waits_for"}
    if isinstance(waits_for, list):
        seen = [one for one in waits_for if isinstance(one, str) and principal.sees(one)]
        details |= {"waits_for": seen} if seen else {}
        return msgspec.structs.replace(failure, details=details)
    if not isinstance(waits_for, str) or principal.sees(waits_for):
        return failure
    words = "a module that it depends on is not ready"
    return msgspec.structs.replace(failure, message=words, details=details)


def _quarantined(tool: str, quarantined: Sequence[QuarantinedFile]) -> QuarantinedFile | None:
    """Return the probable descriptor of a module, by the name of its file."""
    if len(tool) > NAME_CHARS:
        return None
    files = (f"/{tool}.json", f"/{tool}/module.json")
    return next((one for one in quarantined if one.descriptor.endswith(files)), None)


def op_refusal(asked: str, op: object) -> Failure | None:
    """Return why there can be no such op, or None."""
    if not isinstance(op, str) or not op:
        words = f'invoke of {asked} names no op; it needs {{"op":"...","args":{{...}}}}'
        return Failure.because(Reason.MISSING_OP, words)
    if len(op) > OP_CHARS:
        words = f'"op" has {len(op)} characters, and may have {OP_CHARS}: {named(op, 40)}'
        return Failure.because(Reason.MALFORMED_REQUEST, words)
    return None


def misspelt_fields(content: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Return warnings for ignored fields of an `input` that look like known ones that are absent.

    Where each call counts, `content.keys() <= INPUT_FIELDS` says first that there are none.
    """
    unknown = [field for field in content if field not in INPUT_FIELDS]
    absent = INPUT_FIELDS.difference(content)
    if len(unknown) > FIELDS_LOOKED_AT:
        return ()
    hints = ((field, did_you_mean(field, absent, NEAR)) for field in unknown)
    return tuple(
        Notice("unknown_field", f"{named(field, NAME_CHARS)} is not a field of input{hint}")
        for field, hint in hints
        if hint
    )


def obstacle(
    module: Module, content: Mapping[str, Any], *, again: bool = True
) -> Failure | Unlisted | None:
    """Return why a request is refused, or what is to be settled first; None: it can begin.

    `content` is the frame's `input`. A module is asked `again` for an op that is not known.
    """
    op = content.get("op")
    if not isinstance(op, str) or not 0 < len(op) <= OP_CHARS:
        return op_refusal(module.name, op)
    args = content.get("args", _NO_ARGS)
    if not isinstance(args, dict):
        words = f'"args" of {module.name}.{op:.80} must be a JSON object'
        return Failure.because(Reason.INVALID_ARGS, words, pointer="")
    if len(content) > (1 if args is _NO_ARGS else 2):
        refusal = _unfit(content)
        if refusal is not None:
            return refusal
    descriptions = module.descriptions
    validator = descriptions.renewed() if descriptions.is_outdated else descriptions.validator
    if validator is None:
        return None
    if op in validator.ops:
        fault = validator.fault(op, args)
        return None if fault is None else invalid_args(f"{module.name}.{op}", fault)
    if again and module.may_have_more:
        return Unlisted(module, content)
    words = f"{module.name} has no op {named(op, NAME_CHARS)}{did_you_mean(op, validator.ops)}"
    return Failure.because(Reason.UNKNOWN_OP, words, ops=list(islice(validator.ops, OPS_SHOWN)))


def invalid_args(what: str, fault: Problem) -> Failure:
    """Return the failure of args that do not fit their schema; `what` takes them."""
    words = f"the args of {what} are not valid: {fault}"
    return Failure.because(Reason.INVALID_ARGS, words, pointer=fault.pointer)


_NO_ARGS: dict[str, Any] = {}


def _unfit(content: Mapping[str, Any]) -> Failure | None:
    """Return what is wrong with a field beside `op` and `args`, or None."""
    session_id = content.get("session_id")
    if session_id is not None and not isinstance(session_id, str):
        return Failure.because(Reason.MALFORMED_REQUEST, '"session_id" must be a string')
    timeout_s = content.get("timeout_s")
    if timeout_s is not None and not _is_timeout(timeout_s):
        words = f'"timeout_s" must be a number above 0 and at most {MAX_TIMEOUT_S:g}'
        return Failure.because(Reason.MALFORMED_REQUEST, words)
    caller = content.get("traceparent")
    if caller is not None and not is_traceparent(caller):
        words = f'"traceparent" is {described(caller)}, it must be one of W3C such as {EXAMPLE}'
        return Failure.because(Reason.MALFORMED_REQUEST, words)
    return None


def _is_timeout(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value <= MAX_TIMEOUT_S
    )
