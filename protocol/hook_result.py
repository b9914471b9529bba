"""The answer of a hook: the HookResult of the Amplifier module contract, read from a result.

Fields, defaults and the leniency (nothing is `continue`, unknown fields are ignored) are those of
the contract, with two differences. `data` may be any JSON value, because what a `tool:post` gate
replaces is any JSON value. A field that looks like a misspelt known one is invalid: `{"acton":
"deny"}` must not let anything pass.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import msgspec

from protocol.descriptor.model import Gate
from protocol.problem import Problem, kind, nearest, step
from protocol.shape import ANY, Array, Fields, Map, OrNull, object_of, seconds, text

UNKNOWN_LOOKED_AT = 16
"""How many unknown fields are compared with the known ones: each takes a fraction of a ms."""

_CUTOFF = 0.8  # as in `protocol.descriptor.rules`: an unknown field may be nobody's slip


class Directive(StrEnum):
    CONTINUE = "continue"
    DENY = "deny"
    MODIFY = "modify"
    INJECT_CONTEXT = "inject_context"
    ASK_USER = "ask_user"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class ApprovalDefault(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class MessageLevel(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_OPTIONS = OrNull(
    Array(
        'an array of strings such as ["allow","deny"], or null',
        text("a string that is not empty"),
        least=1,
    )
)


class HookResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a hook; a field that does not belong to the action has no effect.

    `approval_timeout` is in seconds. `data` of None modifies nothing, `context_injection` of None
    or "" injects nothing.
    """

    action: Directive = Directive.CONTINUE
    data: Any = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: Role = Role.SYSTEM
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    approval_prompt: str | None = None
    approval_options: Annotated[tuple[str, ...] | None, _OPTIONS] = None
    approval_timeout: Annotated[float, seconds("300")] = 300.0
    approval_default: ApprovalDefault = ApprovalDefault.DENY
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: MessageLevel = MessageLevel.INFO
    user_message_source: str | None = None


class Invalid(msgspec.Struct, frozen=True):
    """An answer that is no HookResult; `problem` says in one line where and what is right."""

    problem: str


RESULT = object_of(HookResult)
ERROR = Fields(
    {
        "code": text("a string that is not empty"),
        "message": text("a string", empty=True),
        "details": Map("an object, such as {}", ANY, ANY),
    },
    required=("code", "message"),
)


def read_hook_result(value: Any) -> HookResult | Invalid:
    """Read the `result` of an `on_event` invocation; None stands for an absent one."""
    if value is None:
        return HookResult()
    if not isinstance(value, dict):
        return Invalid(f'result is {kind(value)}, must be an object such as {{"action":"deny"}}')
    found: list[Problem] = []
    RESULT(value, "", found)
    found += _misspelt(value)
    if found:
        return Invalid(f"result: {min(found)}")
    known = {key: value[key] for key in RESULT.fields if key in value}
    return msgspec.convert(known, HookResult)


def replacement_problem(gate: Gate, data: Any) -> str | None:
    """Say why the `data` of a `modify` cannot replace the gate's subject, or return None.

    The subject is `tool_input`, an object; `error`, an Error Schema v1; or `result`, any JSON
    value.
    """
    if gate is Gate.PRE and not isinstance(data, dict):
        return f"data is {kind(data)}, must be an object: the new tool_input"
    if gate is Gate.ERROR:
        found: list[Problem] = []
        ERROR(data, "/data", found)
        return str(min(found)) if found else None
    return None


def _misspelt(value: dict[str, Any]) -> list[Problem]:
    absent = [field for field in RESULT.fields if field not in value]
    unknown = islice((key for key in value if key not in RESULT.fields), UNKNOWN_LOOKED_AT)
    return [
        Problem(step("", key), f"unknown field; did you mean '{meant}'?")
        for key in unknown
        if (meant := nearest(key, absent, _CUTOFF)) is not None
    ]
