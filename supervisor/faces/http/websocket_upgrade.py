"""How a client goes on with WebSocket: what it has to say for it, and what it is then told."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from wsproto.utilities import generate_accept_token

from protocol.amcp import EventType, UnifiedEvent, Vocabulary
from protocol.amcp_errors import ErrorCode
from protocol.errors import Failure
from protocol.events import Progress
from protocol.response import Response
from supervisor.faces.http.connection import HttpConnection
from supervisor.faces.http.event_stream import EVENT_TYPES, now
from supervisor.faces.http.exchange import tell_failure
from supervisor.faces.http.head import Head, Headers, Refusal
from supervisor.faces.http.streams import Streams
from supervisor.faces.http.websocket import WebSocket
from supervisor.kernel.parties import Client, Handle

SUBPROTOCOL = "documented"
"""The subprotocol of the documented vocabulary."""

_VERSION = "13"
_KEY_BYTES = 16


class Handshake(NamedTuple):
    """A client's request to switch to WebSocket."""

    accept: bytes
    vocabulary: Vocabulary
    headers: Headers


def read_handshake(head: Head, vocabulary: str | None) -> Handshake:
    """Read the head of a request to switch to WebSocket (RFC 6455 4.2.1); raises `Refusal`."""
    headers = head.headers
    if "websocket" not in headers.get("upgrade", "").lower():
        words = "this path speaks WebSocket: send Upgrade: websocket"
        again = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
        raise Refusal(ErrorCode.BAD_REQUEST, words, status=426, headers=again)
    if headers.get("sec-websocket-version") != _VERSION:
        words = f"Sec-WebSocket-Version has to be {_VERSION}"
        again = [("Sec-WebSocket-Version", _VERSION)]
        raise Refusal(ErrorCode.BAD_REQUEST, words, status=426, headers=again)
    key = headers.get("sec-websocket-key", "")
    try:
        good = len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        good = False
    if not good:
        words = f"Sec-WebSocket-Key has to be {_KEY_BYTES} bytes in base64"
        raise Refusal(ErrorCode.BAD_REQUEST, words)
    offered = [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]
    said: Headers = []
    words = Vocabulary(vocabulary or Vocabulary.DEPLOYED)
    if SUBPROTOCOL in offered:
        words, said = Vocabulary.DOCUMENTED, [("Sec-WebSocket-Protocol", SUBPROTOCOL)]
    return Handshake(generate_accept_token(key.encode()), words, said)


class Upgrade(Client):
    """A request to switch to WebSocket.

    With a session it is a subscription to it: without such a session it is refused, and the first
    event of the subscription switches the connection.
    """

    def __init__(self, connection: HttpConnection, handshake: Handshake, streams: Streams) -> None:
        self.handle: Handle | None = None
        self._connection = connection
        self._handshake = handshake
        self._streams = streams
        self._session_id: str | None = None

    def bind(self, session_id: str) -> dict[str, Any]:
        """Return the args of the subscription."""
        self._session_id = session_id
        return {"session_id": session_id, "events": EVENT_TYPES}

    def switch(self) -> WebSocket:
        connection, handshake = self._connection, self._handshake
        accept = ("Sec-WebSocket-Accept", handshake.accept.decode())
        left = connection.switch([accept, *handshake.headers])
        socket = WebSocket(connection, handshake.vocabulary, self._session_id, self._streams)
        connection.current = socket
        if left:
            socket.receive_data(left)
        socket.tell(UnifiedEvent(EventType.CONNECTED, self._session_id, now()), None)
        return socket

    def event(self, event: Progress, line: bytes | None) -> None:
        """Switch at the first event; the further ones go to another client."""
        del event, line
        if self.handle is not None:
            self.switch().adopt(self.handle)

    def finished(self, response: Response) -> None:
        if isinstance(response.outcome, Failure):
            told = tell_failure(response.outcome)
            self._connection.respond(told.status, told.headers, told.body)
