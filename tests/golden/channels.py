"""Lines to and from what speaks with the daemon: connections, processes, streams of HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

from tests.bounds import WAIT_S

HOP_HEADERS = frozenset({"connection", "transfer-encoding", "content-length", "date", "keep-alive"})
"""What belongs to a connection and not to an answer."""


class Channel:
    """Lines to and from a connection, a process or a stream."""

    def __init__(
        self, read_line: Callable[[], bytes], write: Callable[[str], None], close: Callable[[], str]
    ) -> None:
        self.write = write
        self.process: subprocess.Popen[bytes] | None = None
        self._read_line = read_line
        self._close = close
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # http.client stumbles over an answer that is closed while it is read.
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while line := self._read_line():
                with self._changed:
                    self._lines.append(line.decode(errors="replace").rstrip("\r\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self, wanted: Callable[[str], bool] | None, awaited: str) -> list[str]:
        """Return the lines up to one that is wanted, or up to the end."""
        seen = 0

        def there() -> bool:
            nonlocal seen
            while wanted and seen < len(self._lines):
                seen += 1
                if wanted(self._lines[seen - 1]):
                    return True
            return self._ended

        with self._changed:
            held = self._changed.wait_for(there, WAIT_S)
            if not held:
                seen = len(self._lines)
            taken = self._lines[: seen if wanted else None]
            del self._lines[: len(taken)]
            if not held:
                taken.append(f"(not within {WAIT_S:g} s: {awaited})")
            elif self._ended and not self._lines and not (wanted and taken and wanted(taken[-1])):
                taken.append("(end)")
        if taken[-1:] == ["(end)"] and (said := self.close()):
            taken[-1] = said
        return taken

    def close(self) -> str:
        if self.process and not self._ended:
            self.process.terminate()
        said = self._close()
        self._thread.join(WAIT_S)
        return said


def answering(request: dict[str, Any]) -> Callable[[str], bool]:
    """Return whether a line answers a request to the socket, or one of JSON-RPC."""

    def answers(line: str) -> bool:
        try:
            said = json.loads(line)
        except ValueError:
            return False
        if not isinstance(said, dict):
            return True
        if "requestId" in request:
            return said.get("type") == "done" and said.get("requestId") == request["requestId"]
        return "method" not in said and said.get("id") == request.get("id")

    return answers


def begins(line: str) -> bool:
    return line == "(head)"


def head(answer: http.client.HTTPResponse) -> list[str]:
    headers = sorted((name.lower(), value) for name, value in answer.getheaders())
    shown = [f"{name}: {value}" for name, value in headers if name not in HOP_HEADERS]
    return [f"{answer.status} {answer.reason}", *shown]


def upgraded(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline().strip():
        if line.lower().startswith((b"http/", b"sec-websocket-protocol")):
            yield line.removeprefix(b"HTTP/1.1 ").strip()
    yield b"(head)"


def socket_channel(connection: socket.socket) -> Channel:
    lines = connection.makefile("rb")

    def close() -> str:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        lines.close()
        connection.close()
        return "(end)"

    return Channel(lines.readline, lambda text: connection.sendall(text.encode() + b"\n"), close)


def line_writer(to: IO[bytes]) -> Callable[[str], None]:
    def write(text: str) -> None:
        to.write(text.encode() + b"\n")
        to.flush()

    return write


def closing(answer: http.client.HTTPResponse) -> Callable[[], str]:
    def close() -> str:
        with contextlib.suppress(OSError):
            os.set_blocking(answer.fileno(), False)
            socket.socket(fileno=os.dup(answer.fileno())).shutdown(socket.SHUT_RDWR)
        answer.close()
        return "(end)"

    return close
