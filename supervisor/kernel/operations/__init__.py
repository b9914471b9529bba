"""The daemon's own ops: what `supervisor` answers on any face (docs/protocol.md).

The daemon is itself a module: it has `health`, `describe` and `invoke`, and `describe` lists each
op of the groups below, in this order, with the schema of its args. A new op is a function of its
group's file, and a new group a word in `GROUPS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from supervisor.kernel.operations import (
    access,
    assets,
    calls,
    daemon,
    events,
    modules,
    offers,
    sessions,
    ui,
)
from supervisor.kernel.operations.op import Op, schema_of

GROUPS = (daemon, modules, offers, events, sessions, assets, ui, access, calls)

OPS: Mapping[str, Op] = {
    one.name: one for group in GROUPS for one in vars(group).values() if isinstance(one, Op)
}


@cache
def inputs() -> dict[str, Any]:
    """Return the schema of the args of each op."""
    return {name: schema_of(one.args) for name, one in OPS.items()}
