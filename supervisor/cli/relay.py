"""Carry bytes between stdin and stdout and a connection, until either side ends.

The end of stdin is passed on, and the remaining answers are carried out; the end of the connection
ends all.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading

READ_BYTES = 1 << 16

DAEMON_ENDED = "the daemon has ended, and this MCP server with it"


def relay(connection: socket.socket) -> bool:
    """Carry both ways; returns whether our side ended."""
    ended = threading.Event()
    # A daemon thread: it may wait for a stdin that never ends.
    threading.Thread(target=_carry_in, args=(connection, ended), daemon=True).start()
    out = sys.stdout.fileno()
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(READ_BYTES):
            try:
                _write(out, data)
            except OSError:
                return True  # the reader of stdout is gone
    return ended.is_set()


def _carry_in(connection: socket.socket, ended: threading.Event) -> None:
    reading = sys.stdin.fileno()
    with contextlib.suppress(OSError):
        while data := _read(reading):
            connection.sendall(data)
        ended.set()
        connection.shutdown(socket.SHUT_WR)


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # the parent process shares it, and made it non-blocking
            select.select([descriptor], [], [])


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
