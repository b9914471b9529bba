"""What a conversation leaves: in memory of requests that were answered, and for MCP."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import trio
import trio.testing

from supervisor.faces.byte_stream import carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.faces.module_wire import LineClient
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Party
from tests.bounds import WAIT_S
from tests.faces.in_process import connected
from tests.faces.lines import request
from tests.factories import actor
from tests.kernel.conftest import daemon_with
from tests.principals import ADA


def of_requests() -> list[object]:
    """Return what there is of requests, reachable or not."""
    return [one for one in gc.get_objects() if type(one) in (LineClient, Invocation)]


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


async def test_what_is_read_behind_the_op_mcp_is_given_back_wherever_it_is_cut(
    tmp_path: Path,
) -> None:
    op = b'{"requestId":"m","tool":"supervisor","operation":"mcp","input":{}}\n'
    behind = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"me'
    data = op + behind
    async with daemon_with(tmp_path) as daemon:
        for at in range(len(data)):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.setblocking(False)
                theirs.setblocking(False)
                party = Party(ADA)
                party.may_speak_mcp = True
                conversation, given = Conversation(daemon, party), list[bytes | None]()

                async def serve() -> None:
                    given.append(await carry(conversation, ours.fileno(), ours.fileno()))  # noqa: B023
                    await disconnect(conversation)  # noqa: B023

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(serve)
                    for piece in (data[:at], data[at:]):
                        theirs.send(piece)
                        await trio.testing.wait_all_tasks_blocked()
                left = ours.recv(1 << 16) if at >= len(op) else b""
                assert given[0] is not None
                assert given[0] + left == behind
                (answer,) = theirs.recv(1 << 16).splitlines()
                assert b'"requestId":"m"' in answer
