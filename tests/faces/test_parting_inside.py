"""The daemon ends: clients that read late, never, or come just then."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import structlog
import trio
import trio.testing

from supervisor.faces import byte_stream
from supervisor.faces.admission import Admission
from supervisor.faces.control_socket import listening, serve
from supervisor.faces.conversation import Conversation
from tests.faces.in_process import congested
from tests.faces.lines import Client, request
from tests.factories import GENEROUS_S, actor
from tests.kernel.conftest import daemon_with


async def test_a_client_that_reads_late_gets_its_last_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_stream, "FLUSH_S", GENEROUS_S)
    async with congested(tmp_path) as (daemon, client):
        await client.send(request("held", "quiet", op="echo"))
        await daemon.stop_fleet()
        await trio.testing.wait_all_tasks_blocked()
        dones = [line for line in await client.rest() if line["type"] == "done"]
        ends = {done["requestId"]: done["error"]["details"]["reason"] for done in dones}
        assert ends == {"flood": "shutdown", "held": "shutdown"}


async def test_a_client_that_never_reads_delays_the_end_by_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_stream, "FLUSH_S", 0.01)
    words = "answers dropped: not read"
    async with congested(tmp_path) as (daemon, _):
        with structlog.testing.capture_logs() as logged:
            await daemon.stop_fleet()
            while not (dropped := [one for one in logged if one["event"] == words]):
                await trio.testing.wait_all_tasks_blocked(0.001)
        assert [one["bytes"] > 0 for one in dropped] == [True]


@pytest.mark.fault(35)
async def test_who_connects_again_while_the_daemon_ends_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        with listening(path) as listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, daemon, listener, Admission.of(daemon.facts))
                async with await trio.open_unix_socket(path) as stream:
                    client = Client(stream)
                    await client.send(request("h", "supervisor", "health"))
                    assert (await client.done())["ok"] is True
                    await daemon.stop_fleet()
                    assert await client.rest() == []
                    with (
                        socket.socket(socket.AF_UNIX) as again,
                        pytest.raises(ConnectionRefusedError),
                    ):
                        again.connect(str(path))


@pytest.mark.fault(35)
async def test_who_has_connected_and_was_not_let_in_before_the_end_is_told_so(
    tmp_path: Path,
) -> None:
    path = tmp_path / "socket"
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        with listening(path) as listener, socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(path))
            waiting.sendall(b"{")
            await daemon.stop_fleet()
            await serve(daemon, listener, Admission.of(daemon.facts))
            with waiting.makefile("rb") as lines:
                error = json.loads(lines.readline())["error"]
    assert (error["code"], error["details"]["reason"]) == ("unreachable", "stopping")
    assert "try again" in error["message"]


@pytest.mark.fault(35)
async def test_who_writes_at_the_moment_of_the_end_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flush = tmp_path / "socket", byte_stream._flush
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        with listening(path) as listener, socket.socket(socket.AF_UNIX) as client:

            async def then_write(conversation: Conversation) -> None:
                await flush(conversation)
                client.sendall(b"{}\n" * 10_000)

            monkeypatch.setattr(byte_stream, "_flush", then_write)
            client.connect(str(path))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, daemon, listener, Admission.of(daemon.facts))
                await trio.testing.wait_all_tasks_blocked()
                await daemon.stop_fleet()
            (line,) = client.makefile("rb")
    error = json.loads(line)["error"]
    assert (error["code"], error["details"]["reason"]) == ("unreachable", "stopping")
