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

UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
"""The headers that ask for a WebSocket."""


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
    return [str(answer.status), *shown]  # the phrase behind it is the server's


def upgraded(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline().strip():
        if line.lower().startswith((b"http/", b"sec-websocket-protocol")):
            yield line.removeprefix(b"HTTP/1.1 ").removesuffix(b"Switching Protocols").strip()
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


def process_channel(process: subprocess.Popen[bytes]) -> Channel:
    standard_in, standard_out = process.stdin, process.stdout
    assert standard_in
    assert standard_out

    def write(text: str) -> None:
        standard_in.write(text.encode() + b"\n")
        standard_in.flush()

    def close() -> str:
        with contextlib.suppress(OSError):
            standard_in.close()
        try:
            status = process.wait(WAIT_S)
        finally:
            process.kill()
        standard_out.close()
        return f"(end, exit {status})"

    channel = Channel(standard_out.readline, write, close)
    channel.process = process
    return channel


def web_socket_channel(connection: socket.socket) -> Channel:
    """Return a channel to a WebSocket that has been asked for; its head comes first."""
    source = connection.makefile("rb")
    shown = iter([line + b"\n" for line in upgraded(source)])

    def read_frame() -> bytes:
        if line := next(shown, b""):
            return line
        if len(start := source.read(2)) < 2:
            return b""
        kind, size = start[0] & 15, start[1]
        if size > 125:
            size = int.from_bytes(source.read(2 if size == 126 else 8))
        data = source.read(size)
        if kind == 8:
            return f"(closed, {int.from_bytes(data[:2])} {data[2:].decode()})\n".encode()
        return data + b"\n"

    def write(text: str) -> None:
        data = text.encode()
        size = bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2)
        connection.sendall(b"\x81" + size + bytes(4) + data)  # a mask of zeros

    def close() -> str:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        source.close()
        connection.close()
        return "(end)"

    return Channel(read_frame, write, close)


def closing(answer: http.client.HTTPResponse) -> Callable[[], str]:
    def close() -> str:
        with contextlib.suppress(OSError):
            os.set_blocking(answer.fileno(), False)
            with socket.socket(fileno=os.dup(answer.fileno())) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        answer.close()
        return "(end)"

    return close
