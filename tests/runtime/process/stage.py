"""An incarnation whose process is three pipes: the test prints, reads what is said, and ends it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
import trio.testing

from protocol.connection import (
    NOTHING,
    Connection,
    Events,
    Flow,
    HostCalled,
    Received,
    Request,
    Stray,
    Wait,
)
from protocol.descriptor.model import Timeouts
from protocol.errors import Outcome
from protocol.framing import Outgoing, Written
from protocol.host_call import Chunk
from supervisor.runtime.containment.reaping import End
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.process.incarnation import Incarnation, Receiver
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import SharedTurn


class FakeConnection(Connection):
    """It writes what it is told down, and leads to the events that the test gives it."""

    waits: tuple[Wait, ...] = ()

    def __init__(self) -> None:
        self.outgoing = Outgoing()
        self.told: list[str] = []
        self.leads_to: dict[str, Events] = {}

    def _tell(self, verb: str) -> Events:
        self.told.append(verb)
        self.outgoing.add(f"{verb}\n".encode())
        return self.leads_to.pop(verb, NOTHING)

    def start(self) -> Events:
        return self._tell("start")

    def ask(self, request: Request) -> Events:
        return self._tell("ask")

    def cancel(self, request_id: str, written: Written) -> Events:
        return self._tell("cancel")

    def flow(self, request_id: str, operation: Flow) -> Events:
        return self._tell(operation)

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        return self._tell("answer")

    def receive_data(self, data: bytes) -> Events:
        return self._tell("data")

    def receive_eof(self) -> Events:
        return self._tell("eof")

    def process_exited(self, code: int | None) -> Events:
        return self._tell(f"exited {code}")

    def time_passed(self, wait: Wait) -> Events:
        return self._tell(f"time {wait.for_what}")


class Ear(Receiver):
    """Keeps what it receives, and does what the test wants while it does."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.depth = self.deepest = 0
        self.then: dict[str, Any] = {}

    def receive(self, events: Events) -> None:
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        for one in events:
            self.received.append(one)
            if isinstance(one, Stray) and one.excerpt in self.then:
                self.then.pop(one.excerpt)()
        self.depth -= 1


class FakeProcess:
    """What `process.Process` is to an incarnation; `end` is its death."""

    opening = tracer = remove_container = None
    unset_variables = ()
    is_held = False

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.containment: Any = self
        self.ends = SharedTurn("ends")
        pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(3)]
        self._open = {one for pipe in pipes for one in pipe}
        (self.told, self.stdin), (self.stdout, self.says), (self.stderr, self.complains) = pipes
        self._ended = trio.Event()
        self._code: int | None = None

    def end(self, code: int | None = 0) -> None:
        self._code = code
        self._ended.set()

    def read(self) -> list[str]:
        """Return what it was told."""
        with suppress(BlockingIOError):
            return os.read(self.told, 1 << 20).decode().splitlines()
        return []

    def close(self, *descriptors: int) -> None:
        for one in descriptors or tuple(self._open):
            self._open.remove(one)
            trio.lowlevel.notify_closing(one)
            os.close(one)

    async def wait_exited(self) -> None:
        await self._ended.wait()

    @property
    def exited(self) -> bool:
        return self._ended.is_set()

    is_dead = exited

    async def kill(self) -> None:
        self._ended.set()

    async def kill_the_rest(self) -> tuple[int, ...]:
        return ()

    def memory_breach(self) -> None: ...

    def reap(self) -> End:
        return End(self._code)


class Stage:
    def __init__(self, connection: FakeConnection | None = None, instance: str = "m#1") -> None:
        self.connection = connection or FakeConnection()
        self.ear, self.deadlines = Ear(), Deadlines()
        self.incarnation = Incarnation(
            instance,
            self.connection,
            self.ear,
            module_log=ModuleLog("m", LogFiles(Path("unused")), lambda: 0.0),
            timeouts=Timeouts(),
            deadlines=self.deadlines,
            taps=Taps(),
        )
        self.process = FakeProcess()

    async def run(self) -> None:
        process: Any = self.process
        self.incarnation.spawned(process)
        try:
            await self.incarnation.run()
        finally:
            self.process.close()

    async def begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.run)
        await trio.testing.wait_all_tasks_blocked()


class Passes(trio.abc.Instrument):
    """Counts how often the event loop comes round."""

    def __init__(self) -> None:
        self.counted = 0

    def after_io_wait(self, timeout: float) -> None:
        self.counted += 1
