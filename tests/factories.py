"""Descriptors, programs and listeners for tests that run modules."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import trio

from protocol.connection import HostCalled, Request
from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Outcome, Success
from protocol.events import CallEvent
from protocol.replies import Operation
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.supervision.call import Call, Congestion, Listener
from supervisor.runtime.supervision.deadlines import Deadlines

GENEROUS_S = 60
"""A bound against hanging for ever, far beyond what any test takes."""

PYTHON = [sys.executable, "-I", "-S"]
ACTOR = str(Path(__file__).parent / "runtime" / "actor.py")


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


class Heard(Listener):
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []
        self.outcomes: list[Outcome] = []
        self.called: list[tuple[HostCalled, Incarnation]] = []
        self.slow = Congestion.NONE
        self._heard = trio.lowlevel.ParkingLot()

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        self.events.append(event)
        self._heard.unpark_all()

    def host_call(self, asked: HostCalled, process: Incarnation, call: Call) -> None:
        self.called.append((asked, process))
        self._heard.unpark_all()

    def answered(self, outcome: Outcome, call: Call) -> None:
        self.outcomes.append(outcome)
        self._heard.unpark_all()

    def congested(self) -> Congestion:
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


def pass_time(deadlines: Deadlines, seconds: float) -> None:
    """Have all that is due within so many seconds happen now.

    So a bound may be generous in a test that waits for what comes first, and for the bound then.
    """
    deadlines._tell_who_is_due(trio.current_time() + seconds)


def none_left(*_: object, **__: object) -> None:
    """Be what begins a thread, where the system gives no further one."""
    raise RuntimeError("can't start new thread")


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

    One that is gone may be of an earlier test, whose journal was still being closed. One that is
    there may be a thread's, which opens a log file for each write: it is given time to close it.
    """
    until = time.monotonic() + GENEROUS_S
    while True:
        opened = {
            number: what for number, what in open_files().items() if before.get(number) != what
        }
        if not opened or time.monotonic() > until:
            return opened
        os.sched_yield()


EARLIER: set[int] = set()
"""The children that were there when the test began: they are another test's."""


def disown_children() -> None:
    """Let a test begin without the children of those before it.

    Whoever adopts orphans gets those of a test that is over as well. A zombie among them is never
    told from a child of the tests' own, so no daemon would reap it.
    """
    EARLIER.clear()
    for number in _listed_below(os.getpid()) or ():
        EARLIER.add(number)
        with suppress(psutil.NoSuchProcess, ChildProcessError):
            if _command(psutil.Process(number)) == ZOMBIE:
                os.waitpid(number, os.WNOHANG)


def children() -> list[psutil.Process]:
    """Return the processes below this one; a guardian, or what checks args, is nobody's module.

    Nor is what daemons are forked from (tests/system/forked.py), or what an earlier test left.

    One between fork and exec has this process's command line, and one on its way out has none:
    neither can be told from a guardian, so all are looked at again until each shows what it is.
    """
    if _none_below(os.getpid()):
        return []
    until = time.monotonic() + GENEROUS_S
    own = psutil.Process().cmdline()
    while True:
        below = psutil.Process().children(recursive=True)
        commands = [(one, words) for one in below if (words := _command(one)) is not None]
        unsure = any(words in ([], own) for _, words in commands)
        if not unsure or time.monotonic() > until:
            return [
                one
                for one, words in commands
                if one.pid not in EARLIER and not _is_daemons_own(words)
            ]
        os.sched_yield()


def _none_below(pid: int) -> bool:
    """Whether the kernel lists nobody but guardians; psutil looks at all of the machine."""
    listed = _listed_below(pid)
    if listed is None:
        return False
    for number in listed:
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            return False
        if not (_is_daemons_own(words) and _none_below(number)):
            return False
    return True


def _listed_below(pid: int) -> list[int] | None:
    """Return a process's children; None without the kernel's list, or if a thread has ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return None


ZOMBIE = ["a zombie"]


def _command(one: psutil.Process) -> list[str] | None:
    """Return a command line, or None if the process is gone."""
    try:
        return one.cmdline()
    except psutil.ZombieProcess:
        return ZOMBIE
    except psutil.NoSuchProcess:
        return None


def _is_daemons_own(command: list[str]) -> bool:
    of_its_own = ("containment.guardian", "system/forked.py")
    return any(part in one for one in command for part in of_its_own)
