"""Descriptors, programs and listeners for tests that run modules."""

from __future__ import annotations

import functools
import inspect
import json
import os
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from protocol.connection import HostCalled, Request
from protocol.descriptor import Descriptor
from protocol.descriptor_loading import parse_descriptor
from protocol.errors import Failure, Outcome, Success
from protocol.events import Progress
from protocol.replies import Operation
from supervisor.runtime.call import Call
from supervisor.runtime.host_results import HostResults

GENEROUS_S = 60
"""A bound against hanging for ever, far beyond what any test takes."""

PYTHON = [sys.executable, "-I", "-S"]
ACTOR = str(Path(__file__).parent / "runtime" / "actor.py")
VIRTUAL = {"mock_clock", "autojump_clock"}


def bound(items: Iterable[pytest.Item], folder: Path) -> None:
    """Let no asynchronous test below `folder` wait for ever; virtual clocks have fakes only."""
    for item in items:
        if folder not in item.path.parents or not isinstance(item, pytest.Function):
            continue
        if inspect.iscoroutinefunction(item.obj) and not VIRTUAL & set(item.fixturenames):
            item.obj = _bounded(item.obj)


def _bounded(test: Any) -> Any:
    @functools.wraps(test)
    async def within(*args: Any, **kwargs: Any) -> None:
        with trio.fail_after(GENEROUS_S):
            await test(*args, **kwargs)

    return within


def document(
    command: list[str],
    *,
    name: str = "m",
    transport: dict[str, Any] | None = None,
    supervision: dict[str, Any] | None = None,
    **top: Any,
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "tool",
        "capabilities": [],
        "transport": {"type": "stdio", "command": command, **(transport or {})},
        "supervision": supervision or {},
        **top,
    }


def descriptor(folder: Path, command: list[str], **fields: Any) -> Descriptor:
    """Make a descriptor the way a file would."""
    content = document(command, **fields)
    return parse_descriptor(json.dumps(content).encode(), str(folder / f"{content['name']}.json"))


def actor(folder: Path, *flags: str, **fields: Any) -> Descriptor:
    """Make the descriptor of a persistent module that does what its ops say (runtime/actor.py)."""
    name = fields.get("name", "m")
    return descriptor(folder, [*PYTHON, ACTOR, name, *flags], **fields)


def script(folder: Path, body: str, **fields: Any) -> Descriptor:
    """Make the descriptor of a per-invocation tool: a shell script with this body."""
    transport = {"protocol": "narratoria", **fields.pop("transport", {})}
    return descriptor(folder, ["sh", "-c", body], transport=transport, **fields)


def program(path: Path, content: str | bytes) -> Path:
    """Write an executable file."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755)
    return path


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Progress] = []
        self.outcomes: list[Outcome] = []
        self.called: list[tuple[HostCalled, HostResults]] = []
        self.slow = False
        self._heard = trio.lowlevel.ParkingLot()

    def event(self, event: Progress, call: Call, line: bytes | None) -> None:
        self.events.append(event)
        self._heard.unpark_all()

    def host_call(self, asked: HostCalled, results: HostResults, call: Call) -> None:
        self.called.append((asked, results))
        self._heard.unpark_all()

    def settled(self, outcome: Outcome, call: Call) -> None:
        self.outcomes.append(outcome)
        self._heard.unpark_all()

    def congested(self) -> bool:
        return self.slow

    async def outcome(self) -> Outcome:
        while not self.outcomes:
            await self._heard.park()
        assert len(self.outcomes) == 1
        return self.outcomes[0]

    async def success(self) -> Success:
        outcome = await self.outcome()
        assert isinstance(outcome, Success), outcome
        return outcome

    async def failure(self) -> Failure:
        outcome = await self.outcome()
        assert isinstance(outcome, Failure), outcome
        return outcome

    async def heard(self, count: int) -> None:
        while len(self.events) < count:
            await self._heard.park()


_numbers = iter(range(1, 1 << 30))


def call(op: str = "echo", **args: Any) -> tuple[Call, Heard]:
    """Make an invocation and who waits for it."""
    heard = Heard()
    return Call(Request(f"t{next(_numbers)}", Operation.INVOKE, op, args), heard), heard


def open_files() -> dict[int, str]:
    """Return this process's file descriptors and what they are."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            if not stat.S_ISDIR(os.fstat(int(link.name)).st_mode):
                found[int(link.name)] = str(link.readlink()).removesuffix(" (deleted)")
        except OSError:
            continue  # the one that listed the folder
    return found


def opened_since(before: dict[int, str]) -> dict[int, str]:
    """Return the file descriptors that were not there, or were something else.

    One that is gone may be of an earlier test, whose journal was still being closed.
    """
    return {number: what for number, what in open_files().items() if before.get(number) != what}


def children() -> list[psutil.Process]:
    """Return the processes below this one; a guardian, or what checks args, is nobody's module.

    One between fork and exec has this process's command line, and one on its way out has none:
    neither can be told from a guardian, so all are looked at again until each shows what it is.
    """
    until = time.monotonic() + GENEROUS_S
    own = psutil.Process().cmdline()
    while True:
        below = psutil.Process().children(recursive=True)
        commands = [(one, words) for one in below if (words := _command(one)) is not None]
        unsure = any(words in ([], own) for _, words in commands)
        if not unsure or time.monotonic() > until:
            return [one for one, words in commands if not _is_daemons_own(words)]
        os.sched_yield()


def _command(one: psutil.Process) -> list[str] | None:
    """Return a command line, or None if the process is gone."""
    try:
        return one.cmdline()
    except psutil.ZombieProcess:
        return ["a zombie"]
    except psutil.NoSuchProcess:
        return None


def _is_daemons_own(command: list[str]) -> bool:
    return any("containment.guardian" in one or "runtime.checking" in one for one in command)
