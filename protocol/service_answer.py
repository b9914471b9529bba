"""One request to a service over HTTP, and its answer: Module Protocol v1, read as it comes.

    POST URL/health       {}
    POST URL/describe     {}
    POST URL/invoke       {"op", "args", "session_id"}

    200 application/json         the answer, over any number of lines
        application/x-ndjson     events of Spec 001 and the answer, one in a line
        text/event-stream        the same, each in the data of an event

A line has its meaning in the dialect `module`, whose connection reads it. Its request is that of
the HTTP connection: a `requestId` is the service's own, and is dropped. So is an asset: its path is
on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.connection import (
    Answered,
    EventReceived,
    Events,
    Notice,
    Received,
    Request,
    Unanswered,
    Violated,
    Warned,
)
from protocol.descriptor.model import Descriptor, Lifecycle, StdoutPolicy
from protocol.dialects.module import ModuleConnection
from protocol.errors import Failure, Reason
from protocol.events import Asset
from protocol.frames import encode
from protocol.framing import BOM, EXCERPT_BYTES, Line, LineSplitter, Overlong
from protocol.json_line import excerpt, overlong_fault
from protocol.replies import EXPECTED, Operation

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
MEDIA = (JSON, NDJSON, SSE)

HIDDEN = b"***"
"""Shown in place of a secret that a service repeats."""

ASSET_ELSEWHERE = (
    "asset_elsewhere",
    "an asset of a service was left out: its file is where the service runs",
)

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ID = b'requestId"'


_DATA = b"data:"


class EventDataSplitter:
    r"""Cut a text/event-stream into the data of its events; holds at most one unfinished event.

    Of the fields of an event only `data` counts here, of which there may be several: together they
    hold one JSON text, in which the line breaks between them are white space. A line ends with
    `\n`, `\r\n` or `\r` (HTML, "Interpreting an event stream"); an event ends with a blank one, or
    with the stream.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Accept data of up to `limit_bytes`; of an event with more only the beginning is kept."""
        self._limit = limit_bytes
        self._line = bytearray()
        self._data = bytearray()
        self._is_blank = True
        """Whether the unfinished line is empty so far, dropped bytes included."""
        self._discarding = False
        self._after_return = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Line]:
        if not data:
            return []
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        found: list[Line] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._extend(piece, found)
            self._end_line(found)
        self._extend(rest, found)
        return found

    def finish(self) -> Line | None:
        """Return the data of an event without its blank line at the end of the stream, if any."""
        found: list[Line] = []
        self._end_line(found)
        self._dispatch(found)
        return found[0] if found else None

    def _extend(self, piece: bytes, found: list[Line]) -> None:
        self._is_blank = self._is_blank and not piece
        if self._discarding:
            return
        self._line += piece
        if len(self._data) + len(self._line) > self._limit + len(_DATA) + 1:
            shown = bytes(self._data or self._line.removeprefix(_DATA))[:EXCERPT_BYTES]
            found.append(Overlong(self._limit, shown))
            self._line, self._data = bytearray(), bytearray()
            self._discarding = True

    def _end_line(self, found: list[Line]) -> None:
        line, self._line = self._line, bytearray()
        if self._at_start:
            line = line.removeprefix(BOM)
            self._at_start = False
        if self._is_blank:
            self._dispatch(found)
        elif line.startswith(_DATA):
            if self._data:
                self._data += b" "
            self._data += line[len(_DATA) :].removeprefix(b" ")
        self._is_blank = True

    def _dispatch(self, found: list[Line]) -> None:
        if self._data:
            found.append(bytes(self._data))
        self._data = bytearray()
        self._discarding = False


def request_body(request: Request) -> bytes:
    if request.operation is not Operation.INVOKE:
        return b"{}"
    asked: dict[str, Any] = {"op": request.op, "args": request.args}
    if request.session_id is not None:
        asked["session_id"] = request.session_id
    return encode(asked)


class ServiceAnswer:
    """The answer to one request, from the first byte of the body to its end."""

    def __init__(
        self, media: str, descriptor: Descriptor, request: Request, secrets: Sequence[bytes] = ()
    ) -> None:
        """Read a body of one of `MEDIA`; the `secrets` are hidden in events and faults."""
        self.is_over = False
        """Whether the answer has come; further bytes are dropped, and counted."""
        self._media = media
        self._request = request
        self._secrets = secrets
        transport = msgspec.structs.replace(
            descriptor.transport, lifecycle=Lifecycle.PER_INVOCATION, stdout=StdoutPolicy.STRICT
        )
        alone = msgspec.structs.replace(descriptor, transport=transport)
        self._connection = ModuleConnection(alone, lambda: "", {})
        self._connection.ask(msgspec.structs.replace(request, args={}))
        limit = descriptor.supervision.limits.line_bytes
        self._lines = EventDataSplitter(limit) if media == SSE else LineSplitter(limit)

    def receive_data(self, data: bytes) -> Events:
        if self._media == JSON:
            data = data.replace(b"\n", b" ")  # of one object, wherever its lines end
        return [one for line in self._lines.feed(data) for one in self._receive(line)]

    def receive_eof(self) -> Events:
        """Take the end of the body; the request is answered then."""
        line = self._lines.finish()
        received = [] if line is None else self._receive(line, is_last=True)
        if not self.is_over:
            self.is_over = True
            received.append(Answered(self._request.request_id, self._missing()))
        return received

    @property
    def reported(self) -> dict[str, Any] | None:
        """The last error that the service reported, if it ended without an answer."""
        for one in self._connection.process_exited(None):
            if isinstance(one, Unanswered) and one.error is not None:
                return one.error.as_reported
        return None

    def _receive(self, line: Line, *, is_last: bool = False) -> list[Received]:
        if isinstance(line, Overlong):
            fault = overlong_fault(line)
            events: Events = [Answered(self._request.request_id, fault.failure(), fault)]
        elif is_last and self._media == NDJSON:
            read = self._connection.receive_data(self._own(line))
            events = [*read, *self._connection.receive_eof()]  # it may be cut off
        else:
            events = self._connection.receive_data(self._own(line) + b"\n")
        return [one for item in events if (one := self._told(item)) is not None]

    def _own(self, line: bytes) -> bytes:
        """Return a line without an id of the service's own, and without secrets."""
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        if line.find(_ID) < 0:
            return line
        try:
            members = _MEMBERS(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line
        return encode(members) if members.pop("requestId", None) is not None else line

    def _told(self, item: Received) -> Received | None:
        if isinstance(item, Violated):
            item = Answered(item.request_id, item.fault.failure(), item.fault)
        elif isinstance(item, EventReceived) and isinstance(item.event, Asset):
            shown = excerpt(item.line or b"")
            item = Warned(item.request_id, Notice(*ASSET_ELSEWHERE, shown))
        if isinstance(item, Answered):
            if self.is_over:
                return None
            self.is_over = True
        return item

    def _missing(self) -> Failure:
        words = f"the answer has no {EXPECTED[self._request.operation]}"
        if self._media != JSON and self._request.operation is Operation.INVOKE:
            words += " and no `done` at its end"
        return Failure.because(Reason.MISSING_DONE, words, reported=self.reported)
