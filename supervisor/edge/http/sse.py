"""A request that is answered by a stream, as SSE or NDJSON: each event as it comes.

    StreamForm    events as on the control socket, the answer last: an invocation
    LogForm       what an op of the daemon says: entries of the journal, lines of a log
    PromptForm    the events of AMCP: of a prompt
    SessionForm   the same, of a session, until its client or the daemon goes

The status is written with the first event, or after BEAT_S without one, so a request that is
refused at once is answered as it is without a stream. A stream has a connection to the daemon for
itself: while its client does not read, the gateway does not read that connection, and the daemon
has the modules wait. If the daemon goes, the response is cut off, which no client takes for its
end; the client asks again, with Last-Event-ID.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from protocol.amcp import EventType, UnifiedEvent, Vocabulary, of_ui_event, to_line
from protocol.amcp_errors import ErrorCode
from protocol.client import (
    UNDECODABLE,
    Answer,
    RequestEvent,
    StreamEvent,
)
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.host_events import SeenUiEvent
from protocol.readdress import readdress
from supervisor.edge.bindings.asynchronous import RequestStream
from supervisor.edge.http.answers import DoneLine, fields_of
from supervisor.edge.http.auth import Peer
from supervisor.edge.http.daemon import DaemonAwayError
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import (
    RETRY,
    SSE,
    Headers,
    Refusal,
)
from supervisor.policy.shares import Shares

MOST = 1024
"""Open streams, WebSockets among them: each takes two descriptors, and one of the daemon's."""

BEAT_S = 15.0
"""Proxies close what is silent for a minute."""

SHORT_BYTES = 4096
"""The longest event of which the item is kept for others."""

EVENT_TYPES = [str(one) for one in EventType]

_STREAM_HEADERS: Headers = [("X-Accel-Buffering", "no")]


class Item(NamedTuple):
    """One part of a stream: its name, a JSON document, and the id after which a client resumes."""

    name: str
    data: bytes
    number: int | None = None


BEAT = Item("", b"")
"""A sign of life that is no event: a comment, and in NDJSON a blank line."""


class _Typed(msgspec.Struct, frozen=True):
    type: str


kind_of = msgspec.json.Decoder(_Typed).decode


# --- Forms -------------------------------------------------------------------


