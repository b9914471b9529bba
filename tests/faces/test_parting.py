"""The daemon ends: its clients get what is owed to them, and are parted from."""

from __future__ import annotations

from tests.faces.lines import request
from tests.faces.running import running
from tests.system.descriptors import actor


async def test_ops_of_the_daemon_that_wait_are_answered_at_its_end() -> None:
    async with running(actor()) as face, face.lines() as client:
        follow = {"module": "m", "lines": 0, "follow": True}
        await client.send(
            request("logs", "supervisor", "logs", **follow),
            {**request("reloaded", "supervisor", "reloaded"), "input": {"number": 99}},
            request("h", "supervisor", "health"),
        )
        assert (await client.done())["requestId"] == "h"
        face.daemon.process.terminate()
        dones = [line for line in await client.rest() if line["type"] == "done"]
        assert {done["requestId"] for done in dones} == {"logs", "reloaded"}
        assert {done["error"]["details"]["reason"] for done in dones} == {"shutdown"}


async def test_a_client_without_requests_is_parted_from_without_a_word() -> None:
    async with running(actor()) as face, face.lines() as client:
        await client.send(request("h", "supervisor", "health"))
        assert (await client.done())["ok"] is True
        face.daemon.process.terminate()
        assert await client.rest() == []
        face.daemon.wait_ended()
        assert not face.daemon.socket.exists()
