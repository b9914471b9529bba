"""One client over WebSocket: messages of AMCP in, each begun at once; events and answers out.

    request     {"type":"request","id":...,"payload":{"action":...}}
                prompt, cancel, subscribe, invoke, ping
    out         frames of the types response, event and error, with the id of what they belong to

The requests of a client run side by side. While it does not read, neither is it read from, nor are
the modules that stream to it; after a while of that it is closed with 1013.
"""

from __future__ import annotations

from typing import Any

import trio
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import (
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError

from protocol.amcp import UnifiedEvent, Vocabulary, to_ws
from protocol.amcp_errors import AmcpError, ErrorCode
from protocol.errors import Reason
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.problem import did_you_mean, named
from supervisor.faces.http.body import Body
from supervisor.faces.http.connection import HttpConnection
from supervisor.faces.http.event_stream import EVENT_TYPES, now
from supervisor.faces.http.head import Refusal
from supervisor.faces.http.streams import Streams
from supervisor.faces.http.websocket_message import read_message
from supervisor.faces.http.websocket_requests import (
    Asked,
    Cancelled,
    Invoked,
    Prompted,
    Subscribed,
)
from supervisor.faces.module_wire import LITTLE_BYTES
from supervisor.kernel.parties import DAEMON, Handle
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ARGS
from supervisor.runtime.turns import SERVING

OPEN_REQUESTS = 256
"""A further request is told to wait for answers."""

SLOW_S = 10.0
"""How long a client may leave more than an outbox's fill unread."""

NORMAL, GOING_AWAY, NOT_TEXT, NOT_ALLOWED, TOO_SLOW = 1000, 1001, 1003, 1008, 1013
"""Close codes (RFC 6455 7.4.1, and IANA's registry)."""

_ACTIONS = ("prompt", "cancel", "subscribe", "invoke", "ping")


class WebSocket:
    """The requests of one client, and the answers to it."""

    def __init__(
        self,
        connection: HttpConnection,
        vocabulary: Vocabulary,
        session_id: str | None,
        streams: Streams,
    ) -> None:
        """Take over a connection; requests without a session are for `session_id`."""
        self.connection = connection
        self.outbox = connection.outbox
        self._account = connection.account
        self.vocabulary = vocabulary
        self.session_id = session_id
        self._streams = streams
        self._wire = Connection(ConnectionType.SERVER)
        self._body = Body(connection.account, self._drop_unfinished)
        self._open: dict[str, Asked] = {}
        self._nameless: set[Asked] = set()
        self._fewer = trio.lowlevel.ParkingLot()
        self._closed = False
        streams.add(self)

    # What comes from the client (connection.Serving).

    def receive_data(self, data: bytes) -> None:
        """Take bytes; `b""` is their end."""
        if not data:
            self.connection.closing = True
        elif not self.connection.closing:  # else the wire may have been closed
            self._wire.receive_data(data)

    def advance(self) -> bool:
        """Serve the received bytes for one turn; returns whether another turn is needed."""
        connection, outbox, account = self.connection, self.outbox, self._account
        if not connection.turn.begin():
            return True
        SERVING.begin(connection.party.label, "requests")
        try:
            events = self._wire.events()  # what is left of them, the wire gives to the next one
            while not (connection.closing or outbox.congested or account.is_full):
                event = next(events, None)
                if event is None:
                    return False
                if type(event) is TextMessage:  # mostly
                    self._take_text(event)
                else:
                    self._receive(event)
                if connection.turn.over:
                    return True
            return False
        finally:
            SERVING.end()

    @property
    def has_enough(self) -> bool:
        """Whether no more is read for now: the client does not read, or has asked too much."""
        return self.outbox.congested or self._account.is_full

    @property
    def is_serving(self) -> bool:
        return bool(self._open or self._nameless)

    def is_idle(self) -> bool:
        """Whether nothing is open, and nothing is unread by the client."""
        return not self.is_serving and not self.outbox.waiting_bytes

    async def wait_ended(self) -> None:
        """Return when the client may have room again."""
        await self._fewer.park()

    async def wait_answered(self) -> None:
        while self.is_serving:
            await self._fewer.park()

    def too_slow(self) -> None:
        """Give up on a client that has left too much unread for too long."""
        self.close(TOO_SLOW, "more is unread than waits here; read faster, or ask for less")

    def cancel(self, stopped: Stopped) -> None:
        """Cancel all requests, and close the connection."""
        code = GOING_AWAY if stopped.reason is Reason.SHUTDOWN else NOT_ALLOWED
        self.close(code, stopped.message, stopped)

    def resume(self) -> None:
        if not self.outbox.congested:
            self.connection.patience.deadline = float("inf")
        self._fewer.unpark_all()
        for one in (*self._open.values(), *self._nameless):
            if one.handle is not None:
                one.handle.resume()

    def beat(self) -> None:
        self._send(Ping())

    def close(self, code: int, words: str, stopped: Stopped | None = None) -> None:
        """Close the connection; idempotent."""
        if self._closed:
            return
        self._closed = self.connection.closing = True
        self._streams.discard(self)
        stopped = stopped or Stopped(Reason.DISCONNECT, "the connection was closed")
        for one in (*reversed(self._open.values()), *self._nameless):
            if one.handle is not None:
                one.handle.cancel(stopped)
        self._send(CloseConnection(code, words.encode()[:120].decode(errors="ignore")))
        self._fewer.unpark_all()

    # What goes to the client.

    def tell(self, event: UnifiedEvent, message_id: str | None) -> int:
        """Write a unified event; returns its length in bytes."""
        frame = to_ws(event, message_id, self.vocabulary)
        return self.put(frame)

    def say(self, kind: str, message_id: str | None, payload: Any) -> int:
        """Write a frame about a request; returns its length in bytes."""
        return self.put({"type": kind, "id": message_id, "timestamp": now(), "payload": payload})

    def refuse(self, message_id: str | None, error: AmcpError) -> None:
        self.put({**error.frame(message_id), "timestamp": now()})

    def put(self, frame: dict[str, Any]) -> int:
        """Write a frame; returns its length in bytes."""
        try:
            data = encode(frame)
        except UNENCODABLE as error:
            words = f"the message cannot be passed on: {type(error).__name__}"
            data = encode(AmcpError(ErrorCode.INTERNAL_ERROR, words).frame(frame["id"]))
        size, account = len(data), self._account
        large = size > account.bounds.least_free and size > account.free_bytes
        if large and not account.takes_answer(size):
            words = f"an answer of {size} bytes found no room to wait in"
            data = encode(AmcpError(ErrorCode.RATE_LIMITED, words).frame(frame["id"]))
        self._send(TextMessage(data.decode()))
        return len(data)

    def _send(self, event: Event) -> None:
        try:
            data = self._wire.send(event)
        except LocalProtocolError:
            return  # it is closing, and nobody waits for more
        self.outbox.put(data)
        patience = self.connection.patience
        if self.outbox.congested and patience.deadline == float("inf"):
            patience.deadline = trio.current_time() + SLOW_S

    # One message.

    def _receive(self, event: Event) -> None:
        match event:
            case Ping():
                self._send(event.response())
            case CloseConnection():
                # Else it is what the peer did wrong.
                closes = self._wire.state is not ConnectionState.OPEN
                self.close(NORMAL if closes else event.code, event.reason or "")
            case BytesMessage():
                self.close(NOT_TEXT, "a message is JSON, as text")
            case _:
                pass  # a Pong

    def _take_text(self, event: Message[str]) -> None:
        body = self._body
        try:
            if not event.message_finished:
                body.add(event.data.encode())
                body.hold()
            elif body.is_begun:
                body.add(event.data.encode())
                self._serve(body.take())
            else:  # whole, and so no longer than what was read at once
                self._serve(event.data.encode())
        except Refusal as refusal:
            body.take()
            if event.message_finished:
                self.refuse(None, refusal.error)
            else:
                self.close(NOT_ALLOWED, str(refusal))

    def _drop_unfinished(self) -> None:
        self.close(TOO_SLOW, "too many bytes of unfinished messages, and this was the longest")

    def _serve(self, data: bytes) -> None:
        message = read_message(data)
        message_id, payload = message.id, message.payload
        if message.type != "request" or payload is None:
            words = 'a message is {"type":"request","id":...,"payload":{"action":...}}'
            self.refuse(message_id, AmcpError(ErrorCode.INVALID_MESSAGE, words))
        elif message_id in self._open:
            words = f"the request {named(message_id, 80)} is open already; wait for its answer"
            if isinstance(self._open[message_id], Subscribed):
                words = (
                    f"the subscription {named(message_id, 80)} keeps its id until it is cancelled"
                )
                words += "; ask with another id"
            self.refuse(None, AmcpError(ErrorCode.CONFLICT, words, {"field": "id"}))
        else:
            try:
                if self.connection.identity.login is not None:
                    self.connection.identity.count_request()
                self._begin(message_id, payload, len(data))
            except Refusal as refusal:
                self.refuse(message_id, refusal.error)

    def _begin(self, message_id: str | None, args: dict[str, Any], size: int) -> None:
        action = args.pop("action", None)
        if self.session_id is not None and action in ("prompt", "cancel", "subscribe"):
            args.setdefault("session_id", self.session_id)
        session_id = args.get("session_id")
        match action:
            case "invoke":
                module = args.pop("module", None)
                if not isinstance(module, str):
                    words = "module has to name the module that is invoked"
                    raise Refusal(ErrorCode.VALIDATION_ERROR, words, field="module")
                self._open_request(Invoked(self, message_id), module, args, size)
            case "ping":
                self.say("response", message_id, {"action": "pong"})
            case "cancel" if "request_id" in args:
                self._cancel_one(message_id, args["request_id"])
            case "cancel":
                self._ask(Cancelled(self, message_id), "session.cancel", args, size)
            case "prompt":
                self._ask(Prompted(self, message_id, session_id), "session.prompt", args, size)
            case "subscribe":
                args["events"] = EVENT_TYPES
                self._ask(Subscribed(self, message_id, session_id), "ui.subscribe", args, size)
            case _:
                known = ", ".join(_ACTIONS)
                hint = did_you_mean(action, _ACTIONS) if isinstance(action, str) else ""
                words = f"action has to be one of {known}{hint}"
                raise Refusal(ErrorCode.UNSUPPORTED_ACTION, words, field="action")

    def _ask(self, asked: Asked, op: str, args: dict[str, Any], size: int) -> None:
        self._open_request(asked, DAEMON, {"op": op, "args": args}, size)

    def _open_request(self, asked: Asked, tool: str, content: dict[str, Any], size: int) -> None:
        if len(self._open) + len(self._nameless) >= OPEN_REQUESTS:
            words = f"{OPEN_REQUESTS} requests are open on this connection; wait for answers"
            raise Refusal(ErrorCode.RATE_LIMITED, words)
        if size > LITTLE_BYTES:
            if not self._account.fits(size):
                words = "there is no room for a request of this size; try again when others are"
                raise Refusal(ErrorCode.RATE_LIMITED, f"{words} answered")
            asked.size_bytes = size
            self._account.add(ARGS, size)
        if asked.message_id is None:
            self._nameless.add(asked)
        else:
            self._open[asked.message_id] = asked
        connection = self.connection
        asked.handle = connection.begin(connection.party, tool, "invoke", content, asked)

    def _cancel_one(self, message_id: str | None, request_id: object) -> None:
        found = self._open.get(request_id) if isinstance(request_id, str) else None
        if found is not None and found.handle is not None:
            found.handle.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))
        cancelled = int(found is not None)
        told = {"action": "cancelled", "request_id": request_id, "cancelled": cancelled}
        self.say("response", message_id, told)

    def adopt(self, handle: Handle) -> None:
        """Take over the subscription that opened the connection."""
        subscribed = Subscribed(self, None, self.session_id)
        subscribed.handle, handle.client = handle, subscribed
        self._nameless.add(subscribed)

    def ended(self, asked: Asked) -> None:
        if asked.message_id is None:
            self._nameless.discard(asked)
        elif self._open.get(asked.message_id) is asked:
            del self._open[asked.message_id]
        if asked.size_bytes:
            self._account.add(ARGS, -asked.size_bytes)
            asked.size_bytes = 0
        if self._fewer:
            self._fewer.unpark_all()
