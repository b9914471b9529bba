"""Clients of a daemon within the test's own process, at the other end of a socket pair."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from supervisor.faces.byte_stream import carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Party
from supervisor.policy.principals import Principal
from tests import factories
from tests.faces.lines import Client, request
from tests.faces.running import ENDLESS
from tests.kernel.conftest import daemon_with
from tests.principals import ADA

CALM = {"health": {"interval_s": 1000}, "timeouts": {"exit_s": 0.1, "stop_s": 0.1}}


@asynccontextmanager
async def connected(
    daemon: Kernel, *, buffer_bytes: int | None = None, principal: Principal = ADA
) -> AsyncIterator[Client]:
    """Serve one client over a socket pair."""
    theirs, ours = socket.socketpair()
    ours.setblocking(False)
    if buffer_bytes is not None:
        for end in (theirs, ours):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)

    async def serve() -> None:
        with ours:
            party = Party(principal)
            party.may_speak_mcp = True
            conversation = Conversation(daemon, party)
            try:
                await carry(conversation, ours.fileno(), ours.fileno())
            finally:
                await disconnect(conversation)
            trio.lowlevel.notify_closing(ours)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        async with stream:
            yield Client(stream)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def congested(folder: Path) -> AsyncIterator[tuple[Kernel, Client]]:
    """Have a client with an open request `flood` whose answers it does not read."""
    noisy = factories.actor(folder, name="noisy", supervision=CALM)
    unhurried = {**CALM, "timeouts": {"exit_s": 0.1, "stop_s": factories.GENEROUS_S}}
    quiet = factories.actor(folder, name="quiet", supervision=unhurried)
    async with (
        daemon_with(folder, noisy, quiet) as daemon,
        connected(daemon, buffer_bytes=4096) as client,
    ):
        await client.send(request("flood", "noisy", op="events", args=ENDLESS))
        while not any(call.listener.congested() for call in noisy_calls(daemon)):
            await trio.testing.wait_all_tasks_blocked(0.001)
        yield daemon, client


def noisy_calls(daemon: Kernel) -> list[Any]:
    life: Any = daemon.fleet.modules["noisy"].workers[0].life
    return list(life._calls.values())
