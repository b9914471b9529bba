"""A port for who listens there later, or again: nobody else is given it meanwhile."""

from __future__ import annotations

import socket


def held_port() -> tuple[socket.socket, int]:
    """Return a port of 127.0.0.1, and the socket that holds it until it is closed.

    That one does not listen: then others that ask for SO_REUSEADDR, as servers do, may bind to it,
    and the kernel gives it to nobody who asks for any.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]
