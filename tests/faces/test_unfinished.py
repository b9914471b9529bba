"""Lines that have not ended, or hold more than is read."""

from __future__ import annotations

import pytest
import trio

from tests.faces.lines import request
from tests.faces.running import Running
from tests.faces.test_conversation import error


async def test_who_leaves_holds_nothing(shared: Running) -> None:
    async with shared.lines() as client:
        await client.send(b"x" * 900)
        while shared.held_bytes != 900:
            await trio.lowlevel.checkpoint()
    while shared.held_bytes:
        await trio.lowlevel.checkpoint()


@pytest.mark.fault(29)
async def test_a_request_of_too_many_values_is_refused_unread(shared: Running) -> None:
    async with shared.lines() as client:
        dense = b'{"requestId":"a","tool":"m","operation":"invoke","input":{"op":"echo","args":['
        await client.send(dense + b"[]," * (1 << 17) + b"0]}}\n")
        refused = await client.done()
        assert error(refused) == ("bad_request", "malformed_request")
        assert "holds more than 131072 values" in refused["error"]["message"]
        await client.send(request("b", "m", op="echo", args={"n": [12345] * (1 << 16)}))
        assert (await client.done())["ok"]


@pytest.mark.fault(39)
async def test_a_request_that_is_slow_to_build_is_refused_unread(shared: Running) -> None:
    async with shared.lines() as client:
        head = (
            b'{"requestId":"a","tool":"m","operation":"invoke","input":{"op":"echo","args":{"n":['
        )
        await client.send(head + b",".join([b"7" * 4300] * 400) + b"]}}}\n")
        refused = await client.done()
        assert error(refused) == ("bad_request", "malformed_request")
        words = "holds more than 131072 values (ten digits of a long number count as one"
        assert words in refused["error"]["message"]
        await client.send(request("b", "m", op="echo", args={"n": 10**4299}))
        assert (await client.done())["ok"]
