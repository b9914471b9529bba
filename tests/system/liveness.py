"""Know which processes live: each one connects here, and the end of its connection is its death.

No process is asked by its number, which the kernel may give to another, and nobody waits for a
time: the kernel closes a dead process's sockets.
"""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

BOUND_S = 60.0
"""The longest any wait of these tests may take; none comes near it unless something is wrong."""


class Member(NamedTuple):
    """A process that said that it lives."""

    role: str
    pid: int
    instance: str
    connection: socket.socket

    def alive(self) -> bool:
        """Whether its connection is open; it says nothing after its first line."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return not readable

    def wait_gone(self) -> None:
        """Return when it is dead; fails after BOUND_S."""
        readable, _, _ = select.select([self.connection], [], [], BOUND_S)
        assert readable, f"{self.role} {self.pid} of {self.instance} still lives"

    def release(self) -> None:
        """Open the gate it waits at."""
        self.connection.sendall(b".")


class Liveness:
    """A socket that processes connect to; put its `path` in their environment as LIVENESS."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: list[Member] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1024)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._listener.close()
        for member in self.members:
            member.connection.close()

    def take_in(self) -> list[Member]:
        """Accept those that have connected by now, and return all members that are alive."""
        while self._accept(0):
            pass
        return [member for member in self.members if member.alive()]

    def wait_for(self, role: str, number: int = 1) -> list[Member]:
        """Return the members of a role once there have been so many."""
        until = time.monotonic() + BOUND_S
        while len(found := [one for one in self.members if one.role == role]) < number:
            assert self._accept(until - time.monotonic()), f"only {len(found)} {role}s came"
        return found

    def _accept(self, seconds: float) -> bool:
        readable, _, _ = select.select([self._listener], [], [], max(seconds, 0))
        if readable:
            connection, _ = self._listener.accept()
            connection.settimeout(BOUND_S)
            line = b""
            while not line.endswith(b"\n"):
                piece = connection.recv(200)
                if not piece:  # it died while it said so
                    connection.close()
                    return True
                line += piece
            role, pid, instance = line.decode().rstrip("\n").split(" ", 2)
            self.members.append(Member(role, int(pid), instance, connection))
        return bool(readable)
