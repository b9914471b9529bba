r"""The transcript of a module's conversation: its records, and the reading of a file.

A transcript is JSON Lines: a `Header`, then one `Entry` for each request, answer, event and line
(`schemas/transcript.v1.json`). The requests are what a replay goes by: it asks them again. The
lines are for people, and of the module also what the replay hears. They have the exact bytes both
ways, so that a `\r\n`, a byte order mark, bytes that are no UTF-8 and a missing last newline
survive. A line that came in several pieces is one entry for each (`said`); `Transcript.instances`
puts them together. No file is touched here.

Older transcripts have no requests (`supervisor.transcripts.old_form`), and of a line of more than
`KEPT_LINE_BYTES` only the beginning.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from protocol.connection import Request
from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.model import WHENCE, Descriptor, Lifecycle
from protocol.errors import Failure, Outcome, Success
from protocol.host_call import UNENCODABLE
from protocol.json_document import read_document
from protocol.problem import printable
from protocol.replies import Operation
from protocol.version import VERSION

KEPT_LINE_BYTES = 1 << 20
"""A longer line is shown as its length and digest, and a longer result is left out."""


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
    the rest of the line is in another entry, or never came. With `sha256` the entry has only the
    beginning of the line; `size` (bytes) and `sha256` are those of the whole line.

    A request has `operation`, and as an outcome `outcome`. The answer to a call of the module has
    `call_id` and `outcome`; `request_id` if the call belonged to a request.
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
    args: dict[str, Any] | None = None
    session_id: str | None = None
    call_id: str | None = None
    outcome: dict[str, Any] | None = None
    event: Happened | None = None
    pid: Count | None = None
    mid_line: bool | None = None
    exit_code: int | None = None
    signal: int | None = None
    stopped_by_host: bool | None = None
    limit: dict[str, Any] | None = None
    stream: EntrySource | None = None
    """The one of which bytes are missing."""
    lines: Count | None = None
    missing_bytes: Count | None = None
    why: str | None = None

    @property
    def is_line(self) -> bool:
        return self.line is not None or self.base64 is not None

    @property
    def is_answer(self) -> bool:
        return self.call_id is not None

    @property
    def is_request(self) -> bool:
        return self.operation is not None and self.outcome is None

    @property
    def request(self) -> Request:
        """The request that the entry is, or whose outcome it is, which does not say its args."""
        operation = self.operation or Operation.INVOKE
        args = {} if self.args is None else self.args
        return Request(self.request_id or "", operation, self.op or "", args, self.session_id)

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
        """Return the entries of each process, in the order of the first entries.

        Lines are whole: what came in pieces has the place of the last one.
        """
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.instance is not None:
                found.setdefault(entry.instance, []).append(entry)
        return {instance: list(_joined(entries)) for instance, entries in found.items()}


def _joined(entries: Iterable[Entry]) -> Iterator[Entry]:
    pieces: dict[EntrySource, list[Entry]] = {}
    for entry in entries:
        if entry.is_line and not entry.newline:
            pieces.setdefault(entry.source, []).append(entry)
            continue
        if entry.is_line:
            yield _whole([*pieces.pop(entry.source, []), entry])
            continue
        if entry.event is Happened.MISSING and entry.stream is not None:
            pieces.pop(entry.stream, None)  # the recorder went on with the next line
        elif entry.event is Happened.EOF:
            yield from _ended(pieces, EntrySource.MODULE)
        elif entry.event is Happened.EXITED:
            yield from _ended(pieces, *SPEAKERS)
        yield entry
    yield from _ended(pieces, *SPEAKERS)


def _ended(pieces: dict[EntrySource, list[Entry]], *sources: EntrySource) -> Iterator[Entry]:
    for source in sources:
        if source in pieces:
            yield _whole(pieces.pop(source))


def _whole(pieces: list[Entry]) -> Entry:
    if len(pieces) == 1:
        return pieces[0]
    line, encoded = _text(b"".join(one.content() for one in pieces))
    return msgspec.structs.replace(pieces[-1], line=line, base64=encoded)


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


def header_of(descriptor: Descriptor, recorded: str) -> Header:
    """Return the header of a transcript; `recorded` is the time of its beginning, ISO 8601."""
    return Header(
        transcript=1,
        module=descriptor.name,
        protocol=descriptor.transport.protocol,
        lifecycle=descriptor.transport.lifecycle,
        descriptor=descriptor_document(descriptor),
        recorded=recorded,
        stdiod=VERSION,
        source=descriptor.source,
    )


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


SPEAKERS = (EntrySource.HOST, EntrySource.MODULE, EntrySource.STDERR)
"""The sources whose entries are lines of a stream."""

_OF_RECORDER = (Happened.MISSING, Happened.ENDED)


def _faults(entry: Entry) -> Iterator[str]:
    """Say which fields of an entry do not go together."""
    kinds = (entry.is_line, entry.is_request, entry.outcome is not None, entry.event is not None)
    if sum(kinds) != 1:
        yield (
            'an entry is a line ("line" or "base64"), a request ("operation"), an "outcome" or an '
            '"event", one of them'
        )
    elif entry.source is not EntrySource.RECORDER and entry.instance is None:
        yield '"instance" is missing; it is the process\'s name, such as "dice#1"'
    elif entry.is_line:
        yield from _line_faults(entry)
    elif entry.is_request:
        yield from _request_faults(entry)
    elif entry.outcome is not None:
        yield from _outcome_faults(entry)
    elif entry.event is not None:
        yield from _event_faults(entry, entry.event)


def _line_faults(entry: Entry) -> Iterator[str]:
    if entry.source not in SPEAKERS:
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


def _request_faults(entry: Entry) -> Iterator[str]:
    if entry.source is not EntrySource.HOST:
        yield f'a request is from "host", not from "{entry.source}"'
    if entry.request_id is None:
        yield 'a request needs "request_id"'


def _outcome_faults(entry: Entry) -> Iterator[str]:
    if entry.source is not EntrySource.HOST:
        yield f'an "outcome" is from "host", not from "{entry.source}"'
    if not entry.is_answer and (entry.request_id is None or entry.operation is None):
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
    if entry.stream not in (None, *SPEAKERS):
        yield f'the "stream" is "host", "module" or "stderr", not "{entry.stream}"'
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


def said(at_s: float, instance: str, source: EntrySource, data: bytes) -> Iterator[Entry]:
    """Yield the entries of bytes: one for each line, and for the piece of one at either end."""
    *lines, rest = data.split(b"\n")
    for line in lines:
        yield _said(at_s, instance, source, line)
    if rest:
        yield msgspec.structs.replace(_said(at_s, instance, source, rest), newline=False)


def _said(at_s: float, instance: str, source: EntrySource, data: bytes) -> Entry:
    line, encoded = _text(data)
    return Entry(at_s=at_s, instance=instance, source=source, line=line, base64=encoded)


def _text(data: bytes) -> tuple[str | None, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


def asked(at_s: float, instance: str, request: Request) -> Entry:
    """Return the entry of a request; args that cannot be encoded are left out."""
    return Entry(
        at_s=at_s,
        instance=instance,
        source=EntrySource.HOST,
        request_id=request.request_id,
        operation=request.operation,
        op=request.op or None,
        args=request.args if request.args and _size(request.args) is not None else None,
        session_id=request.session_id,
    )


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


def outcome_of(document: dict[str, Any]) -> Outcome:
    """Return the outcome that a document stands for, as far as it says it."""
    if document["ok"]:
        return Success(document.get("result"), document.get("summary"))
    error = document.get("error")
    told = error if isinstance(error, dict) else {}
    return Failure(str(told.get("code", "")), str(told.get("message", "")))


def _fits(value: Any) -> bool:
    size = _size(value)
    return size is not None and size <= KEPT_LINE_BYTES


def _size(value: Any) -> int | None:
    """Return the size of a value as JSON (bytes); None if it cannot be encoded."""
    try:
        return len(msgspec.json.encode(value))
    except UNENCODABLE:
        return None
