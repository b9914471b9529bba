"""Know who was born and who died, and when: each process connects here, and dies with its end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass
class Life:
    """A process that was here; times are monotonic (s)."""

    role: str
    pid: int
    pidfd: int
    born_s: float
    died_s: float | None = None


class Births:
    """A socket to connect to, and what was seen there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lives: list[Life] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Kill what was left behind, by its own descriptor: a number may be someone else's."""
        self.until(lambda: False, 0.0)
        for life in self.lives:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(life.pidfd, signal.SIGKILL)
            os.close(life.pidfd)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def of(self, *roles: str) -> list[Life]:
        """Return all that ever had one of these roles."""
        return [life for life in self.lives if life.role in roles]

    def alive(self, *roles: str) -> list[Life]:
        """Return those that live, of these roles or of any."""
        return [
            life for life in self.lives if life.died_s is None and (not roles or life.role in roles)
        ]

    def until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Watch until something holds or the time is over; return whether it holds."""
        end = time.monotonic() + within_s
        while True:
            while self._look(0):
                pass
            if holds():
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._look(left)

    def watch(self, seconds: float) -> None:
        """Watch for so long."""
        self.until(lambda: False, seconds)

    def _look(self, within_s: float) -> bool:
        found = self._selector.select(within_s)
        now = time.monotonic()
        for key, _ in found:
            if key.fileobj is self._listener:
                connection, _ = self._listener.accept()
                with connection.makefile("rb") as first:
                    words = first.readline().decode().split()
                if len(words) == 2 and (life := _life(words[0], int(words[1]), now)):  # noqa: PLR2004
                    self.lives.append(life)
                    self._selector.register(connection, selectors.EVENT_READ, life)
                else:
                    connection.close()
            elif isinstance(key.fileobj, socket.socket):
                key.data.died_s = now
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
        return bool(found)


def _life(role: str, pid: int, now: float) -> Life | None:
    try:
        return Life(role, pid, os.pidfd_open(pid), now)
    except ProcessLookupError:
        # It is gone already; that it was born still counts.
        return Life(role, pid, os.open("/dev/null", os.O_RDONLY), now, now)
