"""A request that is answered by a stream: each event as it comes, as SSE or NDJSON.

    Lines       events as on the control socket, the response last: an invocation
    Entries     what an op of the daemon's says: entries of the journal, lines of a log
    Unified     the events of AMCP: a prompt, or what becomes of a session

A response has one status, so a stream begins with its first event, or after a while without one:
what is refused at once is told by the status, as without a stream.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from protocol.amcp import EventType, UnifiedEvent, Vocabulary, of_ui_event, to_line
from protocol.errors import Reason
from protocol.events import Log, Progress, UiEvent
from protocol.host_call import UNENCODABLE
from protocol.host_events import SeenUiEvent
from protocol.readdress import Readdresser
from protocol.response import Response
from supervisor.faces.http.connection import HttpConnection
from supervisor.faces.http.exchange import Tell, encoded, fields_of
from supervisor.faces.http.head import NDJSON, SSE
from supervisor.faces.http.streams import Streams
from supervisor.faces.module_wire import event_line
from supervisor.kernel.parties import Client, Handle
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion


class Item(NamedTuple):
    """One part of a stream.

    Its name, a JSON document, and the id after which a client can resume.
    """

    name: str
    data: bytes
    number: int | None = None


class Wanted(NamedTuple):
    """The stream that a request asks for."""

    tell: Tell
    session_id: str | None
    vocabulary: Vocabulary


class Lines:
    def __init__(self, wanted: Wanted) -> None:
        self._tell = wanted.tell
        self._readdresser = Readdresser(None)

    def event(self, event: Progress, line: bytes | None) -> Item | None:
        """Return the event without its module's id."""
        data = None if line is None else self._readdresser.readdress(line)
        data = event_line(event, None) if data is None else data
        return Item(kind_of(event), data.rstrip(b"\r\n"))

    def end(self, response: Response) -> Item | None:
        return Item("done", self._tell(response).body)

    def beat(self) -> Item | None:
        return None


class Entries(Lines):
    """The `log` events of an op of the daemon; an event with a `seq` is an entry."""

    def event(self, event: Progress, line: bytes | None) -> Item | None:
        del line
        if not isinstance(event, Log):
            return None
        fields = fields_of(event)
        number = fields.get("seq")
        name = fields.get("event") if number is not None else None
        return Item(name or "message", encoded(fields), number)


class Unified:
    """Events of AMCP; others are left out."""

    def __init__(self, wanted: Wanted) -> None:
        self._session_id = wanted.session_id
        self._vocabulary = wanted.vocabulary

    def event(self, event: Progress, line: bytes | None) -> Item | None:
        del line
        found = unified(event, self._session_id)
        return None if found is None else self._item(found)

    def end(self, response: Response) -> Item | None:
        """Return nothing: an event has told the end."""
        del response
        return None

    def beat(self) -> Item | None:
        return self._item(UnifiedEvent(EventType.HEARTBEAT, self._session_id, now()))

    def _item(self, event: UnifiedEvent) -> Item:
        try:
            data = to_line(event, self._vocabulary)
        except UNENCODABLE:
            data = to_line(msgspec.structs.replace(event, payload={}), self._vocabulary)
        return Item(str(event.type), data.rstrip(b"\n"))


class Watched(Unified):
    """The events of a session, until its client or the daemon goes."""

    def end(self, response: Response) -> Item | None:
        del response
        return self._item(UnifiedEvent(EventType.DISCONNECTED, self._session_id, now()))


def unified(event: Progress, session_id: str | None) -> UnifiedEvent | None:
    """Return an event of AMCP, None if it has no counterpart there.

    A `log` is about the subscription: that it has begun, or lost some.
    """
    if isinstance(event, Log):
        if event.level == "info":
            return UnifiedEvent(EventType.CONNECTED, session_id, now())
        return UnifiedEvent(EventType.HEARTBEAT, session_id, now(), {"message": event.message})
    if not isinstance(event, UiEvent):
        return None
    if isinstance(event, SeenUiEvent):
        session_id = event.origin.get("session_id")
    return of_ui_event(event, session_id, now())


def now() -> str:
    """Return the time as AMCP has it."""
    second, ms = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{_whole(second)}.{ms:03}+00:00"


@lru_cache(maxsize=1)
def _whole(second: int) -> str:
    """Return a second; within it, only the milliseconds are formatted anew."""
    return dt.datetime.fromtimestamp(second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def kind_of(event: Progress) -> str:
    return str(type(event).__struct_config__.tag)


EVENT_TYPES = [str(one) for one in EventType]

Form = Lines | Unified
FormOf = Callable[[Wanted], Form]


class Stream(Client):
    """A request that is answered by a stream (kernel.parties.Client)."""

    def __init__(
        self, connection: HttpConnection, media: str, form: Form, tell: Tell, streams: Streams
    ) -> None:
        self.handle: Handle | None = None
        self._connection = connection
        self._is_sse = media == SSE
        self._form = form
        self._tell = tell
        self._streams = streams
        self._begun = False
        self._over = False
        self._unread_bytes = 0
        streams.add(self)

    def event(self, event: Progress, line: bytes | None) -> None:
        if self._over:
            return
        item = self._form.event(event, line)
        if item is not None:
            self._write(item)

    def finished(self, response: Response) -> None:
        self.handle = None
        self._streams.discard(self)
        if self._over:
            return
        if not self._begun and not response.ok:
            told = self._tell(response)
            self._connection.respond(told.status, told.headers, told.body)
            return
        item = self._form.end(response)
        if item is not None:
            self._write(item)
        self._begin()
        self._end()

    def congested(self) -> Congestion:
        outbox = self._connection.outbox
        if not outbox.congested:
            self._unread_bytes = 0
            return Congestion.NONE
        unread = min(self._unread_bytes, outbox.waiting_bytes)
        return Congestion.FULL if unread > OVERRUN_BYTES else Congestion.SLOW

    def beat(self) -> None:
        """Send a sign of life; NDJSON has blank lines for that."""
        item = self._form.beat()
        if item is not None:
            self._write(item)
        else:
            self._put(b": \n\n" if self._is_sse else b"\n")

    def _write(self, item: Item) -> None:
        data = item.data
        if self._is_sse:
            # A line break in JSON would be white space; a name is a word of the journal's registry.
            head = b"" if item.number is None else b"id: %d\n" % item.number
            data = b"%sevent: %s\ndata: %s\n" % (
                head,
                item.name.encode(),
                data.replace(b"\r", b" "),
            )
        self._put(data + b"\n")

    def _put(self, data: bytes) -> None:
        self._begin()
        if self._over:
            return
        self._connection.put_body(data)
        if self._connection.outbox.congested:
            self._unread_bytes += len(data)

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        connection = self._connection
        is_head = connection.head is not None and connection.head.method == "HEAD"
        media = SSE if self._is_sse else NDJSON
        connection.begin_body(200, [("Content-Type", media), ("X-Accel-Buffering", "no")])
        if is_head:
            self._streams.discard(self)
            self._end()
            if self.handle is not None:
                words = "its head was all that was asked for"
                self.handle.cancel(Stopped(Reason.CLIENT, words))

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._connection.end_body()
