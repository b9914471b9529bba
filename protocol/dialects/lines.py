r"""Base classes of dialects: a process that prints lines, and one that serves one invocation.

receive_data -> each whole line to `_receive_line`, one too long to be held to `_reject`
receive_eof  -> a last line without a newline: to `_receive_line` if it is a whole object
                (docs/protocol.md), else to `_reject_cut_off`

These three add to `_events`, which the two return.

One invocation:

    idle --ask--> open --its last word--> finished
                   | \--a fault--> broken
                   \--cancel, or the end of the process--> abandoned
"""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from protocol.assets import asset_refusal
from protocol.connection import (
    NOTHING,
    Connection,
    EventReceived,
    Events,
    LocalError,
    Received,
    Request,
    Unanswered,
    Warned,
)
from protocol.events import Asset, ErrorEvent, Progress
from protocol.framing import LineSplitter, Outgoing, Written
from protocol.json_line import Fault, excerpt, overlong_fault, read_object, truncated_fault
from protocol.replies import Operation
from protocol.weight import LONG_BYTES, collector_paused

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class OpenRequest(msgspec.Struct, gc=False):
    request_id: str
    operation: Operation
    last_error: ErrorEvent | None = None
    assets: set[str] | None = None
    """The ids of its assets so far."""

    def take(self, event: Progress, told: bytes | None) -> EventReceived | Warned:
        """Take an event that does not end the request; `told` is the line to pass on."""
        if isinstance(event, ErrorEvent):
            self.last_error = event  # 4.5: it does not terminate the invocation by itself.
        elif isinstance(event, Asset):
            self.assets = self.assets or set()
            notice = asset_refusal(event, self.assets)
            if notice is not None:
                return Warned(self.request_id, notice)
        return EventReceived(self.request_id, event, told)


class LineConnection(Connection):
    def __init__(self, line_bytes: int) -> None:
        """Accept lines of up to `line_bytes`."""
        self.outgoing = Outgoing()
        self._splitter = LineSplitter(line_bytes)
        self._events: list[Received] = []

    @property
    def unfinished_line(self) -> str | None:
        return excerpt(self._splitter.pending) if self._splitter.pending else None

    def receive_data(self, data: bytes) -> Events:
        if self._splitter.pending_bytes + len(data) > LONG_BYTES:
            with collector_paused():
                self._receive_data(data)
        else:
            self._receive_data(data)
        return self._take_events()

    def _receive_data(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            if isinstance(line, bytes):
                self._receive_line(line)
            else:
                self._reject(overlong_fault(line))

    def receive_eof(self) -> Events:
        line = self._splitter.finish()
        if isinstance(line, bytes):
            if self._is_whole(line):
                self._receive_line(line)
            else:
                self._reject_cut_off(truncated_fault(line))
        elif line is not None:
            self._reject(overlong_fault(line))
        return self._take_events()

    def _take_events(self) -> Events:
        events = self._events.copy()
        self._events.clear()
        return events

    def _is_whole(self, line: bytes) -> bool:
        return not isinstance(read_object(line), Fault)

    def _receive_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _reject(self, fault: Fault) -> None:
        """Take a line that was too long to be held."""
        raise NotImplementedError

    def _reject_cut_off(self, fault: Fault) -> None:
        """Take a last line that is not whole."""
        raise NotImplementedError


class Stage(Enum):
    IDLE = auto()
    OPEN = auto()
    FINISHED = auto()
    BROKEN = auto()
    ABANDONED = auto()


class OneInvocation(Connection):
    closes_stdin = True
    _subject: str
    """A process of the dialect, in words."""
    _stage = Stage.IDLE
    _request_id = ""

    def _check(self, request: Request) -> None:
        if self._stage is not Stage.IDLE or request.operation is not Operation.INVOKE:
            raise LocalError(f"{self._subject} serves one invocation and nothing else")

    def _begin(self, request_id: str) -> None:
        self._stage, self._request_id = Stage.OPEN, request_id

    def cancel(self, request_id: str, written: Written) -> Events:
        """Ignore all further output; the rest is left to the end of the process (Spec 001 10)."""
        del written
        if request_id == self._request_id:
            self._stage = Stage.ABANDONED
        return NOTHING

    def process_exited(self, code: int | None) -> Events:
        del code
        is_unanswered = self._stage in (Stage.OPEN, Stage.BROKEN)
        self._stage = Stage.ABANDONED
        return [Unanswered(self._request_id)] if is_unanswered else NOTHING
