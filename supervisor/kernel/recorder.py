"""The daemon's memory, as the rest of the kernel uses it: a place to record and to keep things.

    record   an entry of the journal: what happened
    keep     the newest form of a document: what there is now, such as a session
    flush    a callback when all that was recorded and kept so far outlives the process

All three return at once. `kernel.journal` writes to disk; the `Recorder` here keeps nothing, for a
daemon that lives for one invocation.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import structlog

from protocol.errors import Failure, Reason
from protocol.host_call import UNENCODABLE
from protocol.journal_event import JournalEvent
from protocol.problem import printable
from supervisor.kernel.store.settings import DocumentKey, Span

DEPTH = 32
"""Values that cannot be encoded are copied this deep, with the bad parts replaced."""

T = TypeVar("T")

log = structlog.get_logger()

_encode = msgspec.json.Encoder().encode


def encoded(entry: JournalEvent) -> tuple[JournalEvent, bytes]:
    """Return an entry as it could be encoded, and its JSON: all of it, unless it is no JSON."""
    try:
        return entry, _encode(entry)
    except UNENCODABLE:
        # A name on disk that is no UTF-8, say: an entry with a mark in it is better than none.
        # `by` is JSON already, and by the daemon itself.
        whole = _encodable(msgspec.structs.asdict(msgspec.structs.replace(entry, by=None)))
        marked = msgspec.structs.replace(msgspec.convert(whole, JournalEvent), by=entry.by)
        return marked, _encode(marked)


def _encodable(value: Any, depth: int = DEPTH) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case bool() | int() | float() | None:
            return value
        case Mapping() if depth:
            return {
                str(_encodable(str(key))): _encodable(one, depth - 1) for key, one in value.items()
            }
        case list() | tuple() if depth:
            return [_encodable(one, depth - 1) for one in value]
        case _:
            return "\N{REPLACEMENT CHARACTER}"


Overhear = Callable[[JournalEvent, bytes], None]
"""Called with each entry as it is recorded, and its JSON (`schemas/event.v1.json`); must neither
block nor raise."""

Unended = bytes | msgspec.Struct
"""A document that its end replaces; a struct is frozen, and encoded when it is written, which most
never are."""

Kept = Callable[[Failure | None], None]
"""Called once, in the event loop: with None, or with why it could not be stored."""


class CutShort(msgspec.Struct, frozen=True):
    """An invocation that was in flight when the daemon before this one ended."""

    session_id: str
    request_id: str
    module: str
    op: str
    duration_ms: int
    ts: float
    """When it was accepted (Unix time, s)."""


class Restored(msgspec.Struct):
    """What a daemon finds at its start of what the daemon before it kept; taken by its owners."""

    kinds: dict[str, list[tuple[str, bytes]]] = {}
    """The documents of each kind, as name and content, by name."""
    patches: list[tuple[str, int, bytes]] = []
    """Each `session:patch` that is newer than its session's document, in the order of merging.

    The session's id, the revision and the entry of the journal (`schemas/event.v1.json`)."""
    cut_short: list[CutShort] = []
    """Invocations of sessions that the daemon before left unanswered; the journal has their end."""

    def take(self, kind: str, type_: type[T], named_by: str = "") -> Iterator[tuple[str, T, int]]:
        """Yield name, content and size of each document of a kind, once: they may be large.

        `named_by` is the field that has to be the name. A document that cannot be read stays where
        it is, and is logged.
        """
        for name, body in self.kinds.pop(kind, ()):
            try:
                content = msgspec.json.decode(body, type=type_)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                words = str(error)
            else:
                own_name = getattr(content, named_by) if named_by else name
                if own_name == name:
                    yield name, content, len(body)
                    continue
                words = f"it is of {own_name!r:.130}"
            log.warning("a document was not restored", kind=kind, name=printable(name), words=words)


class Recorder:
    """Where the kernel's parts record what happens; this one keeps nothing."""

    wall_clock: Callable[[], float] = time.time
    _listener: Overhear | None = None
    _keeps = False
    """Whether an entry is worth making without a listener."""

    def __init__(self) -> None:
        self.life = uuid.uuid4().hex[:8]
        """The beginning of the ids that this run of the daemon gives."""
        self.new_span: Callable[[], str] = map(
            f"{self.life}-{{:x}}".format, itertools.count(1)
        ).__next__
        """Returns an id for something that begins and ends; nothing else has it, ever."""
        self.span_of: Callable[[str], str] = f"{self.life}-i".__add__
        """Returns such an id for a request: always the same; no digit of others is an "i"."""
        self.restored = Restored()
        """What the daemon before this one kept."""
        self.on_loss: list[Callable[[], None]] = []
        """Called when documents were lost: all are then kept again."""

    def record(
        self,
        event: str,
        *,
        module: str | None = None,
        status: str | None = None,
        duration_ms: int | None = None,
        data: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        request_id: str | None = None,
        span_id: str | None = None,
        by: msgspec.Raw | None = None,
        in_place_of: DocumentKey | None = None,
    ) -> None:
        """Add an entry; `event` is one of `protocol.journal_event.REGISTRY`.

        `by` is who asked for it (`policy.principals.Principal.by`).
        `data` and `error` are encoded at once, so they may change later. The document
        `in_place_of` is deleted when the entry is written: after a crash one of both is there.
        """
        if self._listener is None and not self._keeps:
            return
        entry = JournalEvent(
            id=self.new_span(),
            ts=self.wall_clock(),
            event=event,
            component="supervisor",
            module=module,
            status=status,
            duration_ms=duration_ms,
            data=data,
            error=error,
            session_id=session_id,
            request_id=request_id,
            span_id=span_id,
            by=by,
        )
        self._write(entry, in_place_of)

    def _write(self, entry: JournalEvent, in_place_of: DocumentKey | None) -> None:
        del in_place_of
        if self._listener is not None:
            self._listener(*encoded(entry))

    def keep(self, kind: str, name: str, document: bytes | None, revision: int = 0) -> None:
        """Store a document (JSON) in place of the one of that kind and name; None deletes it."""

    def span_began(self, key: DocumentKey, document: Unended) -> None:
        """Store a document of what began, until `record` or `span_ended` takes its place."""

    def span_ended(self, span: Span) -> bool:
        """Record that an invocation ended well, in a third of the time that `record` takes.

        Returns False if that has to be done by `record`: somebody overhears, or nothing is kept.
        """
        del span
        return False

    def flush(self, done: Kept) -> None:
        """Call `done` when all that was written before is durable, or cannot be made so."""
        done(None)

    def flush_is_late(self, after_s: float) -> Failure:
        """Note that a flush was not answered for so long, and return its failure."""
        words = f"the disk took longer than {after_s:g} s to store what changed"
        return Failure.because(Reason.STORAGE, words)

    def unavailable(self) -> Failure | None:
        """Return why nothing can be kept at the moment, for requests that would need it."""
        return None

    @property
    def is_complete(self) -> bool:
        """Whether all that was ever kept is there."""
        return True

    def overhear(self, listener: Overhear | None) -> None:
        """Call `listener` with each entry from now on, kept or not; None: nobody."""
        self._listener = listener
