"""The control socket: a Unix socket of mode 0600, one daemon per path (docs/protocol.md).

A lock file beside the socket says who owns the path, by pid and version, a line each. It is held
for the daemon's life and freed by the kernel whatever the daemon dies of, so a socket file without
a lock is stale and is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog
import trio

from protocol.errors import Failure, Reason
from protocol.response import Response
from protocol.version import VERSION
from supervisor.faces.admission import GATEWAY, Admission
from supervisor.faces.byte_stream import READ_BYTES, carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.faces.mcp_clients import serve_mcp
from supervisor.faces.module_wire import done_line
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.local_user import peer_of
from supervisor.kernel.parties import RefusedError
from supervisor.runtime.files.lock_file import open_lock

BACKLOG = 128
MAX_PATH_BYTES = 107
"""`sun_path` holds 108 bytes, the last one a NUL."""

FREED_WITHIN_S = 1.0
"""A child that a killed daemon had just forked may hold the lock until the guardian kills it."""
LOOK_S = 0.02

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

Refuse = Callable[[int, Failure], None]
"""Tells a refused client why, through its descriptor; never blocks."""

log = structlog.get_logger()


class SocketTakenError(Exception):
    def __init__(self, path: Path, pid: str) -> None:
        owner = f" (pid {pid})" if pid else ""
        # A daemon that starts or ends has no socket either, but only for a moment.
        held = "serves {}" if path.is_socket() else "holds {}, but its socket file is gone"
        words = f"another daemon{owner} {held.format(path)}; `kill {pid or 'PID'}` ends it"
        super().__init__(words)


class SocketPathError(Exception):
    pass


def _refuse(descriptor: int, failure: Failure) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, done_line(None, Response(failure)))


@contextlib.contextmanager
def listening(path: Path, refuse: Refuse = _refuse) -> Iterator[socket.socket]:
    """Own the path and listen; raises `SocketTakenError` or `SocketPathError`.

    `refuse` tells clients that are never accepted, in the protocol of this socket.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        message = f"{path} is longer than the {MAX_PATH_BYTES} bytes a socket's path may have"
        raise SocketPathError(message)
    with contextlib.ExitStack() as owned:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(path.parent)
            _check_free(path)
            _lock(path, owned)
            listener = owned.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            # Holding the lock, whatever stands here was left by a daemon that is gone; a file that
            # is no socket is somebody's.
            if path.is_socket():
                path.unlink()
            _bind_private(listener, path)
            owned.callback(_remove, path)
            listener.listen(BACKLOG)
            # The daemon may fail to start yet, or have failed to serve: waiting clients are told.
            owned.callback(stop_listening, listener, refuse, NOT_STARTED)
        except OSError as error:
            message = f"cannot listen on {path}: {error.strerror}"
            raise SocketPathError(message) from None
        yield listener


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


async def serve(daemon: Kernel, listener: socket.socket, admission: Admission) -> None:
    """Accept clients until the daemon has stopped its modules; returns when all have left."""
    async with trio.open_nursery() as clients, trio.open_nursery() as accepting:
        accepting.start_soon(_accept, daemon, listener, admission, clients)
        await daemon.wait_fleet_stopped()
        # Connected clients wait for the same event, and are closed in a later turn than this one:
        # a client that connects again is refused.
        accepting.cancel_scope.cancel()
        stop_listening(listener, _refuse, ENDING)


async def _accept(
    daemon: Kernel,
    listener: socket.socket,
    admission: Admission,
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
            clients.start_soon(_serve_client, daemon, client, admission)


async def _serve_client(
    daemon: Kernel, client: trio.socket.SocketType, admission: Admission
) -> None:
    descriptor, (uid, pid) = client.fileno(), peer_of(client)
    try:
        with client:
            if daemon.fleet_stopped:  # let in at the very moment
                _refuse(descriptor, ENDING)
                return
            of_gateway = daemon.facts.is_gateway(pid)
            place = admission.admit(GATEWAY if of_gateway else uid, descriptor)
            if place is None:
                _refuse(descriptor, CROWDED)
                return
            try:
                with place.scope:
                    # It is the daemon's own program, and asks for others (`login.open`).
                    asker = None if of_gateway else pid
                    try:
                        party = await daemon.local_clients.party(uid, asker, "socket")
                    except RefusedError as error:
                        _refuse(descriptor, error.failure)
                        return
                    party.may_speak_mcp = True
                    conversation = Conversation(daemon, party)
                    place.idle = conversation.is_idle
                    unserved = None
                    try:
                        unserved = await carry(conversation, descriptor, descriptor, admission.turn)
                    finally:
                        await disconnect(conversation)
                    if unserved is not None and not daemon.fleet_stopped:
                        await serve_mcp(
                            daemon, party, client, unserved, admission=admission, place=place
                        )
                    elif not conversation.outbox.waiting_bytes:
                        _refuse_unread(daemon, client)
            finally:
                admission.leave(place)
            if place.displaced and client.fileno() == descriptor:
                _refuse(descriptor, CROWDED)
    # A mistake of ours over one client's request is not to end the daemon.
    except Exception:
        log.exception("conversation failed")


def _refuse_unread(daemon: Kernel, client: trio.socket.SocketType) -> None:
    """Refuse requests that came at the daemon's very end; a later write gives EPIPE, no reset."""
    if not daemon.fleet_stopped:
        return
    descriptor, unread = client.fileno(), False
    with contextlib.suppress(OSError):  # EAGAIN, or the client is gone
        client.shutdown(socket.SHUT_RD)
        while os.read(descriptor, READ_BYTES):
            unread = True
    if unread:
        _refuse(descriptor, ENDING)


def _check_owner(folder: Path) -> None:
    # Another user's folder: its owner could replace our socket by another one. A folder that
    # all may write to, such as /tmp, has to be sticky.
    found = folder.stat()
    ours = found.st_uid in (os.geteuid(), 0)
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    if not ours or (found.st_mode & stat.S_IWOTH and shared):
        message = f"{folder} can be changed by other users; a control socket must not stand there"
        raise SocketPathError(message)


def _check_free(path: Path) -> None:
    # Before the lock, which would leave a file beside what is no concern of ours.
    if os.path.lexists(path) and not path.is_socket():
        words = "it exists and is not a socket; move it away, or choose another --socket"
        raise SocketPathError(f"cannot listen on {path}: {words}")


def _lock(path: Path, owned: contextlib.ExitStack) -> None:
    lock = path.with_name(path.name + ".lock")
    descriptor = open_lock(lock)
    owned.callback(os.close, descriptor)
    until = time.monotonic() + FREED_WITHIN_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            pid, *_ = os.pread(descriptor, 32, 0).decode(errors="replace").split() or [""]
            if not pid.isdecimal() or Path(f"/proc/{pid}").exists() or time.monotonic() > until:
                raise SocketTakenError(path, pid) from None
            time.sleep(LOOK_S)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n{VERSION}\n".encode(), 0)


def _bind_private(listener: socket.socket, path: Path) -> None:
    # The mode is set before anybody can connect: nothing listens yet.
    listener.bind(os.fspath(path))
    path.chmod(0o600)


def _remove(path: Path) -> None:
    # A file that stays, as on a disk that became read-only, is stale: the next daemon replaces it.
    with contextlib.suppress(OSError):
        path.unlink()