class StreamForm:
    """A stream shows the events of an invocation, without the request id that the gateway chose."""

    def __init__(
        self,
        session_id: str | None = None,
        vocabulary: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """`request_id` is the client's own id of the request, if its events are to have one."""
        self._session_id = session_id
        self._vocabulary = Vocabulary(vocabulary or Vocabulary.DEPLOYED)
        self._request_id = request_id

    def item(self, event: RequestEvent) -> Item | None:
        """Return what tells an event, None if nothing does."""
        return Item(kind_of(event.line).type, self.line(event))

    def line(self, event: RequestEvent) -> bytes:
        """Return the event as its module wrote it."""
        line = readdress(event.line, event.request_id, self._request_id)
        if line is None:
            document = {k: v for k, v in event.document.items() if k != "requestId"}
            if self._request_id is not None:
                document["requestId"] = self._request_id
            line = encode(document)
        return line.rstrip(b"\n")

    def end(self, body: bytes) -> Item | None:
        """Return the item for the answer of which `body` is what the route shows."""
        return Item("done", body)

    def lost(self) -> Item | None:
        """Return the item that tells that the daemon is gone; None in a form that has none."""
        return None

    def beat(self) -> Item:
        return BEAT


class LogForm(StreamForm):
    """The `log` events of an op of the daemon; one with a `seq` is an entry of the journal."""

    def item(self, event: RequestEvent) -> Item | None:
        if kind_of(event.line).type != "log":
            return None
        fields = fields_of(event)
        number = fields.get("seq")
        name = fields.get("event") if number is not None else None
        return Item(name or "message", encode(fields), number)


class PromptForm(StreamForm):
    """Events of AMCP, of which one tells the end; others are left out."""

    def item(self, event: RequestEvent) -> Item | None:
        make = self._made if len(event.line) <= SHORT_BYTES else self._made.__wrapped__
        return make(event.line, self._session_id, self._vocabulary, now())

    def end(self, body: bytes) -> Item | None:
        del body
        return self.lost()

    def beat(self) -> Item:
        return self._item(UnifiedEvent(EventType.HEARTBEAT, self._session_id, now()))

    def _item(self, event: UnifiedEvent) -> Item:
        return _item_of(event, self._vocabulary)

    @staticmethod
    @lru_cache(maxsize=64)
    def _made(line: bytes, session_id: str | None, vocabulary: Vocabulary, at: str) -> Item | None:
        """Make the item of an event once for all who are told it within a millisecond."""
        found = unified(RequestEvent("", line), session_id, at)
        return None if found is None else _item_of(found, vocabulary)


class SessionForm(PromptForm):
    def lost(self) -> Item | None:
        return self._item(UnifiedEvent(EventType.DISCONNECTED, self._session_id, now()))


def _item_of(event: UnifiedEvent, vocabulary: Vocabulary) -> Item:
    try:
        data = to_line(event, vocabulary)
    except UNENCODABLE:
        data = to_line(msgspec.structs.replace(event, payload={}), vocabulary)
    return Item(str(event.type), data.rstrip(b"\n"))


def unified(event: RequestEvent, session_id: str | None, at: str) -> UnifiedEvent | None:
    """Return an event of AMCP, `at` that time; None if it has no counterpart there.

    A `log` is about the subscription: that it has begun, or lost some.
    """
    try:
        said = event.document
    except UNDECODABLE:
        return None
    match said["type"]:
        case "log" if said["level"] == "info":
            return UnifiedEvent(EventType.CONNECTED, session_id, at)
        case "log":
            return UnifiedEvent(EventType.HEARTBEAT, session_id, at, {"message": said["message"]})
        case "ui_event":
            origin = said.get("origin")
            if origin is not None:
                session_id = origin.get("session_id")
            seen = SeenUiEvent(
                version="0",
                event=said["event"],
                payload=said.get("payload") or {},
                origin=origin or {},
                by_host=True if said.get("by_host") is True else msgspec.UNSET,
            )
            return of_ui_event(seen, session_id, at)
    return None


def now() -> str:
    """Return the time as AMCP has it."""
    second, ms = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{_whole(second)}.{ms:03}+00:00"


@lru_cache(maxsize=1)
def _whole(second: int) -> str:
    """Return a second; within it, only the milliseconds are formatted anew."""
    return dt.datetime.fromtimestamp(second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


# --- The response ------------------------------------------------------------


_OPEN: Shares[Peer] = Shares(MOST)
"""The connections that have a stream."""


@contextlib.contextmanager
def place_for_stream(exchange: Exchange) -> Iterator[None]:
    """Count a stream among the open ones. With too many, the principal of most loses its oldest.

    Raises `Refusal` if nobody has more than the principal that asks.
    """
    owner, peer = exchange.login.name, exchange.peer
    if _OPEN.left <= 0:
        others = _OPEN.most(owner, 1)
        if others is None:
            words = "as many streams are open as there may be, and nobody has more than this client"
            raise Refusal(ErrorCode.RATE_LIMITED, words, status=503, headers=[RETRY])
        oldest = next(iter(others))
        _OPEN.take(oldest.owner, oldest)
        oldest.lose()
    _OPEN.put(owner, peer)
    try:
        yield
    finally:
        _OPEN.take(owner, peer)


async def send_stream(
    exchange: Exchange,
    tool: str,
    operation: str,
    given: dict[str, Any],
    *,
    media: str,
    form: StreamForm,
) -> None:
    """Answer a request with what comes of this one; raises as `Daemon.stream`, and `Refusal`."""
    with place_for_stream(exchange), exchange.until_hung_up():
        try:
            async with exchange.stream(tool, operation, given) as events:
                await _write(exchange, events, form, media)
        except DaemonAwayError:
            if not exchange.is_begun:
                raise
            lost = form.lost()
            if lost is None:
                await exchange.cut_off()
            else:
                await exchange.end(_encoded(lost, media))


async def _write(exchange: Exchange, events: RequestStream, form: StreamForm, media: str) -> None:
    answer: Answer | None = None
    while answer is None:
        items: list[Item | None] = []
        news: Sequence[StreamEvent] = ()
        try:
            async with asyncio.timeout(BEAT_S):
                news = await events.some()
        except TimeoutError:
            items = [form.beat()]
        for event in news:
            if isinstance(event, RequestEvent):
                items.append(form.item(event))
            elif isinstance(event, Answer):
                answer = event
                has_begun = exchange.is_begun or any(items)
                reply = exchange.route.tell(DoneLine(event, is_late=has_begun))
                if not (event.ok or has_begun):
                    await exchange.respond(*reply)
                    return
                items.append(form.end(reply.body))
        data = b"".join([_encoded(item, media) for item in items if item is not None])
        if not exchange.is_begun and (data or answer is not None):
            await exchange.begin(200, [("Content-Type", media), *_STREAM_HEADERS])
            if exchange.method == "HEAD":
                break
        if data:
            await exchange.write(data)
    await exchange.end()


def _encoded(item: Item, media: str) -> bytes:
    if media != SSE:
        return item.data + b"\n"
    if item is BEAT:
        return b": \n\n"
    # A line break in JSON is white space; a name is a word of the journal's registry.
    head = b"" if item.number is None else b"id: %d\n" % item.number
    data = item.data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"%sevent: %s\ndata: %s\n\n" % (head, item.name.encode(), data)
