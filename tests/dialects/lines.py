"""What the made-up dialects share: JSON lines, a greeting, requests by id.

{"hello": ...}                                    -> {"ready": description}
{"id": "r1", "do": op, "with": args}              -> {"id": "r1", "got": ...}
{"drop": "r1"}
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.connection import (
    NOTHING,
    Answered,
    Asked,
    Events,
    Flow,
    HostCalled,
    LocalError,
    Memory,
    NewId,
    Quarantined,
    Ready,
    Request,
    StartFailed,
    Stray,
    Unanswered,
    Wait,
)
from protocol.descriptor.model import Descriptor
from protocol.dialects.lines import LineConnection
from protocol.errors import Outcome, Reason, Success
from protocol.frames import encode_line
from protocol.framing import Written
from protocol.host_call import UNENCODABLE, Chunk
from protocol.json_line import Fault, excerpt, read_object
from protocol.replies import DescribeReply, Operation


class GreetedConnection(LineConnection):
    """A connection that greets, and is ready when it is greeted back."""

    waits: tuple[Wait, ...] = ()

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        super().__init__(descriptor.supervision.limits.line_bytes)
        self.memory = memory
        self.open: set[str] = set()
        self.ready = False

    def tell(self, request_id: str = "", **message: Any) -> None:
        self.outgoing.add(encode_line(message), request_id)

    def start(self) -> Events:
        self.tell(hello="new")
        return NOTHING

    def ask(self, request: Request) -> Events:
        request_id = request.request_id
        if request_id in self.open:
            raise LocalError(f"{request_id} is open")
        op = request.op or str(request.operation)
        message = {"id": request_id, "do": op, "with": request.args}
        self.outgoing.add(encode_line(message), request_id)
        self.open.add(request_id)
        return NOTHING

    def cancel(self, request_id: str, written: Written) -> Events:
        if request_id in self.open:
            self.open.discard(request_id)
            if written is Written.ALL:
                self.tell(drop=request_id)
        return NOTHING

    def flow(self, request_id: str, operation: Flow) -> Events:
        if request_id in self.open:
            self.tell(**{operation: request_id})
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        said = outcome.result if isinstance(outcome, Success) else {"code": outcome.code}
        try:
            self.tell(result_of=asked.call.call_id, said=said)
        except UNENCODABLE:
            self.tell(result_of=asked.call.call_id, said={"code": "internal"})
        return NOTHING

    def _receive_line(self, line: bytes) -> None:
        message = read_object(line)
        if isinstance(message, Fault):
            self._events.append(Quarantined(message))
        else:
            self._events += self.hears(message, line)

    def _reject(self, fault: Fault) -> None:
        self._events.append(Quarantined(fault))

    _reject_cut_off = _reject

    def process_exited(self, code: int | None) -> Events:
        unanswered, self.open = sorted(self.open), set()
        self.waits = ()
        return [Unanswered(one) for one in unanswered]

    def time_passed(self, wait: Wait) -> Events:
        return NOTHING

    def sent(self, line: bytes) -> Events:
        message = read_object(line)
        if isinstance(message, Fault):
            return NOTHING
        if isinstance(message.get("drop"), str):
            self.open.discard(message["drop"])
        request_id, op = message.get("id"), message.get("do")
        if not isinstance(request_id, str) or not isinstance(op, str) or request_id in self.open:
            return NOTHING
        self.open.add(request_id)
        operation = Operation(op) if op in ("health", "describe") else Operation.INVOKE
        return [Asked(Request(request_id, operation, op))]

    # What it makes of a message.

    def hears(self, message: dict[str, Any], line: bytes) -> Events:
        if "got" in message:
            return self.answered(message, line)
        if "ready" in message and not self.ready:
            return self.becomes_ready(message["ready"])
        return [Quarantined(Fault(Reason.INVALID_EVENT, "it means nothing", excerpt(line)))]

    def answered(self, message: dict[str, Any], line: bytes) -> Events:
        request_id = message.get("id")
        if not isinstance(request_id, str) or request_id not in self.open:
            return [Stray(excerpt(line))]
        self.open.discard(request_id)
        return [Answered(request_id, Success(message["got"]))]

    def becomes_ready(self, description: Any) -> Events:
        self.waits = ()
        try:
            msgspec.convert(description, DescribeReply)
        except msgspec.ValidationError as error:
            return [StartFailed("bad_greeting", f"greeted back wrongly: {error}")]
        self.ready = True
        return [Ready(description, "greeted back")]
