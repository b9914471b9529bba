"""The gateway's server with small bounds and an application that reads a body and tells its length.

    python -m tests.edge.bounded_program LISTENER BOUNDS [CERT KEY]

LISTENER is the number of a listening socket, BOUNDS a JSON object of fields of `Bounds`. The path
`/endless` is answered without an end, `/long` with more than a socket holds, `/headers` with the
names of the request's headers; what a WebSocket says is ignored.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

from supervisor.edge.http.bounded_http import Bounds
from supervisor.edge.http.messages import (
    Receive,
    Scope,
    Send,
)
from supervisor.edge.http.program import serve
from supervisor.policy.http_exposure import Exposure


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    path, size = scope["path"], 0
    message = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] != "http.request":
            return
        size += len(message["body"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    names = b" ".join(name for name, _ in scope["headers"])
    bodies = {"/headers": names, "/long": b"x" * (16 << 20)}
    body = bodies.get(path, b"%d" % size)
    part: dict[str, Any] = {"type": "http.response.body", "body": body}
    left = asyncio.ensure_future(receive())
    while path == "/endless" and not left.done():
        await send({**part, "body": b"x" * 65536, "more_body": True})
        await asyncio.sleep(0)
    await send(part)


if __name__ == "__main__":
    listener = socket.socket(fileno=int(sys.argv[1]))
    bounds = Bounds(**json.loads(sys.argv[2]))
    cert, key = [*map(Path, sys.argv[3:]), None, None][:2]
    serve(application, Exposure(cert=cert, key=key), [listener], supervised=False, bounds=bounds)
