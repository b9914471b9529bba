"""docs/architecture.md names the files that a call and a SIGKILL go through, and counts the former.

Followed by the profiler, in a daemon within this process that has one real module.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from supervisor.faces.byte_stream import carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from tests import factories
from tests.docs.markdown import ROOT, read
from tests.kernel.conftest import daemon_with
from tests.principals import ADA

DICE = ROOT / "modules" / "dice" / "dice.py"
CALM = {"health": {"interval_s": 3600}}
ASKED = {"op": "roll", "args": {"dice": "3d6"}}
FRAME = {"requestId": "c", "tool": "dice", "operation": "invoke", "input": ASKED}
ROLL = msgspec.json.encode(FRAME) + b"\n"
LONGEST_S = 60.0
RINGS = ("protocol", "supervisor")


@contextmanager
def followed() -> Iterator[list[str]]:
    """Collect the files of the project in whose functions this thread is, in their order."""
    files: dict[str, None] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            name = path.relative_to(ROOT)
            if name.parts[0] in RINGS:
                files[name.as_posix()] = None

    found: list[str] = []
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found += files


@asynccontextmanager
async def client_of(daemon: Kernel) -> AsyncIterator[trio.SocketStream]:
    theirs, ours = socket.socketpair()
    ours.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))

    async def serve() -> None:
        conversation = Conversation(daemon, Party(ADA))
        try:
            await carry(conversation, ours.fileno(), ours.fileno())
        finally:
            await disconnect(conversation)

    with ours:
        async with stream, trio.open_nursery() as tasks:
            tasks.start_soon(serve)
            yield stream
            tasks.cancel_scope.cancel()


def section(title: str) -> str:
    _, begin, rest = read("docs/architecture.md").partition(f"\n## {title}\n")
    assert begin
    return rest.partition("\n## ")[0]


def named_in_tables(text: str) -> list[str]:
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return re.findall(r"`((?:protocol|supervisor)/[\w/]+\.py)`", rows)


async def test_a_call_and_a_sigkill_go_the_ways_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether a commit of the journal's thread is told within the call is up to the clock.
    monkeypatch.setattr("supervisor.kernel.store.writer.Writer._report", lambda *_, **__: None)
    command = [sys.executable, str(DICE)]
    made = factories.descriptor(tmp_path, command, name="dice", supervision=CALM)
    running = daemon_with(tmp_path, made, memory=JournalOptions())
    ways: list[set[str]] = []
    with trio.fail_after(LONGEST_S):
        async with running as daemon, client_of(daemon) as client:
            for _ in range(4):
                await trio.testing.wait_all_tasks_blocked()
                with followed() as way:
                    await client.send_all(ROLL)
                    assert msgspec.json.decode(await client.receive_some())["ok"]
                ways.append(set(way))
            module = daemon.fleet.modules["dice"]
            ((instance, _),) = module.instances()
            assert instance.pid is not None
            os.kill(instance.pid, signal.SIGSTOP)
            await client.send_all(ROLL)
            await trio.testing.wait_all_tasks_blocked()
            with followed() as by_a_death:
                os.kill(instance.pid, signal.SIGKILL)
                answer = msgspec.json.decode(await client.receive_some())
                await daemon.fleet.wait_until(lambda: module.restarts or None)
    assert answer["error"]["details"]["signal"] == signal.SIGKILL
    # The first one of a client makes what the others find; another task may come in between.
    by_a_call = set.intersection(*ways[1:])
    page = section("The way of one dice.roll")
    assert sorted(named_in_tables(page)) == sorted(by_a_call)
    assert f"goes through {len(by_a_call)} files" in " ".join(page.split())
    assert set(named_in_tables(section("The way of one SIGKILL"))) <= set(by_a_death)
