"""The entries of the journal: Amplifier Event v1, and the fields its registry asks for.

`schemas/event.v1.json` is the shape; `REGISTRY` adds what each name of the taxonomy must carry.
Names beyond the taxonomy are ours and stand here too, so this file lists all that can be written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.problem import described, did_you_mean


class JournalEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry; `ts` is Unix time (s), `duration_ms` an integer.

    `by` is ours, beyond the schema: the requester, `{"name", "face"}`, encoded once for many
    entries.
    """

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
    by: msgspec.Raw | None = None


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
    "daemon:command": ("data.op", "by"),
    "module:state": ("module", "data.from", "data.to", "data.cause"),
    "module:error": ("module", "error"),
    "module:description": ("module", "data.instance", "data.changes"),
    "mount:quarantine": ("data.path", "error"),
    "session:patch": ("session_id", "data.revision", "data.patch"),
    "journal:dropped": ("data.count",),
    "hook:dropped": ("module", "data.count"),
    "approval:request": ("data.id", "data.prompt"),
    "approval:decision": ("data.id", "data.answer", "status"),
}

REGISTRY = TAXONOMY | OURS


HOST_OWNED = (
    "session",
    "module",
    "policy",
    "mount",
    "hook",
    "daemon",
    "journal",
    "approval",
    "tool",
    "supervisor",
)
"""The families (the part before the first ":") of names that only the host may use, in any case."""

SHARED = ("context", "artifact")
"""The families of the taxonomy that modules may use."""

EVENT_CHARS = 100
STATUS_CHARS = 200

_WORD = r"[A-Za-z0-9_.-]+"
_OWN_NAME = re.compile(f"{_WORD}(:{_WORD})+")
_STATUS = re.compile(_WORD)


def module_event_problem(fields: Mapping[str, Any]) -> str | None:
    """Say why a module cannot write an entry with these fields, or return None.

    `fields` are `event`, and `data` and `status` if it has them. A module may use the names of the
    taxonomy that are about contexts and artifacts, and any name of its own with a ":". A `status`
    is one word: with spaces it would read as more than that in `stdiod events`.
    """
    name = fields.get("event")
    if not isinstance(name, str) or len(name) > EVENT_CHARS or not _OWN_NAME.fullmatch(name):
        return (
            f'"event" is {described(name)}, it must be a name such as "mine:step" of at most'
            f" {EVENT_CHARS} letters, digits and _.-:"
        )
    family = name.partition(":")[0].lower()  # `Session:end` is read as `session:end`
    if family in HOST_OWNED:
        return (
            f'"event" is {described(name)}, and events of {family}:* are the host\'s own, in any'
            ' case; it must be a name such as "mine:step"'
        )
    if family in SHARED and name not in TAXONOMY:
        known = [one for one in TAXONOMY if one.startswith(f"{family}:")]
        near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        return f'"event" is {described(name)}, which is not in the taxonomy{near}'
    status = fields.get("status")
    is_word = isinstance(status, str) and _STATUS.fullmatch(status) is not None
    if status is not None and not (is_word and len(status) <= STATUS_CHARS):
        return (
            f'"status" is {described(status)}, it must be a word such as "ok" of at most'
            f" {STATUS_CHARS} letters, digits and _.-"
        )
    missing = [path for path in TAXONOMY.get(name, ()) if not _has(fields, path)]
    return f"{name} has no {', '.join(missing)}" if missing else None


def is_own_family(family: str) -> bool:
    """Tell whether names that begin with `family` and a ":" may be a module's own."""
    return family.lower() not in (*HOST_OWNED, *SHARED)


def _has(document: Mapping[str, Any], path: str) -> bool:
    value: Any = document
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return value is not None
