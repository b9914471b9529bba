"""Accept the clients of a listening socket until the daemon has stopped its modules."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable

import structlog
import trio

from protocol.errors import Failure, Reason
from supervisor.faces.admission import Admission
from supervisor.kernel.kernel import Kernel

OUT_OF_DESCRIPTORS_PAUSE_S = 0.25
"""Without a free descriptor, accepting pauses: connected clients are served first."""

OF_ONE_CLIENT = (
    errno.ECONNABORTED,
    errno.EPERM,
    errno.EPROTO,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.ENONET,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
)
"""Errors of `accept` over a client that has gone, or that a firewall keeps out (accept(2))."""

ENDING = Failure.because(
    Reason.STOPPING,
    "the daemon has stopped its modules and ends; nothing was begun, so try again later",
)
NOT_STARTED = Failure.because(
    Reason.STOPPING,
    "the daemon could not start, or ended before it began to serve; nothing was begun, so try again"
    " once one runs",
)
CROWDED = Failure.because(
    Reason.QUEUE_FULL,
    "more clients are connected than there is room for; nothing was begun, so try again when some"
    " have parted",
)

ServeClient = Callable[[trio.socket.SocketType], Awaitable[None]]
Refuse = Callable[[int, Failure], None]
"""Tells a refused client why, through its descriptor; never blocks."""

log = structlog.get_logger()


async def accept_until_stopped(
    daemon: Kernel,
    listener: socket.socket,
    admission: Admission,
    serve_client: ServeClient,
    refuse: Refuse,
) -> None:
    """Serve each client in a task; returns when all clients have left."""
    async with trio.open_nursery() as clients, trio.open_nursery() as accepting:
        accepting.start_soon(_accept, listener, admission, serve_client, clients)
        await daemon.wait_fleet_stopped()
        # Connected clients wait for the same event, and are closed in a later turn than this one:
        # a client that connects again is refused.
        accepting.cancel_scope.cancel()
        stop_listening(listener, refuse, ENDING)


def stop_listening(listener: socket.socket, refuse: Refuse, why: Failure) -> None:
    """Accept no more clients (ECONNREFUSED), and refuse those in the backlog."""
    os.set_blocking(listener.fileno(), False)
    listener.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):  # EAGAIN or EINVAL: that was all
        while True:
            client, _ = listener.accept()
            with client:
                os.set_blocking(client.fileno(), False)
                refuse(client.fileno(), why)


async def _accept(
    listener: socket.socket,
    admission: Admission,
    serve_client: ServeClient,
    clients: trio.Nursery,
) -> None:
    waiting = trio.socket.from_stdlib_socket(listener)
    while True:
        try:
            client, _ = await waiting.accept()
        except OSError as error:
            if error.errno in OF_ONE_CLIENT:
                await trio.lowlevel.checkpoint()
                continue
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            if error.errno == errno.EMFILE and admission.make_room():
                with trio.move_on_after(OUT_OF_DESCRIPTORS_PAUSE_S):
                    await admission.wait_parted()
                continue
            log.warning("cannot accept a client", words=os.strerror(error.errno))
            await trio.sleep(OUT_OF_DESCRIPTORS_PAUSE_S)
        else:
            clients.start_soon(serve_client, client)
