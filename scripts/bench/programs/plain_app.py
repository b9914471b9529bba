"""plain_app.py SOCKET: what the HTTP face is measured beside: h11 and wsproto on trio, constants.

    POST     answered by a constant
    GET /ws  goes on with WebSocket: each message is answered by a constant
    GET      an event stream; `POST /publish` with a number writes so many events to each, the last
             one named `done`

Nothing is looked up, nothing is decided, and no body is read as JSON. It ends with its stdin.
"""

from __future__ import annotations

import os
import socket
import sys

import h11
import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage
from wsproto.utilities import generate_accept_token

READ_BYTES = 65536
BODY = (
    b'{"ok":true,"result":{"n":1},"request_id":"r1","module":"primes","op":"echo",'
    b'"duration_ms":0,"warnings":[]}'
)
HEADERS = [
    ("Content-Type", "application/json"),
    ("Content-Length", str(len(BODY))),
    ("X-Content-Type-Options", "nosniff"),
    ("Date", "Tue, 24 Nov 2026 00:00:00 GMT"),
    ("Cache-Control", "no-store"),
]
"""What stdiod says, too."""
FRAME = (
    '{"type":"response","id":"1","timestamp":"2026-11-24T00:00:00.000+00:00",'
    '"payload":{"action":"invoked",' + BODY.decode()[1:] + "}"
)
EVENT = b'event: message.chunk\ndata: {"type":"message.chunk","payload":{"content":"%d"}}\n\n'
DONE = b"event: done\ndata: {}\n\n"

listeners: list[tuple[trio.SocketStream, h11.Connection]] = []


async def serve(stream: trio.SocketStream) -> None:
    """Serve one client."""
    wire = h11.Connection(h11.SERVER)
    async with stream:
        while True:
            request, body = await read_request(stream, wire)
            if request is None:
                return
            headers = dict(request.headers)
            if request.method == b"POST":
                if request.target == b"/publish":
                    await publish(int(body))
                await answer(stream, wire)
            elif b"upgrade" in headers:
                await go_on(stream, wire, headers)
                return
            else:
                await stream.send_all(head(wire, [("Content-Type", "text/event-stream")]))
                listeners.append((stream, wire))
                await stream.receive_some(1)
                listeners.remove((stream, wire))
                return


async def read_request(
    stream: trio.SocketStream, wire: h11.Connection
) -> tuple[h11.Request | None, bytes]:
    """Read a request and its body; None at the end."""
    request: h11.Request | None = None
    body = b""
    while True:
        match wire.next_event():
            case h11.Request() as found:
                request = found
            case h11.Data(data=data):
                body += data
            case h11.EndOfMessage():
                return request, body
            case h11.ConnectionClosed():
                return None, b""
            case _:
                wire.receive_data(await stream.receive_some(READ_BYTES))


def head(wire: h11.Connection, headers: list[tuple[str, str]]) -> bytes:
    """Return the head of a response."""
    return wire.send(h11.Response(status_code=200, headers=headers)) or b""


async def answer(stream: trio.SocketStream, wire: h11.Connection) -> None:
    """Answer a request with the constant."""
    data = head(wire, HEADERS) + (wire.send(h11.Data(BODY)) or b"")
    await stream.send_all(data + (wire.send(h11.EndOfMessage()) or b""))
    wire.start_next_cycle()


async def publish(count: int) -> None:
    """Write events to all who listen, one after the other."""
    for number in range(count):
        event = EVENT % number if number < count - 1 else DONE
        for stream, wire in tuple(listeners):
            await stream.send_all(wire.send(h11.Data(event)) or b"")


async def go_on(
    stream: trio.SocketStream, wire: h11.Connection, headers: dict[bytes, bytes]
) -> None:
    """Go on with WebSocket."""
    accept = generate_accept_token(headers[b"sec-websocket-key"]).decode()
    said = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
    await stream.send_all(
        wire.send(h11.InformationalResponse(status_code=101, headers=said)) or b""
    )
    frames = Connection(ConnectionType.SERVER)
    while data := await stream.receive_some(READ_BYTES):
        frames.receive_data(data)
        for event in frames.events():
            if isinstance(event, TextMessage):
                await stream.send_all(frames.send(TextMessage(FRAME)))


async def main(listener: socket.socket) -> None:
    """Serve until nobody holds the other end of our stdin."""
    async with trio.open_nursery() as nursery:
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        nursery.start_soon(trio.serve_listeners, serve, [accepting])
        await trio.lowlevel.FdStream(os.dup(0)).receive_some(1)
        nursery.cancel_scope.cancel()


listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind(sys.argv[1])
listening.listen(256)
print("ready", flush=True)
trio.run(main, listening)
