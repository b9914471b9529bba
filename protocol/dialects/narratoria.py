r"""Dialect `narratoria`: Spec 001, a process per invocation (docs/protocol.md).

    idle --ask--> open --done--> finished
                    \--fault (strict)--> broken

Only an open connection accepts events. Lines after `done` are strays (4.6); after a fault that
ends processing (5.2) every line is ignored. The exit code has the last word (5.3), and that is
`supervisor.policy.verdict`'s to say.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from protocol.connection import (
    NOTHING,
    TOLERABLE,
    Answered,
    Events,
    Memory,
    NewId,
    Notice,
    Request,
    Stray,
    Violated,
    Warned,
)
from protocol.descriptor.model import Descriptor, InputForm, StdoutPolicy
from protocol.dialects.lines import DECODE_ERRORS, LineConnection, OneInvocation, OpenRequest, Stage
from protocol.errors import Reason
from protocol.events import Done, Event, read_event
from protocol.frames import RequestFrame, encode_line
from protocol.host_events import decode_either
from protocol.json_line import (
    LONE_SURROGATES,
    Fault,
    excerpt,
    is_utf8,
    read_object,
    without_lone_surrogates,
)
from protocol.readdress import with_id
from protocol.replies import Operation, read_done


class NarratoriaConnection(OneInvocation, LineConnection):
    _subject = "a Spec 001 process"

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        del new_id, memory
        super().__init__(descriptor.supervision.limits.line_bytes)
        self._tool = descriptor.name
        self._flat = descriptor.transport.input is InputForm.FLAT
        self._strict = descriptor.transport.stdout is StdoutPolicy.STRICT
        self._request = OpenRequest("", Operation.INVOKE)

    def ask(self, request: Request) -> Events:
        """Queue the one line of input (Spec 001 section 6), or the args themselves when flat."""
        self._check(request)
        if self._flat:
            line = encode_line({**request.args, "requestId": request.request_id})
        else:
            line = encode_line(
                RequestFrame(request.request_id, self._tool, request.op, request.args)
            )
        self._begin(request.request_id)
        self._request = OpenRequest(request.request_id, Operation.INVOKE)
        self.outgoing.add(line, request.request_id)
        return NOTHING

    def _receive_line(self, line: bytes) -> None:
        if self._stage is not Stage.OPEN:
            if self._stage is Stage.FINISHED:
                # 4.6: "Stop accepting further events from the tool after processing `done`."
                self._events.append(Stray(excerpt(line)))
            return
        try:
            decoded = decode_either(line) if is_utf8(line) else None
        except DECODE_ERRORS:
            decoded = None
        if decoded is not None:
            event, told = decoded
            self._receive_event(event, line, told)
        else:
            document = read_object(line)
            if isinstance(document, Fault) and (mended := without_lone_surrogates(line)):
                notice = Notice(*LONE_SURROGATES, excerpt(line))
                self._events.append(Warned(self._request_id, notice))
                self._receive_line(mended)
                return
            read = document if isinstance(document, Fault) else read_event(line, document)
            if isinstance(read, Fault):
                self._reject(read)
                return
            self._receive_event(read, line, None)

    def _receive_event(self, event: Event, line: bytes, told: bytes | None) -> None:
        """Take an event; `told` is the line to pass on."""
        if event.request_id not in (UNSET, self._request_id):
            # It means nothing here, and might be the id of another request to a client.
            event = msgspec.structs.replace(event, request_id=self._request_id)
            told = None if told is None else with_id(told, self._request_id)
        if not isinstance(event, Done):
            self._events.append(self._request.take(event, told))
            return
        outcome = read_done(Operation.INVOKE, event, self._request.last_error, excerpt(line))
        if isinstance(outcome, Fault):
            self._reject(outcome)
        else:
            self._stage = Stage.FINISHED
            self._events.append(Answered(self._request_id, outcome))

    def _reject(self, fault: Fault) -> None:
        if self._stage is Stage.FINISHED:
            self._events.append(Stray(fault.excerpt))
        elif self._stage is Stage.OPEN:
            # An object that is wrong was meant as an event: it ends the processing in any case.
            if fault.reason in TOLERABLE - {Reason.INVALID_EVENT} and not self._strict:
                self._events.append(Warned(self._request_id, Notice.of(fault)))
            else:
                self._stage = Stage.BROKEN
                self._events.append(Violated(self._request_id, fault))

    _reject_cut_off = _reject
