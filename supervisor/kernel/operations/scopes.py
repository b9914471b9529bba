"""The scope that each op needs, and the modules it has to cover (docs/protocol.md).

Of other ops each shows, and serves, what the principal may see.
"""

from __future__ import annotations

from collections.abc import Mapping

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
}
"""None: every principal may use it. `health`, `describe` and `invoke` are also those of modules."""

ALL_MODULES = frozenset(
    {"reload", "shutdown", "policy.show", "token.new", "token.list", "token.revoke"}
)
"""Ops that concern all modules: globs have to cover every possible one."""

WHOLE_MODULE = frozenset(
    {"start", "stop", "restart", "logs", "record", "policy.explain", "policy.forget"}
)
"""Ops that concern all of their `module`: to cover some of its ops is not enough."""
