"""Services over HTTP that say what a test has them say, byte by byte; on loopback."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from protocol.descriptor.model import Descriptor
from tests.factories import descriptor

EVENT = {"version": "0", "type": "ui_event", "event": "progress", "payload": {"done": 1}}
LOG = {"version": "0", "type": "log", "level": "info", "message": "at work"}


class Asked(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    """The number of the connection that it came over."""


Script = Callable[[trio.abc.Stream, Asked], Awaitable[None]]
"""Answers a request; the connection is kept for the next one unless the script closes it."""


def head(media: str, *more: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {media}", *more, "", ""]).encode()


def whole(body: Any, media: str = "application/json", *more: str, status: str = "200 OK") -> bytes:
    """Return a response; a body that is no bytes is encoded as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(media, f"Content-Length: {len(content)}", *more, status=status) + content


def streamed(*lines: Any, media: str = "application/x-ndjson") -> bytes:
    """Return a response of chunks, one for each line; without its end."""
    said = head(media, "Transfer-Encoding: chunked")
    for line in lines:
        text = json.dumps(line).encode() + b"\n"
        if media == "text/event-stream":
            text = b": a comment\r\nevent: any\r\ndata: " + text + b"\r\n"
        said += b"%x\r\n%b\r\n" % (len(text), text)
    return said


LAST_CHUNK = b"0\r\n\r\n"


def says(response: bytes, *, then_close: bool = False) -> Script:
    """Make the script that says these bytes."""

    async def script(stream: trio.abc.Stream, asked: Asked) -> None:
        await stream.send_all(response)
        if then_close:
            await stream.aclose()

    return script


async def hang(stream: trio.abc.Stream, asked: Asked) -> None:
    """Answer nothing; ends when the other side does."""
    assert await stream.receive_some() == b""
    await stream.aclose()


class Peer:
    """A server with a service under each name, all well as long as nothing else is scripted."""

    def __init__(self) -> None:
        self.port = 0
        self.scheme = "http"
        self.scripts: dict[str, Script] = {}
        self.asked: list[Asked] = []
        self.connections = 0
        self.open = 0
        self._changed = trio.lowlevel.ParkingLot()
        self._listening: trio.CancelScope | None = None

    def url(self, name: str) -> str:
        return f"{self.scheme}://localhost:{self.port}/{name}"

    def service(self, folder: Path, name: str, **fields: Any) -> Descriptor:
        """Return the descriptor of a module that is the service of that name."""
        transport = {"type": "http", "url": self.url(name), **fields.pop("transport", {})}
        return descriptor(folder, ["-"], name=name, transport=transport, **fields)

    def invoked(self, name: str) -> list[Asked]:
        return [one for one in self.asked if one.path == f"/{name}/invoke"]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.park()

    async def listen(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve, at the same port as before, until it is gone."""
        with trio.CancelScope() as self._listening:
            (listener,) = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
            self.port = listener.socket.getsockname()[1]
            task_status.started()
            await trio.serve_listeners(partial(self._serve, tls), [listener])
        self._listening = None
        self._changed.unpark_all()

    async def vanish(self) -> None:
        """Close all connections, and accept none."""
        assert self._listening is not None
        self._listening.cancel()
        await self.until(lambda: self._listening is None)

    async def _serve(self, tls: ssl.SSLContext | None, raw: trio.SocketStream) -> None:
        self.connections += 1
        number = self.connections
        self.open += 1
        stream: trio.abc.Stream = raw
        if tls is not None:
            stream = trio.SSLStream(raw, tls, server_side=True, https_compatible=True)
        try:
            async with stream:
                await self._converse(stream, number)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the other side may go, and a script may close
        finally:
            self.open -= 1
            self._changed.unpark_all()

    async def _converse(self, stream: trio.abc.Stream, number: int) -> None:
        said = b""
        while True:
            while b"\r\n\r\n" not in said:
                if not (data := await stream.receive_some()):
                    return
                said += data
                if said.startswith(b"\x16"):  # the hello of TLS, which servers answer so
                    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
            lines, _, said = said.partition(b"\r\n\r\n")
            first, *fields = lines.decode().split("\r\n")
            pairs = (field.split(": ", 1) for field in fields)
            headers = {name.lower(): value for name, value in pairs}
            while len(said) < int(headers["content-length"]):
                said += await stream.receive_some()
            body, said = said[: int(headers["content-length"])], b""
            asked = Asked(first.split(" ")[1], headers, json.loads(body), number)
            self.asked.append(asked)
            self._changed.unpark_all()
            await self.scripts.get(asked.path.removeprefix("/"), _well)(stream, asked)


async def _well(stream: trio.abc.Stream, asked: Asked) -> None:
    answers: dict[str, Any] = {
        "health": {"status": "ok"},
        "describe": {},
        "invoke": {"ok": True, "result": asked.body.get("args")},
    }
    await stream.send_all(whole(answers[asked.path.rpartition("/")[2]]))


@asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    """Have a peer listen for as long as the block lasts."""
    async with trio.open_nursery() as nursery:
        one = Peer()
        await nursery.start(one.listen)
        yield one
        nursery.cancel_scope.cancel()
