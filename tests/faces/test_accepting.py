"""Clients that connect all at once are let in one after the other."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import trio

from supervisor.faces.accepting import _accept
from tests.bounds import WAIT_S

CLIENTS = 100


class Turns(trio.abc.Instrument):
    """Counts the turns of the event loop."""

    now = 0

    def before_io_wait(self, timeout: float) -> None:
        """Take note of the end of a turn."""
        self.now += 1


async def test_of_a_crowd_one_client_is_let_in_in_a_turn(tmp_path: Path) -> None:
    turns, let_in = Turns(), list[int]()
    all_in = trio.Event()

    async def serve(client: trio.socket.SocketType) -> None:
        let_in.append(turns.now)
        client.close()
        if len(let_in) == CLIENTS:
            all_in.set()

    trio.lowlevel.add_instrument(turns)
    with contextlib.ExitStack() as owned:
        listener = owned.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "s"))
        listener.listen(CLIENTS)
        for _ in range(CLIENTS):
            owned.enter_context(socket.socket(socket.AF_UNIX)).connect(listener.getsockname())
        async with trio.open_nursery() as accepting:
            accepting.start_soon(_accept, listener, serve, accepting)
            with trio.fail_after(WAIT_S):
                await all_in.wait()
            accepting.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(turns)
    assert len(set(let_in)) == CLIENTS
