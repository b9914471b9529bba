"""A client that says what it likes, and reads responses whole or as they come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import h11
import trio

from tests.faces.http import documented

JSON = {"Content-Type": "application/json"}


class Reply:
    """A response; of a stream its head, until `rest` or `more` is awaited."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.body = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._wire = h11.Connection(h11.CLIENT)

    async def write(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Write a request; a `body` that is no bytes is written as JSON."""
        said = [("Host", "localhost"), *headers]
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        if method in ("POST", "PATCH"):
            if not any(name.lower() == "content-type" for name, _ in said):
                said.append(("Content-Type", "application/json"))
            said.append(("Content-Length", str(len(data))))
        if token is not None:
            said.append(("Authorization", f"Bearer {token}"))
        if self._wire.our_state is h11.DONE:
            self._wire.start_next_cycle()
        request = h11.Request(method=method, target=path, headers=said)
        out = self._wire.send(request) or b""
        out += (self._wire.send(h11.Data(data)) or b"") if data else b""
        await self.write(out + (self._wire.send(h11.EndOfMessage()) or b""))

    def expect_reply(self) -> None:
        """Take what was written for a request that it may not have been."""
        if self._wire.our_state is not h11.IDLE:
            self._wire.start_next_cycle()
        self._wire.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        self._wire.send(h11.EndOfMessage())

    async def head(self) -> Reply:
        """Read the head of a response."""
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        assert isinstance(event, h11.Response), event
        headers = {name.decode(): value.decode() for name, value in event.headers}
        return Reply(event.status_code, headers)

    async def more(self) -> bytes | None:
        """Read what comes next of a body; None at its end."""
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def rest(self) -> bytes:
        """Read what is left of a body."""
        found = b""
        while (data := await self.more()) is not None:
            found += data
        return found

    async def reply(self) -> Reply:
        """Read a response whole."""
        reply = await self.head()
        reply.body = await self.rest()
        return reply

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        """Read the response to a request, which is as the OpenAPI document says."""
        await self.send(method, path, body, **more)
        reply = await self.reply()
        media = reply.headers.get("content-type", "")
        documented.check(method, path, reply.status, media, reply.body)
        return reply

    async def is_closed(self) -> bool:
        """Read on; whether the other side has nothing more to say, and closes."""
        return not await self.stream.receive_some(1)

    async def _next(self) -> Any:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(bytes(await self.stream.receive_some(65536)))
        return event
