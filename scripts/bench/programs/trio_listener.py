"""trio_listener.py MODE SOCKET PROGRAM...: listen on bare trio in the place of our daemon.

relay  carry lines between a client and a module: the same two hops as a daemon's, and nothing else;
       no line is looked at, so it serves one client at a time
app    what the HTTP face is measured beside, h11 and wsproto with constants; PROGRAM is not run

    POST     answered by a constant
    GET /ws  goes on with WebSocket: each message is answered by a constant
    GET      an event stream; `POST /publish` with a number writes so many events to each, the last
             one named `done`

Nothing is looked up, nothing is decided, and no body is read as JSON. It ends with its stdin.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from subprocess import PIPE

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


async def carry(reading: trio.abc.ReceiveStream, writing: trio.abc.SendStream) -> None:
    while data := await reading.receive_some(READ_BYTES):
        await writing.send_all(data)


async def relay(stdin: int, stdout: int, listener: trio.SocketListener) -> None:
    to_module, from_module = trio.lowlevel.FdStream(stdin), trio.lowlevel.FdStream(stdout)
    while True:
        client = await listener.accept()
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(carry, from_module, client)
            await carry(client, to_module)
            nursery.cancel_scope.cancel()


async def app(listener: trio.SocketListener) -> None:
    await trio.serve_listeners(serve, [listener])


async def serve(stream: trio.SocketStream) -> None:
    wire = h11.Connection(h11.SERVER)
    request: h11.Request | None = None
    body = b""
    async with stream:
        while True:
            match wire.next_event():
                case h11.Request() as found:
                    request, body = found, b""
                case h11.Data(data=data):
                    body += data
                case h11.EndOfMessage():
                    assert request is not None
                    await respond(stream, wire, request, body)
                case h11.ConnectionClosed() | h11.PAUSED:
                    return
                case _:
                    wire.receive_data(await stream.receive_some(READ_BYTES))


async def respond(
    stream: trio.SocketStream, wire: h11.Connection, request: h11.Request, body: bytes
) -> None:
    """Respond to a request; an event stream or a WebSocket goes on until the client ends it."""
    headers = dict(request.headers)
    if request.method == b"POST":
        if request.target == b"/publish":
            await publish(int(body))
        data = head(wire, HEADERS) + (wire.send(h11.Data(BODY)) or b"")
        await stream.send_all(data + (wire.send(h11.EndOfMessage()) or b""))
        wire.start_next_cycle()
    elif b"upgrade" in headers:
        accept = generate_accept_token(headers[b"sec-websocket-key"]).decode()
        said = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept),
        ]
        response = h11.InformationalResponse(status_code=101, headers=said)
        await stream.send_all(wire.send(response) or b"")
        frames = Connection(ConnectionType.SERVER)
        while data := await stream.receive_some(READ_BYTES):
            frames.receive_data(data)
            for event in frames.events():
                if isinstance(event, TextMessage):
                    await stream.send_all(frames.send(TextMessage(FRAME)))
    else:
        await stream.send_all(head(wire, [("Content-Type", "text/event-stream")]))
        listeners.append((stream, wire))
        await stream.receive_some(1)
        listeners.remove((stream, wire))


def head(wire: h11.Connection, headers: list[tuple[str, str]]) -> bytes:
    return wire.send(h11.Response(status_code=200, headers=headers)) or b""


async def publish(count: int) -> None:
    for number in range(count):
        event = EVENT % number if number < count - 1 else DONE
        for stream, wire in tuple(listeners):
            await stream.send_all(wire.send(h11.Data(event)) or b"")


async def main(listen: Callable[[trio.SocketListener], Awaitable[None]]) -> None:
    """Listen until nobody holds the other end of our stdin."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(256)
    print("ready", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, trio.SocketListener(trio.socket.from_stdlib_socket(listening)))
        await trio.lowlevel.FdStream(os.dup(0)).receive_some(1)
        nursery.cancel_scope.cancel()


mode, path, *command = sys.argv[1:]
if mode == "app":
    trio.run(main, app)
else:
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as child:
        stdin, stdout = (os.dup(end.fileno()) for end in (child.stdin, child.stdout) if end)
        trio.run(main, partial(relay, stdin, stdout))
