"""What an MCP client sees of the fleet: a view, as `[mcp.views.NAME]` of the configuration has it.

    modules   globs over MODULE and MODULE.OP, as of a principal; without, all modules of kind tool
    prefix    whether a tool's name begins with its module's; without, yes
    for       who may use it, by name, `*` for any characters; without, everybody

A view only takes away: whoever uses it asks as himself, narrowed to its modules. The view that
nobody has to name is called `default`; unless the configuration has one, it shows all.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from protocol.problem import described, did_you_mean, quoted
from supervisor.policy.principals import Principal

DEFAULT = "default"

_KEYS = ("modules", "prefix", "for")


class View(msgspec.Struct, frozen=True):
    """One view."""

    name: str = DEFAULT
    modules: tuple[str, ...] | None = None
    prefix: bool = True
    users: tuple[str, ...] = ("*",)

    def is_for(self, principal: Principal) -> bool:
        """Whether somebody may use it."""
        return any(fnmatchcase(principal.name, one) for one in self.users)

    def narrowed(self, principal: Principal) -> Principal:
        """Return as whom somebody asks who uses it."""
        return principal if self.modules is None else principal.narrowed(None, self.modules)


def read_views(said: Any) -> tuple[dict[str, View], list[str]]:
    """Read the table `mcp`; returns the views by name, and what is wrong, as clauses."""
    if not isinstance(said, dict):
        return {}, [f"must be a table, not {described(said)}"]
    faults = [
        f"{quoted(key)}: there is no such key{did_you_mean(key, ('views',)) or '; there is views'}"
        for key in said
        if key != "views"
    ]
    tables = said.get("views", {})
    if not isinstance(tables, dict):
        return {}, [*faults, f"views must be a table of tables, not {described(tables)}"]
    views = {}
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
            near = did_you_mean(key, _KEYS) or f"; the keys are {', '.join(_KEYS)}"
            faults.append(f"{quoted(key)}: there is no such key{near}")
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
    """Return the view of that name, or in words why somebody can't use it."""
    wanted = DEFAULT if name is None else name
    view = views.get(wanted)
    if view is None and wanted == DEFAULT:
        view = View()
    if view is not None and view.is_for(principal):
        return view
    known = [one.name for one in views.values() if one.is_for(principal)]
    near = did_you_mean(wanted, known)
    there = f"; there are {', '.join(known)}" if known else "; the configuration has none"
    return f"there is no view {quoted(wanted)} for {principal.name}{near or there}"
