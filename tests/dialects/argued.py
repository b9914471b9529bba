"""It has arguments and a stdin for each request, and what it prints is the result.

PROGRAM --times 3 < text                          -> all of stdout, at its end
"""

from __future__ import annotations

from protocol.connection import (
    NOTHING,
    Answered,
    Connection,
    Events,
    LocalError,
    Memory,
    NewId,
    Request,
    Unanswered,
    Wait,
)
from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Reason, Success
from protocol.framing import Outgoing, Written


class ArguedConnection(Connection):
    closes_stdin = True
    waits: tuple[Wait, ...] = ()

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        self.outgoing = Outgoing()
        self.arguments: tuple[str, ...] = ()
        self._limit = descriptor.supervision.limits.line_bytes
        self._open = ""
        self._printed = bytearray()

    def ask(self, request: Request) -> Events:
        if self._open:
            raise LocalError("a command serves one request")
        times = request.args.get("times", 1)
        if not isinstance(times, int):
            words = '"times" must be a whole number'
            return [Answered(request.request_id, Failure.because(Reason.INVALID_ARGS, words))]
        self._open = request.request_id
        self.arguments = ("--times", str(times))
        self.outgoing.add(str(request.args.get("text", "")).encode(), request.request_id)
        return NOTHING

    def cancel(self, request_id: str, written: Written) -> Events:
        if request_id == self._open:
            self._open = ""
        return NOTHING

    def receive_data(self, data: bytes) -> Events:
        if len(self._printed) <= self._limit:
            self._printed += data
        return NOTHING

    def receive_eof(self) -> Events:
        if not self._open:
            return NOTHING
        request_id, self._open = self._open, ""
        if len(self._printed) > self._limit:
            words = f"it printed more than {self._limit} bytes"
            return [Answered(request_id, Failure.because(Reason.LINE_TOO_LONG, words))]
        return [Answered(request_id, Success(self._printed.decode(errors="replace")))]

    def process_exited(self, code: int | None) -> Events:
        request_id, self._open = self._open, ""
        return [Unanswered(request_id)] if request_id else NOTHING
