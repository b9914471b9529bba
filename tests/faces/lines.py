"""A client of lines, at the end of whatever stream."""

from __future__ import annotations

import json
from typing import Any

import trio


class Client:
    """Writes requests and reads lines."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._held = b""

    async def send(self, *requests: dict[str, Any] | bytes) -> None:
        lines = [
            one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in requests
        ]
        await self.stream.send_all(b"".join(lines))

    async def raw_line(self) -> bytes | None:
        while b"\n" not in self._held:
            data = await self.stream.receive_some(65536)
            if not data:
                assert not self._held
                return None
            self._held += data
        line, self._held = self._held.split(b"\n", 1)
        return line

    async def line(self) -> dict[str, Any] | None:
        line = await self.raw_line()
        return None if line is None else json.loads(line)

    async def done(self) -> dict[str, Any]:
        while True:
            line = await self.line()
            assert line is not None, "the connection ended before the answer"
            if line["type"] == "done":
                return line

    async def rest(self) -> list[dict[str, Any]]:
        lines = []
        while (line := await self.line()) is not None:
            lines.append(line)
        return lines


def request(number: Any, tool: str, operation: str = "invoke", **content: Any) -> dict[str, Any]:
    named = {} if number is None else {"requestId": number}
    return {**named, "tool": tool, "operation": operation, "input": content}
