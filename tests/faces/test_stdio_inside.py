"""The end of both pipes of a daemon that is somebody's module."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from supervisor.faces import stdio
from tests.faces.lines import request
from tests.factories import actor
from tests.kernel.conftest import daemon_with


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()


class End:
    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Pipe, Pipe]]:
    to_daemon, from_daemon = Pipe(), Pipe()
    ends = SimpleNamespace(stdin=End(to_daemon.reading), stdout=End(from_daemon.writing))
    monkeypatch.setattr(stdio, "sys", ends)
    yield to_daemon, from_daemon
    for number in (to_daemon.reading, from_daemon.writing):
        os.close(number)


async def answers(pipe: Pipe, count: int) -> list[dict[str, Any]]:
    data = b""
    while data.count(b"\n") < count:
        await trio.lowlevel.wait_readable(pipe.reading)
        data += os.read(pipe.reading, 65536)
    return [json.loads(line) for line in data.splitlines()]


async def test_an_end_of_both_pipes_cancels_what_is_open(
    tmp_path: Path, pipes: tuple[Pipe, Pipe]
) -> None:
    there, back = pipes
    os.write(there.writing, json.dumps(request("a", "m", op="hang")).encode())
    os.close(there.writing)
    os.close(back.reading)
    made = actor(tmp_path, supervision={"timeouts": {"stop_s": 0.1}})
    async with daemon_with(tmp_path, made) as daemon:
        await stdio.serve(daemon, "inner")
        assert daemon.ending
        assert daemon.fleet.modules["m"].tally.failures == 1
