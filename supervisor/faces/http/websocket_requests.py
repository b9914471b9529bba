"""The client of one request over WebSocket (kernel.parties.Client): what it is told become frames.

Prompted     the events of a prompt; the last one tells how it ended
Subscribed   one answer, then events without an id
Cancelled    what was cancelled
Invoked      the events of an invocation, and its response
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from protocol.amcp import EventType
from protocol.amcp_errors import error_of
from protocol.errors import Failure, Success
from protocol.events import Log, Progress
from protocol.response import Response
from supervisor.faces.http.event_stream import kind_of, unified
from supervisor.faces.module_wire import event_line
from supervisor.kernel.parties import Client, Handle
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion

if TYPE_CHECKING:
    from supervisor.faces.http.websocket import WebSocket


class Asked(Client, msgspec.Struct, eq=False):
    """A request that came over a WebSocket (kernel.parties.Client)."""

    socket: WebSocket
    message_id: str | None
    session_id: str | None = None
    """The session of events that do not name one."""
    handle: Handle | None = None
    size_bytes: int = 0
    """The counted bytes of the request."""
    unread_bytes: int = 0

    def event(self, event: Progress, line: bytes | None) -> None:
        size = self.tell_event(event, line)
        if self.socket.outbox.congested:
            self.unread_bytes += size

    def tell_event(self, event: Progress, line: bytes | None) -> int:
        del event, line
        return 0

    def finished(self, response: Response) -> None:
        self.handle = None
        self.tell_end(response)
        self.socket.ended(self)

    def tell_end(self, response: Response) -> None:
        """Write the end: a failure is an error."""
        if isinstance(response.outcome, Failure):
            self.socket.refuse(self.message_id, error_of(response.outcome))

    def congested(self) -> Congestion:
        outbox = self.socket.outbox
        if not outbox.congested:
            self.unread_bytes = 0
            return Congestion.NONE
        unread = min(self.unread_bytes, outbox.waiting_bytes)
        return Congestion.FULL if unread > OVERRUN_BYTES else Congestion.SLOW


class Prompted(Asked):
    """A prompt: its events, of which the last one tells how it ended."""

    is_told: bool = False

    def tell_event(self, event: Progress, line: bytes | None) -> int:
        del line
        found = unified(event, self.session_id)
        if found is None:
            return 0
        self.is_told = found.type in (EventType.MESSAGE_COMPLETE, EventType.MESSAGE_ERROR)
        return self.socket.tell(found, self.message_id)

    def tell_end(self, response: Response) -> None:
        """Write the refusal of a request that never became a prompt."""
        if not self.is_told:
            super().tell_end(response)


class Subscribed(Asked):
    """A subscription: one answer, then events without an id."""

    def tell_event(self, event: Progress, line: bytes | None) -> int:
        del line
        found = unified(event, self.session_id)
        if found is None:
            return 0
        if isinstance(event, Log) and found.type is EventType.CONNECTED:
            told = {"action": "subscribed", "session_id": self.session_id}
            return self.socket.say("response", self.message_id, told)
        return self.socket.tell(found, None)


class Cancelled(Asked):
    def tell_end(self, response: Response) -> None:
        if isinstance(response.outcome, Success):
            told = {"action": "cancelled", **response.outcome.result}
            self.socket.say("response", self.message_id, told)
        else:
            super().tell_end(response)


class Invoked(Asked):
    """An invocation: each event as it is on the control socket, and the response."""

    def tell_event(self, event: Progress, line: bytes | None) -> int:
        data = event_line(event, None) if line is None else line
        payload = {"kind": kind_of(event), "event": msgspec.Raw(data.rstrip(b"\r\n"))}
        return self.socket.say("event", self.message_id, payload)

    def tell_end(self, response: Response) -> None:
        """Write the response, failed or not: that is the answer."""
        self.socket.say("response", self.message_id, response.shown(action="invoked"))
