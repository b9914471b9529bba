"""Modules that are services over HTTP, asked as any client asks (docs/http.md)."""

from __future__ import annotations

import json
from pathlib import Path

import trio
import trio.testing

from supervisor.kernel.kernel import Congestion, Party
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.service_peer import (
    EVENT,
    Asked,
    head,
    peer,
)
from tests.principals import ADA

OK = {"ok": True, "result": 1}


async def test_a_client_that_does_not_read_leaves_its_own_answer_unread(tmp_path: Path) -> None:
    line = json.dumps({**EVENT, "payload": {"text": "x" * 30_000}}).encode() + b"\n"
    sent = 0

    async def pour(stream: trio.abc.Stream, asked: Asked) -> None:
        nonlocal sent
        await stream.send_all(head("application/x-ndjson"))
        for _ in range(500):
            await stream.send_all(line)
            sent += 1
        await stream.send_all(json.dumps(OK).encode())
        await stream.aclose()

    async with peer() as services:
        services.scripts["m/invoke"] = pour
        made = services.service(tmp_path, "m", supervision={"concurrency": 2})
        async with daemon_with(tmp_path, made) as daemon:
            slow = Asker()
            slow.slow = Congestion.SLOW
            handle = daemon.begin(Party(ADA), "m", "invoke", {"op": "o"}, slow)
            await slow.heard(1)
            del services.scripts["m/invoke"]
            for _ in range(20):  # answered all the same, while the other does not get on
                assert (await ask(daemon, "m").document())["ok"]
            assert sent < 500
            slow.slow = Congestion.NONE
            assert handle is not None
            handle.resume()
            assert (await slow.document())["ok"]
            assert len(slow.events) == 500
