"""The daemon's own ops: what `supervisor` answers on any face (docs/protocol.md).

The daemon is itself a module: it has `health`, `describe` and `invoke`, and `describe` lists each
op of the groups below, with the schema of its args. A new group of ops is one line in `GROUPS`, and
a line of `SCOPES` for each op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.args_schema import ArgsValidator
from protocol.errors import Failure, Reason
from protocol.problem import did_you_mean, named
from protocol.version import VERSION
from supervisor.kernel.operations.assets import AssetOps
from supervisor.kernel.operations.connection import ConnectionOps, LoginOps, TokenOps
from supervisor.kernel.operations.daemon import DaemonOps
from supervisor.kernel.operations.events import EventOps, UiOps
from supervisor.kernel.operations.modules import ModuleOps
from supervisor.kernel.operations.offers import OfferOps
from supervisor.kernel.operations.op import (
    MODULE,
    WORD,
    Begun,
    Op,
    OpGroup,
    OwnRequest,
    Parts,
    args_schema,
    plainly_fits,
)
from supervisor.kernel.operations.policy import PolicyOps
from supervisor.kernel.operations.record import RecordOps
from supervisor.kernel.operations.sessions import SessionOps
from supervisor.kernel.prompts import CONTENT_CHARS, PROMPT, Conflict, Priority
from supervisor.kernel.request_checks import MAX_TIMEOUT_S, invalid_args
from supervisor.policy.principals import Scope

SCOPES: Mapping[str, Scope | None] = {
    "health": Scope.READ,
    "describe": Scope.READ,
    "invoke": Scope.INVOKE,
    "status": Scope.READ,
    "metrics": Scope.READ,
    "reload": Scope.ADMIN,
    "reloaded": Scope.READ,
    "shutdown": Scope.ADMIN,
    "narrow": None,
    "mcp": None,
    "start": Scope.ADMIN,
    "stop": Scope.ADMIN,
    "restart": Scope.ADMIN,
    "wait": Scope.READ,
    "offers": Scope.READ,
    "resource.follow": Scope.READ,
    "logs": Scope.READ,
    "record": Scope.ADMIN,
    "events": Scope.READ,
    "session.new": Scope.INVOKE,
    "session.list": Scope.READ,
    "session.show": Scope.READ,
    "session.fork": Scope.INVOKE,
    "session.end": Scope.INVOKE,
    "session.patch": Scope.INVOKE,
    "session.prompt": Scope.INVOKE,
    "session.cancel": Scope.INVOKE,
    "asset.list": Scope.READ,
    "asset.show": Scope.READ,
    "asset.read": Scope.READ,
    "asset.content": Scope.READ,
    "ui.subscribe": Scope.READ,
    "policy.show": Scope.READ,
    "policy.explain": Scope.READ,
    "policy.forget": Scope.ADMIN,
    "approvals": Scope.READ,
    "approve": Scope.INVOKE,
    "token.new": Scope.ADMIN,
    "token.list": Scope.ADMIN,
    "token.revoke": Scope.ADMIN,
    "page.login": Scope.ADMIN,
    "login.open": Scope.ADMIN,
    "login.close": Scope.ADMIN,
    "login.follow": Scope.ADMIN,
    "unordered": Scope.ADMIN,
}
"""None: every principal may use it. `health`, `describe` and `invoke` are also those of modules."""

ALL_MODULES = frozenset(
    {"reload", "shutdown", "policy.show", "token.new", "token.list", "token.revoke"}
)
"""Ops that concern all modules: globs have to cover every possible one."""

LOGINS = frozenset({"login.open", "login.close", "login.follow", "unordered"})
"""Ops for a connection of the control socket that may do everything (`Party.may_log_in`)."""

WHOLE_MODULE = frozenset(
    {"start", "stop", "restart", "logs", "record", "policy.explain", "policy.forget"}
)
"""Ops that concern all of their `module`: to cover some of its ops is not enough."""


GROUPS: tuple[type[OpGroup], ...] = (
    DaemonOps,
    ConnectionOps,
    ModuleOps,
    OfferOps,
    RecordOps,
    EventOps,
    SessionOps,
    AssetOps,
    UiOps,
    PolicyOps,
    TokenOps,
    LoginOps,
)

# Served straight from the pipeline (kernel.requests): it streams and is cancelled like any other
# invocation. Here so that a daemon inside another one can be asked for its modules' ops.
_INVOKE = args_schema(
    ("module", "op"),
    module=MODULE,
    op=WORD,
    args={"type": "object", "default": {}},
    session_id=WORD,
    timeout_s={"type": "number", "exclusiveMinimum": 0},
)

# As `invoke`: its client is told as its module works, and cancels it (kernel.prompts).
_PROMPT = args_schema(
    ("session_id", "content"),
    session_id=WORD,
    content={
        "type": "string",
        "minLength": 1,
        "maxLength": CONTENT_CHARS,
        "description": "what the session is asked",
    },
    priority={"enum": [one.name.lower() for one in Priority], "default": "normal"},
    conflict_strategy={
        "enum": [str(one) for one in Conflict],
        "default": "queue",
        "description": "what to do if the session is busy",
    },
    timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S},
)

INPUTS: dict[str, Any] = {
    **{op: schema for group in GROUPS for op, schema in group.INPUTS.items()},
    "invoke": _INVOKE,
    PROMPT: _PROMPT,
}
"""The schema of the args of each op."""


class Operations:
    def __init__(self, parts: Parts) -> None:
        self._validator = ArgsValidator(INPUTS)
        self._ops: dict[str, Op] = {}
        for group in GROUPS:
            self._ops.update(group(parts).ops())

    def refusal(self, op: str, args: Any) -> Failure | None:
        """Return why an op cannot be run with these args, or None."""
        if op not in INPUTS:
            hint = did_you_mean(op, INPUTS) or f"; it has {', '.join(INPUTS)}"
            words = f"the daemon has no op {named(op, 80)}{hint}"
            return Failure.because(Reason.UNKNOWN_OP, words, ops=list(INPUTS))
        if type(args) is dict and plainly_fits(INPUTS[op], args):
            return None
        fault = self._validator.fault(op, args)
        return None if fault is None else invalid_args(op, fault)

    def begin(self, op: str, args: dict[str, Any], asked: OwnRequest) -> Begun:
        """Begin an op that `refusal` lets through; returns its result, or what to await for it.

        Both may raise `RefusedError`.
        """
        return self._ops[op](args, asked)

    def describe(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "version": VERSION,
            "kind": "tool",
            "capabilities": [],
            "inputs": INPUTS,
            "outputs": {},
            "features": ["cancel"],
        }
