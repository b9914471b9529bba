"""Read kept sessions; the log names what cannot be read, which stays where it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import structlog

from protocol.problem import printable
from supervisor.kernel.recorder import Restored
from supervisor.kernel.sessions.history import KIND as PAST
from supervisor.kernel.sessions.history import KeptPast
from supervisor.kernel.sessions.session import SessionDocument

KIND = "session"
"""The kind of the documents."""

T = TypeVar("T")

log = structlog.get_logger()


class _Patch(msgspec.Struct, frozen=True):
    """A patch to be merged again; `ts` is the time of the first merge (Unix time, s)."""

    session_id: str
    revision: int
    ts: float
    patch: dict[str, Any]


class _Data(msgspec.Struct):
    patch: dict[str, Any]


class _Entry(msgspec.Struct):
    ts: float
    data: _Data


def documents(restored: Restored) -> list[SessionDocument]:
    """Return the kept sessions, in the order in which they began."""
    found: list[SessionDocument] = []
    for one in restored.documents(KIND):
        document = _decode(one.body, SessionDocument)
        if isinstance(document, SessionDocument) and document.session_id != one.name:
            document = "it has another id inside"
        if isinstance(document, str):
            log.error("session not restored", session=printable(one.name), words=document)
        else:
            found.append(document)
    return sorted(found, key=lambda one: (one.created, one.session_id))


def patches(restored: Restored) -> Iterator[_Patch]:
    """Return the patches that are newer than the documents, in their order."""
    for one in restored.patches:
        entry = _decode(one.event, _Entry)
        if isinstance(entry, str):
            not_restored(one.session_id, one.revision, entry)
        else:
            yield _Patch(one.session_id, one.revision, entry.ts, entry.data.patch)


def pasts(restored: Restored) -> list[KeptPast]:
    """Return the invocations that ended after the documents, in their order."""
    found: list[KeptPast] = []
    for one in restored.documents(PAST):
        kept = _decode(one.body, KeptPast)
        if isinstance(kept, str):
            log.error("invocation of a session not restored", name=printable(one.name), words=kept)
        else:
            found.append(kept)
    return sorted(found, key=lambda one: one.number)


def not_restored(session_id: str, revision: int, why: str) -> None:
    """Log a patch that is lost."""
    log.error("patch not restored", session=printable(session_id), revision=revision, words=why)


def _decode(data: bytes, kind: type[T]) -> T | str:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
