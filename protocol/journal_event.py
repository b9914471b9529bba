"""The entries of the journal: Amplifier Event v1, and the fields its registry asks for.

`schemas/event.v1.json` is the shape; `REGISTRY` adds what each name of the taxonomy must carry.
Names beyond the taxonomy are ours and stand here too, so this file lists all that can be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class JournalEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened; `ts` is Unix time (s), `duration_ms` an integer."""

    id: str
    ts: float
    event: str
    component: str
    module: str | None = None
    status: str | None = None
    duration_ms: int | None = None
    data: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    session_id: str | None = None
    request_id: str | None = None
    span_id: str | None = None


TAXONOMY: dict[str, tuple[str, ...]] = {
    "session:start": ("session_id", "data.plan"),
    "session:fork": ("session_id", "data.parent"),
    "session:end": ("session_id",),
    "mount:add": ("data.path", "data.module"),
    "mount:remove": ("data.path",),
    "hook:register": ("data.event",),
    "context:get": (),
    "context:set": ("data.key",),
    "context:pre_compact": (),
    "context:post_compact": ("data.delta_bytes",),
    "module:invoke": ("module", "data.op", "status", "duration_ms"),
    "policy:decision": ("data.capability", "status"),
    "artifact:write": ("data.uri", "data.bytes"),
    "artifact:read": ("data.uri", "status"),
}
"""The stable names, each with the fields that must be there (the kernel's events registry, v1)."""

OURS: dict[str, tuple[str, ...]] = {
    "daemon:start": ("data.version", "data.pid"),
    "daemon:stop": ("data.cause",),
    "module:state": ("module", "data.from", "data.to", "data.cause"),
    "mount:quarantine": ("data.path", "error"),
    "session:patch": ("session_id", "data.revision", "data.patch"),
    "journal:dropped": ("data.count",),
    "hook:dropped": ("module", "data.count"),
    "approval:request": ("data.id", "data.prompt"),
    "approval:decision": ("data.id", "data.answer", "status"),
}
"""Names beyond the taxonomy."""

REGISTRY = TAXONOMY | OURS

COMPONENTS = ("supervisor",)
"""Who writes entries; a module's own are written on its behalf and name it in `module`."""


def lint(document: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an entry's fields, by the registry; the schema is another check.

    A field that is null is missing, but for `data.plan`, `data.parent` and `data.patch`, whose
    value is somebody else's.
    """
    name = document.get("event")
    required = REGISTRY.get(name) if isinstance(name, str) else None
    if required is None:
        return [f"there is no event {name!r:.80}"]
    return [f"{name} has no {path}" for path in required if not _has(document, path)]


_MAY_BE_NULL = frozenset({"data.plan", "data.parent", "data.patch"})


def _has(document: Mapping[str, Any], path: str) -> bool:
    value: Any = document
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return value is not None or path in _MAY_BE_NULL
