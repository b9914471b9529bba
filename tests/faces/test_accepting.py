"""Clients that connect all at once are let in one after the other, and part as they came."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.faces import control_socket
from supervisor.faces.accepting import OF_ONE_CLIENT, _accept
from supervisor.faces.admission import Admission
from supervisor.faces.conversation import Conversation
from supervisor.kernel.status import Connections
from supervisor.runtime.containment.file_limit import FileLimit
from tests.bounds import WAIT_S
from tests.kernel.conftest import daemon_with

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

    places = Admission(FileLimit(), Connections())
    trio.lowlevel.add_instrument(turns)
    with contextlib.ExitStack() as owned:
        listener = owned.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "s"))
        listener.listen(CLIENTS)
        for _ in range(CLIENTS):
            owned.enter_context(socket.socket(socket.AF_UNIX)).connect(listener.getsockname())
        async with trio.open_nursery() as accepting:
            accepting.start_soon(_accept, listener, places, serve, accepting)
            with trio.fail_after(WAIT_S):
                await all_in.wait()
            accepting.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(turns)
    assert len(set(let_in)) == CLIENTS


@pytest.mark.parametrize("number", OF_ONE_CLIENT)
async def test_a_client_that_cannot_be_accepted_keeps_nobody_else_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It has gone already, or a firewall keeps it out: the others are let in as ever."""
    let_in, tries = trio.Event(), 0

    async def serve(client: trio.socket.SocketType) -> None:
        client.close()
        let_in.set()

    async def once_not(listener: trio.socket.SocketType) -> object:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(number, os.strerror(number))
        return await accept(listener)

    with contextlib.ExitStack() as owned:
        listener = owned.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        owned.enter_context(socket.socket(socket.AF_UNIX)).connect(listener.getsockname())
        kind = type(trio.socket.from_stdlib_socket(listener))
        accept = kind.accept
        monkeypatch.setattr(kind, "accept", once_not)
        async with trio.open_nursery() as accepting:
            places = Admission(FileLimit(), Connections())
            accepting.start_soon(_accept, listener, places, serve, accepting)
            with trio.fail_after(WAIT_S):
                await let_in.wait()
            accepting.cancel_scope.cancel()
    assert tries >= 2


@pytest.mark.fault(29)
async def test_a_crowd_that_hangs_up_in_one_moment_parts_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 900 connections of a process that was killed stopped the loop for 53 ms, with nobody named.
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)
    turns, parted = Turns(), Counter[int]()
    receive_eof = Conversation.receive_eof

    def counted(conversation: Conversation) -> None:
        parted[turns.now] += 1
        receive_eof(conversation)

    monkeypatch.setattr(Conversation, "receive_eof", counted)
    async with daemon_with(tmp_path) as daemon:
        with control_socket.listening(tmp_path / "socket") as listener:
            async with trio.open_nursery() as serving:
                serving.start_soon(control_socket.serve, daemon, listener)
                with trio.fail_after(WAIT_S):
                    crowd = [socket.socket(socket.AF_UNIX) for _ in range(CLIENTS)]
                    for number, client in enumerate(crowd):
                        client.connect(str(tmp_path / "socket"))
                        while daemon.facts.connections.open <= number:
                            await trio.lowlevel.checkpoint()
                    await trio.testing.wait_all_tasks_blocked()
                    trio.lowlevel.add_instrument(turns)
                    for client in crowd:
                        client.close()
                    while daemon.facts.connections.open:
                        await trio.lowlevel.checkpoint()
                    trio.lowlevel.remove_instrument(turns)
                await daemon.stop_fleet()
    assert parted.total() == CLIENTS
    assert max(parted.values()) <= 2  # the one who waited longest, and one who comes just then
