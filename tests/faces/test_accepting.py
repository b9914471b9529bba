"""Clients that connect all at once are let in one after the other, and part as they came."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.faces import control_socket
from supervisor.faces.admission import Admission
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.status import Connections
from tests.bounds import WAIT_S
from tests.kernel.conftest import daemon_with

CLIENTS = 100
FEW_CLIENTS = 20


class LetIn(trio.abc.Instrument):
    """Counts the clients that are let in, in all and in one pass of the event loop."""

    def __init__(self, connections: Connections) -> None:
        self.count = self.most_in_a_pass = 0
        self._connections = connections
        self._open = connections.open

    def before_io_wait(self, timeout: float) -> None:
        # On a slow machine it may take too long to tell whose the first ones are; they leave then.
        more = self._connections.open - self._open
        self._open = self._connections.open
        self.count += max(more, 0)
        self.most_in_a_pass = max(self.most_in_a_pass, more)


class Turns(trio.abc.Instrument):
    """Counts the turns of the event loop."""

    now = 0

    def before_io_wait(self, timeout: float) -> None:
        """Take note of the end of a turn."""
        self.now += 1


@asynccontextmanager
async def serving(daemon: Kernel, folder: Path) -> AsyncIterator[Path]:
    """Serve a control socket, and yield its path; stops the daemon's modules at the end."""
    with control_socket.listening(folder / "socket") as listener:
        async with trio.open_nursery() as nursery:
            admission = Admission.of(daemon.facts)
            nursery.start_soon(control_socket.serve, daemon, listener, admission)
            with trio.fail_after(WAIT_S):
                yield folder / "socket"
            await daemon.stop_fleet()


async def test_of_a_crowd_one_client_is_let_in_in_a_pass(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon, serving(daemon, tmp_path) as path:
        connections = daemon.facts.connections
        let_in = LetIn(connections)
        with contextlib.ExitStack() as owned:
            for _ in range(FEW_CLIENTS):
                owned.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            trio.lowlevel.add_instrument(let_in)
            while let_in.count < FEW_CLIENTS:
                await trio.lowlevel.checkpoint()
            trio.lowlevel.remove_instrument(let_in)
    assert let_in.most_in_a_pass == 1


@pytest.mark.parametrize("number", control_socket.OF_ONE_CLIENT)
async def test_a_client_that_cannot_be_accepted_keeps_nobody_else_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It has gone already, or a firewall keeps it out: the others are let in as ever."""
    tries = 0

    async def once_not(listener: trio.socket.SocketType) -> object:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(number, os.strerror(number))
        return await accept(listener)

    with socket.socket() as one:
        kind = type(trio.socket.from_stdlib_socket(one))
    accept = kind.accept
    monkeypatch.setattr(kind, "accept", once_not)
    async with (
        daemon_with(tmp_path) as daemon,
        serving(daemon, tmp_path) as path,
        await trio.open_unix_socket(path),
    ):
        while not daemon.facts.connections.open:
            await trio.lowlevel.checkpoint()
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
    async with daemon_with(tmp_path) as daemon, serving(daemon, tmp_path) as path:
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(CLIENTS)]
        for number, client in enumerate(crowd):
            client.connect(str(path))
            while daemon.facts.connections.open <= number:
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(turns)
        for client in crowd:
            client.close()
        while daemon.facts.connections.open:
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(turns)
    assert parted.total() == CLIENTS
    assert max(parted.values()) <= 2  # the one who waited longest, and one who comes just then
