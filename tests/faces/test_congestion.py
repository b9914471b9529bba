"""A client that does not read its answers: its requests wait, its cancels do not."""

from __future__ import annotations

import json
from typing import Any

from tests.faces.lines import request
from tests.faces.running import UNREAD_BYTES, Running, flooded, written_until_not_read

HELD_BYTES = 1 << 18
"""Of a client's requests that wait for their turn (docs/operating.md)."""


def cancel(request_id: str) -> dict[str, Any]:
    return {"requestId": request_id, "operation": "cancel"}


def served(daemon: Running) -> int:
    number: int = daemon.daemon.status("quiet")["counters"]["invocations"]
    return number


async def test_a_client_that_does_not_read_can_cancel_what_it_does_not_read() -> None:
    async with flooded() as (daemon, client):
        await client.send(request("behind", "quiet", op="echo"), cancel("flood"))
        await daemon.has_in_flight(0, "noisy")
        assert served(daemon) == 0  # a request waits all the same
        flood, behind = await client.done(), await client.done()
        assert (flood["requestId"], flood["error"]["code"]) == ("flood", "cancelled")
        assert (behind["requestId"], behind["ok"]) == ("behind", True)


async def test_requests_that_waited_are_served_in_the_order_they_were_written() -> None:
    async with flooded() as (_, client):
        await client.send(
            request("early", "quiet", op="echo"),
            b"no json\n",
            request("stop", "supervisor", "stop", module="quiet"),
            request("late", "quiet", op="echo"),
            cancel("flood"),
        )
        await client.stream.send_eof()
        dones = [line for line in await client.rest() if line["type"] == "done"]
        order = [done.get("requestId") for done in dones]
        assert order[0] == "flood"
        # A turn may be over between any two: the first may have its answer before that.
        assert order.index(None) < min(order.index("stop"), order.index("late"))
        ok = {done.get("requestId"): done["ok"] for done in dones}
        assert len(dones) == len(ok)
        assert ok == {"flood": False, None: False, "early": True, "stop": True, "late": False}


async def test_a_request_that_waits_can_be_cancelled_too() -> None:
    async with flooded() as (daemon, client):
        await client.send(request("a", "quiet", op="hang"), cancel("a"), cancel("flood"))
        await daemon.has_in_flight(0, "noisy")
        dones = [await client.done() for _ in range(2)]
        assert [done["requestId"] for done in dones] == ["flood", "a"]
        assert {done["error"]["details"]["reason"] for done in dones} == {"client"}


async def test_requests_of_a_client_that_does_not_read_are_not_read_for_ever() -> None:
    async with flooded() as (daemon, client):
        line = json.dumps(request(None, "quiet", op="echo")).encode() + b"\n"
        written = await written_until_not_read(daemon, client, line)
        assert written < HELD_BYTES + UNREAD_BYTES
        assert served(daemon) == 0
