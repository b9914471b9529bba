"""Listen for HTTP clients, and carry their connections over sockets, with TLS where it is wanted.

http.sock    beside the control socket: whoever may open it is its user, as there
HOST:PORT    TCP: whoever comes needs a token, this machine's other users reach loopback too
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import structlog
import trio

from protocol.amcp_errors import error_of
from protocol.errors import Failure, Reason
from supervisor.faces import control_socket
from supervisor.faces.accepting import CROWDED, ENDING, accept_until_stopped
from supervisor.faces.admission import Admission
from supervisor.faces.byte_stream import FLUSH_S, READ_BYTES, read_some, write_out
from supervisor.faces.control_socket import BACKLOG, SocketPathError
from supervisor.faces.http.api import Api
from supervisor.faces.http.connection import HEAD_S, HUNG_UP, HttpConnection, error_body
from supervisor.faces.http.identity import FACE, Peer
from supervisor.faces.http.page_files import PageFiles
from supervisor.faces.http.page_login import PageLogin
from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.endpoint import McpEndpoint
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.local_user import named_user, peer_uid
from supervisor.policy.http_exposure import Exposure
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.looks import Looks
from supervisor.runtime.turns import SharedTurn

SOCKET_NAME = "http.sock"

WRITE_S = 30.0
"""How long a client may take none of the bytes written to it."""

LINGER_S = 1.0
"""How long the client's bytes are still read then: closed with bytes unread, the kernel takes the
answer back, too."""

NOT_OF_THIS_MACHINE = -1
"""All TCP clients are one unknown user for `admission`."""

log = structlog.get_logger()


class Door(msgspec.Struct, frozen=True):
    listener: socket.socket
    peer: Peer
    address: str
    """A URL, or a path."""
    tls: ssl.SSLContext | None = None


@contextlib.contextmanager
def listening(exposure: Exposure, control: Path) -> Iterator[list[Door]]:
    """Listen where `exposure` says; `control` is the control socket.

    Raises `SocketTakenError` and `SocketPathError`.
    """
    path = control.with_name(SOCKET_NAME)
    with control_socket.listening(path, _refuse) as unix:
        doors = [Door(unix, Peer(None), str(path))]
        if exposure.host is None:
            yield doors
            return
        tls = _tls(exposure)
        with _tcp(exposure) as listener:
            port = listener.getsockname()[1]
            scheme = "http" if tls is None else "https"
            address = msgspec.structs.replace(exposure, port=port).address
            served = exposure.host if exposure.is_loopback else None
            cookie = f"stdiod-{port}" if tls is None else f"__Host-stdiod-{port}"
            peer = Peer(None, served, scheme, exposure.origins, cookie)
            yield [*doors, Door(listener, peer, f"{scheme}://{address}", tls)]


async def serve(daemon: Kernel, doors: list[Door], admission: Admission) -> None:
    """Accept clients until the daemon has stopped its modules; returns when all have left."""
    streams = Streams()
    files = PageFiles()
    api = Api(streams, McpEndpoint(daemon, streams), files, PageLogin(daemon, files))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(streams.run)
        async with trio.open_nursery() as open_doors:
            for door in doors:
                one = partial(_serve_client, daemon, api, door, admission)
                open_doors.start_soon(
                    accept_until_stopped, daemon, door.listener, admission, one, _refuse
                )
        nursery.cancel_scope.cancel()


async def _serve_client(
    daemon: Kernel, api: Api, door: Door, admission: Admission, client: trio.socket.SocketType
) -> None:
    unix = client.family == socket.AF_UNIX
    descriptor, uid = client.fileno(), peer_uid(client) if unix else NOT_OF_THIS_MACHINE
    try:
        with client:
            if daemon.fleet_stopped:
                _refuse(descriptor, ENDING)
                return
            place = admission.admit(uid, descriptor)
            if place is None:
                _refuse(descriptor, CROWDED)
                return
            try:
                with place.scope:
                    peer = door.peer
                    if unix:
                        user = await named_user(uid, FACE, daemon.facts.custody.blocking)
                        peer = msgspec.structs.replace(peer, user=user)
                    connection = HttpConnection(daemon, api, peer)
                    place.idle = connection.holds_nothing
                    try:
                        await _carry(daemon, connection, client, door.tls, admission.turn)
                    finally:
                        connection.close(HUNG_UP)
            finally:
                admission.leave(place)
            if place.displaced:
                _refuse(descriptor, CROWDED)
    # A mistake of ours over one client's request is not to end the daemon.
    except Exception:
        log.exception("connection failed")


async def _carry(
    daemon: Kernel,
    connection: HttpConnection,
    client: trio.socket.SocketType,
    tls: ssl.SSLContext | None,
    parting: SharedTurn,
) -> None:
    carrier = _Plain(client) if tls is None else await _Tls.greeted(client, tls)
    if carrier is None:
        return
    async with trio.open_nursery() as nursery:
        gone = nursery.cancel_scope.cancel
        nursery.start_soon(carrier.write, connection, gone)
        nursery.start_soon(_part, daemon, connection, gone)
        with connection.patience as patience:
            await _read(connection, carrier)
        await parting.wait()
        if patience.cancelled_caught:
            connection.current.too_slow()
        # A client that hung up has its request cancelled by `close`, once: a stream that it has
        # resumed on another connection by then is not that connection's any more.
        if connection.closing or not connection.current.is_serving:
            with trio.move_on_after(FLUSH_S):
                await connection.current.wait_answered()
                await connection.outbox.wait_empty()
            await carrier.linger()
        gone()


async def _read(connection: HttpConnection, carrier: _Plain | _Tls) -> None:
    while True:
        current = connection.current
        if current.advance():
            await connection.turn.wait()  # it was its turn, and now it is the neighbours'
        elif connection.closing:
            return
        elif connection.current is not current:
            continue  # it goes on with WebSocket
        elif current.has_enough:
            await current.wait_ended()
        else:
            data = await carrier.read()
            if not data and connection.current.is_serving:
                return
            connection.current.receive_data(data)


async def _part(daemon: Kernel, connection: HttpConnection, gone: control_socket.Gone) -> None:
    await daemon.wait_fleet_stopped()
    connection.current.cancel(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))
    with trio.move_on_after(FLUSH_S):
        await connection.current.wait_answered()
        await connection.outbox.wait_empty()
    gone()


class _Plain:
    def __init__(self, client: trio.socket.SocketType) -> None:
        self._client = client
        self._descriptor = client.fileno()
        self._has_read = False

    def read(self) -> Awaitable[bytes]:
        # What comes next is waited for, even if it is there: then the neighbours have had a turn.
        drained, self._has_read = self._has_read, True
        return read_some(self._descriptor, drained=drained)

    async def write(self, connection: HttpConnection, gone: control_socket.Gone) -> None:
        await write_out(connection.outbox, self._descriptor, gone, patience_s=WRITE_S)

    async def linger(self) -> None:
        with contextlib.suppress(OSError), trio.move_on_after(LINGER_S):
            self._client.shutdown(socket.SHUT_WR)
            while await self.read():
                pass


class _Tls:
    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream

    @classmethod
    async def greeted(cls, client: trio.socket.SocketType, context: ssl.SSLContext) -> _Tls | None:
        stream = trio.SSLStream(
            trio.SocketStream(client), context, server_side=True, https_compatible=True
        )
        with contextlib.suppress(trio.BrokenResourceError, ssl.SSLError):
            with trio.move_on_after(HEAD_S):
                await stream.do_handshake()
                return cls(stream)
        return None

    async def read(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def write(self, connection: HttpConnection, gone: control_socket.Gone) -> None:
        outbox = connection.outbox
        while data := await outbox.take():
            for start in range(0, len(data), READ_BYTES):
                piece = data[start : start + READ_BYTES]
                sent = False
                with (
                    contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError),
                    trio.move_on_after(WRITE_S),
                ):
                    await self._stream.send_all(piece)
                    sent = True
                if not sent:
                    gone()
                    return
                outbox.written(len(piece))

    async def linger(self) -> None:
        with contextlib.suppress(trio.BrokenResourceError), trio.move_on_after(LINGER_S):
            await self._stream.aclose()


def _refuse(descriptor: int, failure: Failure) -> None:
    body = error_body(error_of(failure))
    head = (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with contextlib.suppress(OSError):
        os.write(descriptor, head + body)


def _tcp(exposure: Exposure) -> socket.socket:
    where = f"cannot listen on {exposure.address}"
    try:
        found = socket.getaddrinfo(
            exposure.host, exposure.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise SocketPathError(f"{where}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        words = "; name another port, or end the program that has it"
        hint = words if error.errno == errno.EADDRINUSE else ""
        raise SocketPathError(f"{where}: {error.strerror}{hint}") from None
    return listener


def _tls(exposure: Exposure) -> ssl.SSLContext | None:
    if exposure.cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        load = partial(context.load_cert_chain, exposure.cert, exposure.key)
        Looks().at(exposure.cert, load)
    except (OSError, ssl.SSLError) as error:
        words = f"--http-cert {exposure.cert} and --http-key {exposure.key}: {error}"
        raise SocketPathError(words) from None
    return context
