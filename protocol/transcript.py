r"""The transcript of a module's conversation: its records, and the reading of a file.

A transcript is JSON Lines: a `Header`, then one `Entry` per line that was said or thing that
happened (`schemas/transcript.v1.json`). It holds the exact bytes both ways, so that a `\r\n`, a
byte order mark, bytes that are no UTF-8 and a missing last newline survive. A `Transcriber` makes
one of the bytes and events of processes; no file is touched here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.model import WHENCE, Descriptor, Lifecycle
from protocol.errors import Outcome, Success
from protocol.host_call import UNENCODABLE
from protocol.json_document import read_document
from protocol.problem import printable
from protocol.replies import Operation

KEPT_LINE_BYTES = 1 << 20
"""A longer line is kept as its beginning, with its length and digest: a transcript is a report."""

EXCERPT_BYTES = 4096
"""How much of such a line is kept."""


class EntrySource(StrEnum):
    HOST = "host"
    MODULE = "module"
    STDERR = "stderr"
    PROCESS = "process"
    RECORDER = "recorder"


class Happened(StrEnum):
    """The events of a process, and of the recording itself (the last two)."""

    SPAWNED = "spawned"
    ATTACHED = "attached"
    STDIN_CLOSED = "stdin_closed"
    EOF = "eof"
    EXITED = "exited"
    MISSING = "missing"
    ENDED = "ended"


Count = Annotated[int, msgspec.Meta(ge=0)]


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line: the module, and its descriptor."""

    transcript: Literal[1]
    module: str
    protocol: str
    lifecycle: Lifecycle
    descriptor: dict[str, Any]
    recorded: str
    """When the recording began, ISO 8601 in UTC."""
    stdiod: str
    source: str | None = None
    """The descriptor's file: where its relative paths start from."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    r"""Any other line; `_faults` says which fields go together.

    A line of a conversation has `line` (UTF-8) or `base64`, without its `\n`; `newline` is false if
    it had none. With `sha256` the entry has only the beginning of the line; `size` (bytes) and
    `sha256` are those of the whole line.
    """

    at_s: Annotated[float, msgspec.Meta(ge=0)]
    source: EntrySource = msgspec.field(name="from")
    instance: str | None = None
    line: str | None = None
    base64: str | None = None
    newline: bool = True
    size: Count | None = msgspec.field(default=None, name="bytes")
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    request_id: str | None = None
    operation: Operation | None = None
    op: str | None = None
    outcome: dict[str, Any] | None = None
    event: Happened | None = None
    pid: Count | None = None
    mid_line: bool | None = None
    exit_code: int | None = None
    signal: int | None = None
    stopped_by_host: bool | None = None
    limit: dict[str, Any] | None = None
    lines: Count | None = None
    missing_bytes: Count | None = None
    why: str | None = None

    @property
    def is_line(self) -> bool:
        return self.line is not None or self.base64 is not None

    @property
    def whole(self) -> bool:
        """Whether the entry has all bytes of its line."""
        return self.sha256 is None

    def content(self) -> bytes:
        """Return the bytes of a line, or of its beginning, without the newline."""
        if self.line is not None:
            return self.line.encode()
        return base64.b64decode(self.base64 or "")


class Transcript(msgspec.Struct, frozen=True):
    header: Header
    entries: tuple[Entry, ...]
    flaws: tuple[str, ...] = ()
    """Why the conversation is not complete, in words; empty if it is."""

    def instances(self) -> dict[str, list[Entry]]:
        """Return the entries of each process, in the order of the first entries."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.instance is not None:
                found.setdefault(entry.instance, []).append(entry)
        return found


class TranscriptError(Exception):
    """A file that is no transcript; the text names file and line and says what would be right."""


_ENTRY = msgspec.json.Decoder(Entry)
_HEADER = msgspec.json.Decoder(Header)
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_record(record: Header | Entry) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def read_transcript(lines: Iterable[bytes], name: str) -> Transcript:
    """Read a transcript's lines, each with its newline; `name` is the file, for messages.

    Raises `TranscriptError`. A last line that was cut off is no error but a flaw: a recorder that
    was killed leaves it.
    """
    numbered = iter(enumerate(lines, 1))
    _, first = next(numbered, (1, b""))
    header = _read_header(first, name)
    entries: list[Entry] = []
    flaws: list[str] = []
    for number, line in numbered:
        try:
            entries.append(_read_entry(line))
        except ValueError as error:
            if not line.endswith(b"\n"):
                flaws.append(f"line {number}, the last one, is cut off")
                break
            raise TranscriptError(f"{printable(name)}: line {number}: {error}") from None
    return Transcript(header, tuple(entries), (*flaws, *_gaps(entries)))


