"""The views of MCP clients on the fleet, as `[mcp.views.NAME]` of the configuration has them.

    modules   globs over MODULE and MODULE.OP, as of a principal; without, all modules of kind tool
    prefix    whether a tool's name begins with its module's; without, yes
    for       the principals that may use it, by name, `*` for any characters; without, all

A view only takes away: its user remains the principal, narrowed to the view's modules. The view
used without a name is called `default`; unless the configuration has one, it shows all.

Beside the views, the table `mcp` says how long unused things last:

    session_idle_s   a session of the older era over HTTP
    keep             a daemon that `stdiod mcp` has started: "always", or seconds
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from protocol.mcp_server.table import DEFAULT, ModuleView
from protocol.problem import described, did_you_mean, quoted
from supervisor.policy.principals import Principal

ALWAYS = "always"

MOST_S = 366 * 86_400.0

SESSION_IDLE_S = 3600.0
"""A session that ends too early costs little: the client is told, and begins another one."""

_KEYS = ("modules", "prefix", "for")
_TABLE_KEYS = ("views", "session_idle_s", "keep")


class View(ModuleView, frozen=True):
    users: tuple[str, ...] = ("*",)

    def is_for(self, principal: Principal) -> bool:
        return any(fnmatchcase(principal.name, one) for one in self.users)

    def narrowed(self, principal: Principal) -> Principal:
        """Return the principal of a client that uses the view."""
        return principal if self.modules is None else principal.narrowed(None, self.modules)


class McpOptions(msgspec.Struct, frozen=True):
    views: Mapping[str, View] = {}
    session_idle_s: float = SESSION_IDLE_S
    keep_s: float | None = None
    """How long a daemon that was started for its clients stays after they have gone; None: until it
    is stopped."""


def read_mcp(said: Any) -> McpOptions | list[str]:
    """Read the table `mcp`; a list has its faults, as clauses."""
    if not isinstance(said, dict):
        return [f"must be a table, not {described(said)}"]
    faults = [_no_such_key(key, _TABLE_KEYS) for key in said if key not in _TABLE_KEYS]
    idle_s, keep = said.get("session_idle_s", SESSION_IDLE_S), said.get("keep", ALWAYS)
    if not _is_time(idle_s):
        words = f"must be a number of seconds above 0, not {described(idle_s)}"
        faults.append(f"session_idle_s {words}")
    if keep != ALWAYS and not _is_time(keep):
        words = f'must be "{ALWAYS}" or a number of seconds above 0, not {described(keep)}'
        faults.append(f"keep {words}")
    views, more = _read_views(said.get("views", {}))
    faults += more
    if faults:
        return faults
    return McpOptions(views, float(idle_s), None if keep == ALWAYS else float(keep))


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value <= MOST_S


def _no_such_key(key: str, keys: tuple[str, ...]) -> str:
    near = did_you_mean(key, keys) or f"; the keys are {', '.join(keys)}"
    return f"{quoted(key)}: there is no such key{near}"


def _read_views(tables: Any) -> tuple[dict[str, View], list[str]]:
    if not isinstance(tables, dict):
        return {}, [f"views must be a table of tables, not {described(tables)}"]
    views = {}
    faults: list[str] = []
    for name, table in tables.items():
        found = _read(name, table)
        if isinstance(found, View):
            views[name] = found
        else:
            faults += [f"views.{name}: {one}" for one in found]
    return views, faults


def _read(name: str, table: Any) -> View | list[str]:
    if not isinstance(table, dict):
        return [f"must be a table, not {described(table)}"]
    faults = []
    for key, value in table.items():
        if key not in _KEYS:
            faults.append(_no_such_key(key, _KEYS))
        elif key == "prefix":
            if not isinstance(value, bool):
                faults.append(f"prefix must be true or false, not {described(value)}")
        elif not _are_texts(value):
            faults.append(f"{key} must be an array of one string or more")
    if faults:
        return faults
    said: Mapping[str, Any] = table
    modules = said.get("modules")
    return View(
        name,
        None if modules is None else tuple(modules),
        said.get("prefix", True),
        tuple(said.get("for", ("*",))),
    )


def _are_texts(value: Any) -> bool:
    texts = isinstance(value, list) and all(isinstance(one, str) and one for one in value)
    return texts and bool(value)


def find_view(views: Mapping[str, View], name: str | None, principal: Principal) -> View | str:
    """Return the view of that name, or say why the principal can't use it."""
    wanted = DEFAULT if name is None else name
    view = views.get(wanted)
    if view is None and wanted == DEFAULT:
        view = View()
    if view is not None and view.is_for(principal):
        return view
    known = [one.name for one in views.values() if one.is_for(principal)]
    near = did_you_mean(wanted, known)
    there = f"; there are {', '.join(known)}" if known else "; the configuration has none"
    since = "; a running daemon has the views of its start"
    return f"there is no view {quoted(wanted)} for {principal.name}{near or there}{since}"
