"""Turn the bytes and events of processes, in pieces, into the entries of a transcript."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec

from protocol.errors import Outcome, Success
from protocol.host_call import UNENCODABLE
from protocol.transcript import EXCERPT_BYTES, KEPT_LINE_BYTES, Entry, EntrySource, Happened


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Bytes of a stream; lines may begin before them and end after."""

    at_s: float
    instance: str
    source: EntrySource
    data: bytes


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Lost bytes of a stream; `lines` is how many newlines were among them."""

    at_s: float
    instance: str
    source: EntrySource
    size: int
    lines: int
    mid_line: bool
    """Whether the last lost byte was no newline, so that the rest of a line follows."""


Heard = Piece | Gap | Entry


class Transcriber:
    """Makes entries, in the order in which the lines were completed."""

    def __init__(self) -> None:
        self.missing_bytes = 0
        self._streams: dict[tuple[str, EntrySource], _Stream] = {}

    def take(self, heard: Heard) -> list[Entry]:
        """Return the entries that these pieces complete."""
        match heard:
            case Piece():
                stream = self._stream(heard.instance, heard.source)
                entries = stream.feed(heard)
                self.missing_bytes += stream.take_lost()
                return entries
            case Gap():
                return [self._missing(heard)]
            case Entry():
                return self._happened(heard)

    def _happened(self, entry: Entry) -> list[Entry]:
        entries: list[Entry] = []
        instance = entry.instance or ""
        if entry.event is Happened.ATTACHED and entry.mid_line:
            # The line's beginning is missing, and its end alone would be taken for a line.
            self._stream(instance, EntrySource.MODULE).skip_line(count=False)
        elif entry.event is Happened.EOF:
            entries += self._finish(instance, EntrySource.MODULE, entry.at_s)
        elif entry.event is Happened.EXITED:
            for source in (EntrySource.HOST, EntrySource.MODULE, EntrySource.STDERR):
                entries += self._finish(instance, source, entry.at_s)
        return [*entries, entry]

    def end(self, at_s: float, why: str) -> list[Entry]:
        """Return the last entries; unfinished lines are kept as they are."""
        entries: list[Entry] = []
        for instance, source in list(self._streams):
            entries += self._finish(instance, source, at_s)
        ended = Entry(
            at_s=at_s,
            source=EntrySource.RECORDER,
            event=Happened.ENDED,
            missing_bytes=self.missing_bytes,
            why=why,
        )
        return [*entries, ended]

    def _missing(self, gap: Gap) -> Entry:
        stream = self._stream(gap.instance, gap.source)
        size = gap.size + stream.drop_line()
        if gap.mid_line:
            stream.skip_line(count=True)
        self.missing_bytes += size
        return Entry(
            at_s=gap.at_s,
            instance=gap.instance,
            source=EntrySource.RECORDER,
            event=Happened.MISSING,
            size=size,
            lines=gap.lines,
        )

    def _stream(self, instance: str, source: EntrySource) -> _Stream:
        stream = self._streams.get((instance, source))
        if stream is None:
            stream = self._streams[instance, source] = _Stream(instance, source)
        return stream

    def _finish(self, instance: str, source: EntrySource, at_s: float) -> list[Entry]:
        stream = self._streams.pop((instance, source), None)
        return [] if stream is None else stream.finish(at_s)


class _Stream:
    def __init__(self, instance: str, source: EntrySource) -> None:
        self._instance = instance
        self._source = source
        self._skipping = False
        self._counting = False
        self._lost = 0
        self._begin()

    def _begin(self) -> None:
        self._kept = bytearray()
        self._size = 0
        self._digest: Any = None

    def feed(self, piece: Piece) -> list[Entry]:
        *whole, tail = piece.data.split(b"\n")
        entries: list[Entry] = []
        for part in whole:
            self._extend(part)
            if not self._skipping:
                entries.append(self._entry(piece.at_s, newline=True))
            self._skipping = False
            self._begin()
        self._extend(tail)
        return entries

    def drop_line(self) -> int:
        size = self._size
        self._begin()
        self._skipping = False
        return size

    def skip_line(self, *, count: bool) -> None:
        """Skip bytes up to the next newline; with `count`, as lost."""
        self._skipping, self._counting = True, count

    def take_lost(self) -> int:
        lost, self._lost = self._lost, 0
        return lost

    def finish(self, at_s: float) -> list[Entry]:
        entries = [self._entry(at_s, newline=False)] if self._size else []
        self._begin()
        return entries

    def _extend(self, part: bytes) -> None:
        if self._skipping:
            self._lost += len(part) if self._counting else 0
            return
        self._size += len(part)
        if self._digest is None:
            self._kept += part
            if self._size > KEPT_LINE_BYTES:
                self._digest = hashlib.sha256(self._kept)
                self._kept = self._kept[:EXCERPT_BYTES]
        else:
            self._digest.update(part)

    def _entry(self, at_s: float, *, newline: bool) -> Entry:
        line, encoded = _text(bytes(self._kept))
        cut = self._digest is not None
        return Entry(
            at_s=at_s,
            instance=self._instance,
            source=self._source,
            line=line,
            base64=encoded,
            newline=newline,
            size=self._size if cut else None,
            sha256=self._digest.hexdigest() if cut else None,
        )


def _text(data: bytes) -> tuple[str | None, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as a document; a result too large or too deep is left out.

    The module's own line has it anyway; an absent result is not compared.
    """
    document: dict[str, Any] = {"ok": isinstance(outcome, Success)}
    if isinstance(outcome, Success):
        if _fits(outcome.result):
            document["result"] = outcome.result
    else:
        details = outcome.details if _fits(outcome.details) else {}
        document["error"] = {"code": outcome.code, "message": outcome.message, "details": details}
    if outcome.summary is not None:
        document["summary"] = outcome.summary
    return document


def _fits(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= KEPT_LINE_BYTES
    except UNENCODABLE:
        return False
