"""The open streams of a daemon: their bound, and their signs of life."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import trio

if TYPE_CHECKING:
    from supervisor.faces.http.event_stream import Stream
    from supervisor.faces.http.websocket import WebSocket
    from supervisor.faces.mcp.endpoint import McpExchange
    from supervisor.faces.mcp.http_session import SessionStream

    Beats: TypeAlias = Stream | SessionStream | McpExchange | WebSocket

MOST = 1024
"""Each takes a descriptor, and a look at the journal for each group of entries."""

BEAT_S = 15.0
"""Proxies close what is silent for a minute."""

BEATS_A_TURN = 64


class Streams:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: dict[Beats, None] = {}
        self._some = trio.Event()

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._most

    def add(self, stream: Beats) -> None:
        self._open[stream] = None
        self._some.set()

    def discard(self, stream: Beats) -> None:
        """Idempotent."""
        self._open.pop(stream, None)

    async def run(self) -> None:
        """Send signs of life on all streams, until cancelled."""
        while True:
            while not self._open:  # nobody is woken for nothing
                self._some = trio.Event()
                await self._some.wait()
            await trio.sleep(BEAT_S)
            for number, stream in enumerate(tuple(self._open)):
                if stream in self._open:
                    stream.beat()
                if number % BEATS_A_TURN == BEATS_A_TURN - 1:
                    await trio.lowlevel.checkpoint()
