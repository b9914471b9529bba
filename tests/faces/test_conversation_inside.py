"""What is left in memory of requests that were answered."""

from __future__ import annotations

import gc
from pathlib import Path

import trio

from supervisor.faces.module_wire import Exchange
from supervisor.kernel.invocation import Invocation
from tests.bounds import WAIT_S
from tests.faces.in_process import connected
from tests.faces.lines import request
from tests.factories import actor
from tests.kernel.conftest import daemon_with


def of_requests() -> list[object]:
    """Return what there is of requests, reachable or not."""
    return [one for one in gc.get_objects() if type(one) in (Exchange, Invocation)]


async def test_an_answered_invocation_needs_no_garbage_collector(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path, actor(tmp_path, name="m")) as daemon,
        connected(daemon) as client,
    ):
        gc.collect()
        # A test that failed keeps what it had.
        known = {id(one) for one in of_requests()}
        gc.disable()
        try:
            await client.send(request("a", "m", op="echo"), request("b", "m", op="echo"))
            assert (await client.done())["ok"]
            assert (await client.done())["ok"]
            # Not at once: the journal's thread may just be looking at who is in flight.
            with trio.fail_after(WAIT_S):
                while any(id(one) not in known for one in of_requests()):
                    await trio.lowlevel.checkpoint()
        finally:
            gc.enable()
