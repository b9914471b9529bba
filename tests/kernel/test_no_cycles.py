"""What clients begin and leave needs no garbage collector, which would stop the event loop."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Reason
from supervisor.kernel.kernel import Handle, JournalOptions, Kernel, Party
from supervisor.policy.verdict import Stopped
from tests.faces.in_process import connected
from tests.factories import actor
from tests.kernel.agents import agent
from tests.kernel.conftest import Asker, daemon_with, own
from tests.kernel.hooks.parties import hook
from tests.kernel.host_calls import allowing, caller, payload
from tests.principals import ADA

LEFT = Stopped(Reason.DISCONNECT, "its client has left")
OFTEN = 5
FOLLOW: dict[str, Any] = {"follow": True}


@contextmanager
def uncollected() -> Iterator[list[str]]:
    """Collect nothing during the block; at its end the list has what only a collection finds."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += sorted(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class Leaver:
    """A client that begins requests, and leaves while they are open."""

    def __init__(self, daemon: Kernel, session_id: str) -> None:
        self._daemon = daemon
        self._party = Party(ADA)
        self._party.has_logins = True
        self._session_id = session_id
        self._open: list[tuple[Handle | None, Asker]] = []

    def ask(self, op: str, tool: str = "supervisor", **args: Any) -> None:
        asker = Asker()
        content = {"op": op, "args": args}
        if tool != "supervisor":
            content["session_id"] = self._session_id
        self._open.append((self._daemon.begin(self._party, tool, "invoke", content, asker), asker))

    async def begun(self, *events: int) -> None:
        """Wait until these requests have had so many events."""
        for (_, asker), count in zip(self._open, events, strict=False):
            await asker.heard(count)
        await trio.testing.wait_all_tasks_blocked()

    async def leave(self) -> None:
        for handle, _ in self._open:
            if handle is not None:
                handle.cancel(LEFT)
        self._open.clear()
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.fault(41)
async def test_streams_and_sessions_that_clients_leave_are_gone_at_once(tmp_path: Path) -> None:
    async def come_and_go(daemon: Kernel) -> None:
        session_id = (await own(daemon, ADA, "session.new"))["session_id"]
        client = Leaver(daemon, session_id)
        client.ask("ui.subscribe")
        client.ask("ui.subscribe", session_id=session_id)
        client.ask("events", last=1, **FOLLOW)
        client.ask("offers", **FOLLOW)
        client.ask("logs", module="kv", lines=0, **FOLLOW)
        client.ask("approvals", **FOLLOW)
        client.ask("login.open", uid=0)
        client.ask("login.follow")
        client.ask("resource.follow", module="kv", uri="a:b")
        client.ask("record", module="kv")
        client.ask("asset.show", asset="nothing")
        client.ask("hang", "kv")
        await client.begun(1, 1, 2)
        await client.leave()
        await own(daemon, ADA, "session.end", session_id=session_id)

    async with daemon_with(tmp_path, actor(tmp_path, name="kv"), memory=JournalOptions()) as daemon:
        await come_and_go(daemon)
        with uncollected() as found:
            for _ in range(OFTEN):
                await come_and_go(daemon)
        assert not found


@pytest.mark.fault(41)
async def test_prompts_and_calls_of_modules_that_clients_leave_are_gone_at_once(
    tmp_path: Path,
) -> None:
    async def come_and_go(daemon: Kernel) -> None:
        session_id = (await own(daemon, ADA, "session.new"))["session_id"]
        client = Leaver(daemon, session_id)
        for _ in range(2):  # one runs, and one waits
            client.ask("session.prompt", session_id=session_id, content="hang")
        client.ask("echo", "kv")  # a person is asked about it
        for op in ("echo", "hang"):
            calls = [
                payload("invoke", "1", module="b", op=op, args={}),
                payload("session.read", "2"),
                payload("no.method", "3"),
            ]
            client.ask("calls", "a", calls=calls, lines=[])
        await client.begun(4, 2, 1)
        await client.leave()
        await own(daemon, ADA, "session.end", session_id=session_id)

    answers = {"tool:pre": {"action": "ask_user"}}
    gate = hook(tmp_path, answers=answers, gate=["tool:pre"], modules=["kv"])
    parties = actor(tmp_path, name="kv"), agent(tmp_path, "g"), gate
    callers = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(tmp_path, *parties, *callers, operator=allowing(tmp_path)) as daemon:
        await come_and_go(daemon)
        with uncollected() as found:
            for _ in range(OFTEN):
                await come_and_go(daemon)
        assert not found


@pytest.mark.fault(41)
async def test_connections_that_clients_leave_are_gone_at_once(tmp_path: Path) -> None:
    def line(name: str, op: str, tool: str = "supervisor", **more: Any) -> bytes:
        asked = {"requestId": name, "tool": tool, "operation": "invoke", "input": {"op": op}}
        return json.dumps(asked | more).encode() + b"\n"

    async def come_and_go(daemon: Kernel) -> None:
        async with connected(daemon) as client:
            lines = [
                line("a", "ui.subscribe"),
                line("b", "login.open", input={"op": "login.open", "args": {"uid": 0}}),
                line("c", "hang", "kv", asks=["user.ask"]),
                b"no JSON\n",
                line("d", "hang", "kv")[:-9],
            ]
            await client.stream.send_all(b"".join(lines))
            await client.stream.receive_some(1)
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()

    async with daemon_with(tmp_path, actor(tmp_path, name="kv")) as daemon:
        await come_and_go(daemon)
        with uncollected() as found:
            for _ in range(OFTEN):
                await come_and_go(daemon)
        assert not found
