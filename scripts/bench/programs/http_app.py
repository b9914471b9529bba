"""http_app.py SOCKET ...: what the gateway is measured beside, Starlette on the same uvicorn.

    POST          answered by a constant; to `.../prompt`, 20 events go to each event stream before
    GET           an event stream, or the file of 1 GB that `/api/v1/assets` names
    WebSocket     each message is answered by a constant

No caller is identified, no body is read as JSON, and no daemon is asked. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

BODY = (
    '{"ok":true,"result":{"n":1},"request_id":"r1","module":"primes","op":"echo",'
    '"duration_ms":0,"warnings":[]}'
)
HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
"""What stdiod says, too."""
FRAME = (
    '{"type":"response","id":"1","timestamp":"2026-11-24T00:00:00.000+00:00",'
    '"payload":{"action":"invoked",' + BODY[1:] + "}"
)
EVENT = 'event: message.chunk\ndata: {"type":"message.chunk","payload":{"content":"%d"}}\n\n'
EVENTS = [EVENT % number for number in range(19)] + ["event: message.complete\ndata: {}\n\n"]

FILE_BYTES = 1_000_000_000

listening: list[asyncio.Queue[str]] = []


async def answer(request: Request) -> Response:
    await request.body()
    for event in EVENTS if request.url.path.endswith("/prompt") else ():
        for queue in listening:
            queue.put_nowait(event)
        await asyncio.sleep(0)  # it leaves when it comes, and is not kept for the next
    return Response(BODY, media_type="application/json", headers=HEADERS)


async def events(_: Request) -> Response:
    return StreamingResponse(told(), media_type="text/event-stream")


async def told() -> AsyncIterator[str]:
    queue: asyncio.Queue[str] = asyncio.Queue()
    listening.append(queue)
    while True:
        yield await queue.get()


async def assets(_: Request) -> Response:
    return Response('{"assets":[{"asset":"a","sha256":"-"}]}', media_type="application/json")


async def content(_: Request) -> Response:
    path = f"{sys.argv[1]}.file"
    with open(path, "wb") as file:  # noqa: ASYNC230, PTH123 - it takes no time
        file.truncate(FILE_BYTES)
    return FileResponse(path)


async def converse(client: WebSocket) -> None:
    await client.accept()
    async for _ in client.iter_text():
        await client.send_text(FRAME)


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)
        threading.Thread(target=self.end_with_stdin, daemon=True).start()

    def end_with_stdin(self) -> None:
        sys.stdin.read()
        self.should_exit = self.force_exit = True


routes = [
    Route("/api/v1/assets", assets),
    Route("/api/v1/assets/a/content", content),
    Route("/{path:path}", answer, methods=["POST"]),
    Route("/{path:path}", events, methods=["GET"]),
    WebSocketRoute("/{path:path}", converse),
]
Server(
    uvicorn.Config(
        Starlette(routes=routes),
        uds=sys.argv[1],
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
    )
).run()
