"""Modules that are services over HTTP, asked as any client asks (docs/http.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.kernel.kernel import Congestion, Party
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.service_peer import (
    EVENT,
    Asked,
    head,
    peer,
    whole,
)
from tests.principals import ADA

OK = {"ok": True, "result": 1}
HOUR_S = 3600


@pytest.mark.fault(44)
async def test_a_service_that_never_begins_its_answer_is_told_so_and_others_are_served(
    tmp_path: Path,
) -> None:
    async def put_off(stream: trio.abc.Stream, asked: Asked) -> None:
        while True:
            await stream.send_all(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)

    async def once(stream: trio.abc.Stream, asked: Asked) -> None:
        await stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n" + whole(OK))

    async with peer() as services:
        services.scripts["m/invoke"] = put_off
        services.scripts["other/invoke"] = once
        made = [services.service(tmp_path, name) for name in ("m", "other")]
        async with daemon_with(tmp_path, *made) as daemon:
            asked = ask(daemon, "m")
            assert (await ask(daemon, "other").document())["ok"]
            error = (await asked.document())["error"]
            assert (error["code"], error["details"]["reason"]) == ("unreachable", "bad_http")
            assert "does not begin its answer within 102400 bytes" in error["message"]
            del services.scripts["m/invoke"]
            assert (await ask(daemon, "m").document())["ok"]


@pytest.mark.fault(44)
async def test_a_greeting_of_tls_that_never_comes_is_told_and_does_not_hold_up_the_end(
    tmp_path: Path,
) -> None:
    (mute,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # accepts, and says nothing
    url = f"https://127.0.0.1:{mute.socket.getsockname()[1]}"
    async with mute, peer() as services:
        once = {"start": "lazy", "intensity": 0}
        made = [
            services.service(
                tmp_path,
                name,
                transport={"url": url},
                supervision={**once, "timeouts": {"health_s": health_s, "start_s": HOUR_S}},
            )
            for name, health_s in (("m", 1), ("waits", HOUR_S))
        ]
        async with daemon_with(tmp_path, *made) as daemon:
            waits = ask(daemon, "waits")
            error = (await ask(daemon, "m").document())["error"]
            assert "cannot be spoken with over TLS: no greeting in 1 s" in error["message"]
            assert error["code"] == "unreachable"
        assert (await waits.document())["error"]["details"]["reason"] == "shutdown"


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