def descriptor_of(header: Header, name: str) -> Descriptor:
    """Return the descriptor in a header; raises `TranscriptError` if it is not a valid one."""
    source = header.source or "/transcript.json"
    try:
        return parse_descriptor(msgspec.json.encode(header.descriptor), source)
    except DescriptorError as error:
        problem = error.problems[0]
        words = f"{printable(name)}: line 1: /descriptor{problem.pointer}: {problem.message}"
        raise TranscriptError(words) from None


def descriptor_document(descriptor: Descriptor) -> dict[str, Any]:
    """Return the document of a descriptor as a file has it, with all defaults."""
    document = {
        key: value
        for key, value in msgspec.to_builtins(descriptor).items()
        if value is not None and key not in WHENCE
    }
    document["supervision"] = _without_null(document["supervision"])
    return document


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_null(inner) for key, inner in value.items() if inner is not None}


def _read_header(line: bytes, name: str) -> Header:
    try:
        return _HEADER.decode(line)
    except _FAULTS as error:
        words = f"{printable(name)}: line 1: {_words(line, error)}"
    should = '{"transcript":1,"module","protocol","lifecycle","descriptor","recorded","stdiod"}'
    raise TranscriptError(f"{words}; a transcript begins with {should}")


def _read_entry(line: bytes) -> Entry:
    try:
        entry = _ENTRY.decode(line)
    except _FAULTS as error:
        raise ValueError(_words(line, error)) from None
    fault = next(_faults(entry), None)
    if fault is not None:
        raise ValueError(fault)
    return entry


def _words(line: bytes, error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    found = read_document(line)
    if isinstance(found, list):
        return str(found[0]).replace("line 1 ", "")
    return str(error)


_SPEAKERS = (EntrySource.HOST, EntrySource.MODULE, EntrySource.STDERR)
_OF_RECORDER = (Happened.MISSING, Happened.ENDED)


def _faults(entry: Entry) -> Iterator[str]:
    """Say which fields of an entry do not go together."""
    kinds = [entry.is_line, entry.outcome is not None, entry.event is not None]
    if sum(kinds) != 1:
        yield 'an entry is a line ("line" or "base64"), an "outcome" or an "event", one of them'
    elif entry.source is not EntrySource.RECORDER and entry.instance is None:
        yield '"instance" is missing; it is the process\'s name, such as "dice#1"'
    elif entry.is_line:
        yield from _line_faults(entry)
    elif entry.outcome is not None:
        yield from _outcome_faults(entry)
    elif entry.event is not None:
        yield from _event_faults(entry, entry.event)


def _line_faults(entry: Entry) -> Iterator[str]:
    if entry.source not in _SPEAKERS:
        yield f'a line is from "host", "module" or "stderr", not from "{entry.source}"'
    if entry.line is not None and entry.base64 is not None:
        yield 'a line has "line" or "base64", not both'
    if (entry.sha256 is None) is not (entry.size is None):
        yield '"bytes" and "sha256" stand together: the length and digest of a line that is cut'
    try:
        base64.b64decode(entry.base64 or "", validate=True)
    except (binascii.Error, ValueError):
        yield '"base64" is not valid base64'
    # A line with a newline inside would be two.
    if b"\n" in entry.content():
        yield "a line holds a newline; each line is an entry of its own"


def _outcome_faults(entry: Entry) -> Iterator[str]:
    if entry.source is not EntrySource.HOST:
        yield f'an "outcome" is from "host", not from "{entry.source}"'
    if entry.request_id is None or entry.operation is None:
        yield 'an "outcome" needs "request_id" and "operation"'
    if not isinstance((entry.outcome or {}).get("ok"), bool):
        yield 'an "outcome" needs "ok", true or false'


def _event_faults(entry: Entry, event: Happened) -> Iterator[str]:
    wanted = EntrySource.RECORDER if event in _OF_RECORDER else EntrySource.PROCESS
    if entry.source is not wanted:
        yield f'the event "{event}" is from "{wanted}", not from "{entry.source}"'
    if event is Happened.EXITED and (entry.exit_code is None) is (entry.signal is None):
        yield 'the event "exited" has "exit_code" or "signal", one of them'
    if event is Happened.MISSING and (entry.size is None or entry.lines is None):
        yield 'the event "missing" needs "bytes" and "lines"'
    if event is Happened.ENDED and (entry.missing_bytes is None or entry.why is None):
        yield 'the event "ended" needs "missing_bytes" and "why"'


def _gaps(entries: list[Entry]) -> Iterator[str]:
    last = entries[-1] if entries else None
    if last is None or last.event is not Happened.ENDED:
        yield "it has no end: the recorder went away"
    # `or 0` for the type: `_event_faults` has seen to both.
    missing = sum(one.size or 0 for one in entries if one.event is Happened.MISSING)
    if last is not None and last.event is Happened.ENDED:
        missing = max(missing, last.missing_bytes or 0)
    if missing:
        yield f"{missing} bytes are missing: they came faster than they could be written"
    attached = [one.instance for one in entries if one.event is Happened.ATTACHED]
    if attached:
        yield f"it begins in the middle of {', '.join(map(str, attached))}"


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
