"""What an invocation over HTTP, and over WebSocket, costs the event loop; one after the other."""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path

import pytest
import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

from tests.budget.conftest import Bench, assert_within
from tests.budget.test_invocations import INVOCATIONS, functions_called
from tests.budget.turns import Turns
from tests.faces.http.in_process import served

BODY = json.dumps({"op": "echo", "args": {}}).encode()
POST = (
    b"POST /api/v1/modules/m/invoke HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
MESSAGE = {"id": "1", "payload": {"action": "invoke", "module": "m", "op": "echo", "args": {}}}
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Asker:
    """Asks anew whenever it has its answer."""

    def __init__(self, turns: Turns, end: socket.socket, request: bytes) -> None:
        self.ended = trio.Event()
        self._turns = turns
        self._end = end
        self._request = request
        self._asked = 0

    def turn(self) -> bool:
        if self._asked:
            try:
                assert b'"ok":true' in self._end.recv(1 << 16)
            except BlockingIOError:
                return False
        if self._asked < INVOCATIONS:
            self._asked += 1
            self._end.sendall(self._request)
        else:
            self._turns.soon(self.ended.set)
        return True


@pytest.mark.parametrize(
    ("upgrade", "functions"), [(b"", 140), (UPGRADE, 96)], ids=["http", "websocket"]
)
async def test_invocations_over_http_stay_in_their_budget(
    bench: Bench, tmp_path: Path, upgrade: bytes, functions: int
) -> None:
    request = POST
    if upgrade:
        request = Connection(ConnectionType.CLIENT).send(TextMessage(json.dumps(MESSAGE)))

    async def ask() -> None:
        asker = Asker(bench.turns, end, request)
        bench.turns.peers.append(asker)
        await asker.ended.wait()
        bench.turns.peers.remove(asker)

    async with served(bench.daemon, tmp_path):
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(str(tmp_path / "http.sock"))
            end.setblocking(False)
            end.sendall(upgrade)
            said = b""
            while upgrade and b'"connected"' not in said:
                await trio.lowlevel.wait_readable(end)
                said += end.recv(1 << 16)
            trio.lowlevel.notify_closing(end)
            await ask()  # what the first one of all makes ready
            with functions_called() as called:
                await ask()
            with bench.counting() as counts:
                await ask()
                counted = Counter(counts)
    # To the module and to the client, and from both; of each, its reader has a step.
    assert_within(counted, INVOCATIONS, {"writes": 2, "reads": 2, "steps": 2, "passes": 2})
    assert called.total() <= functions * INVOCATIONS, called.most_common(100)
