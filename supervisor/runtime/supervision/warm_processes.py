r"""Processes of a per-invocation module that are started before their request (`warm`).

    spawned --> waiting --take--> serving --> gone
                   \--discard, or its own end--> gone

A waiting process has a stdin to which nothing was written, and its stdout is left in the pipe: what
it prints is read once it has a request, so it is judged as a process that was started for that
request. Its stderr is read from the start. Each serves once. One that ends while it waits, and one
that cannot be started, are a crash of the module: `crashed` is told, and no other is started here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import trio

from protocol.connection import Events, Logged, Quarantined, Stray, Violated, Warned
from supervisor.policy.verdict import Exit
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.process.incarnation import Receiver, StopStep
from supervisor.runtime.process.program import LoadedProgram, SpawnError, find_loaded
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.life import HELD, Instance, LifeEnd, Setting

REPLACE_AFTER_S = 0.1
"""A process that was taken is replaced when it has ended, or after this long: the start of another
would compete with the request for the processor, and most requests are short."""

STATE = "warm"
"""What `status` calls an instance that waits."""


class WarmProcess(Receiver):
    """A process that waits for its request; it receives what the process says until then."""

    def __init__(self, loaded: LoadedProgram | None, setting: Setting) -> None:
        self.id = setting.next_instance()
        self.loaded = loaded
        self.process = setting.connect(self.id, self)
        self._setting = setting
        self.served = False
        self._asked = trio.Event()
        self._gone = trio.Event()
        self._exit = Exit()

    async def spawn(self) -> None:
        """Start it; raises `SpawnError`. Call `run` then."""
        await self._setting.spawn(self.process)

    async def run(self) -> Exit:
        limits = self._setting.descriptor.supervision.limits
        with self._setting.host.sampler.watching(self.process, limits):
            self._exit = await self.process.run(self._asked)
        self._gone.set()
        return await self.process.remove_container(self._exit)

    async def serve(self, call: Call, receiver: Receiver) -> Exit:
        """Write the request; all that was and will be said goes to `receiver`. Return its end."""
        self.served = True
        self.process.receiver = receiver
        self.process.ask(call.request, busy=True)
        call.mark = self.process.mark
        self._asked.set()
        await self._gone.wait()
        return self._exit

    def discard(self, rung: StopStep) -> None:
        """End it unused. Its stdin stays open: an end of input might be taken for a request."""
        self.process.stop(rung)

    def instance(self) -> Instance:
        state = HELD if self.process.is_held else STATE
        return Instance(self.id, self.process.pid, self.process.uptime_s, 0, state)

    def receive(self, events: Events) -> None:
        """Keep in the log what comes from a process that was never asked."""
        for item in events:
            if isinstance(item, Quarantined | Stray | Logged | Warned | Violated):
                self._setting.keep(self.id, item)


class WarmProcesses:
    def __init__(self, setting: Setting, crashed: Callable[[LifeEnd], None]) -> None:
        """Tell `crashed` of each end that was not asked for."""
        self._setting = setting
        self._crashed = crashed
        self._count = setting.descriptor.supervision.warm
        self._waiting: deque[WarmProcess] = deque()
        self._ending: set[WarmProcess] = set()
        self._rung = StopStep.TERMINATE
        self._digests = FileDigests()
        self._closing = trio.Event()
        self._look_again = trio.Event()

    async def run(self) -> None:
        """Keep them until `close`; returns when each has ended, used or not."""
        async with trio.open_nursery() as nursery:
            while not self._closing.is_set():
                self._look_again = trio.Event()
                if len(self._waiting) < self._count:
                    await self._add(nursery)
                else:
                    await self._look_again.wait()

    def close(self) -> None:
        """Discard those that wait and start no more."""
        self._closing.set()
        self._wake()
        for process in tuple(self._waiting):
            self._discard(process)

    def kill(self) -> None:
        """Close, and kill those that are discarded, before or after."""
        self._rung = StopStep.KILL
        self.close()
        for process in self._ending:
            process.discard(StopStep.KILL)

    async def refresh(self) -> None:
        """Discard those that have loaded another program than the module has now."""
        if not self._waiting:
            return
        now = await self._look()
        for process in tuple(self._waiting):
            if now is None or process.loaded != now:
                self._discard(process)

    def take(self) -> WarmProcess | None:
        """Return the process that has waited longest, to be asked at once, if there is one."""
        while self._waiting:
            process = self._waiting.popleft()
            if process.process.is_alive:
                self._setting.host.deadlines.after(REPLACE_AFTER_S, self._wake)
                return process
            self._ending.add(process)  # its end is about to be noticed, and counted
        return None

    def instances(self) -> list[Instance]:
        """Return those that were started and not used, the discarded ones too."""
        return [process.instance() for process in (*self._waiting, *self._ending)]

    async def _add(self, nursery: trio.Nursery) -> None:
        # Looked at before the spawn: what changes meanwhile makes it outdated, never up to date.
        loaded = await self._look()
        if self._closing.is_set():
            return
        process = WarmProcess(loaded, self._setting)
        try:
            await process.spawn()
        except SpawnError as error:
            self._crashed(LifeEnd("spawn_failed", f"could not be started: {error}"))
            return
        self._waiting.append(process)
        nursery.start_soon(self._see_to_its_end, process)
        if self._closing.is_set():
            self._discard(process)

    async def _see_to_its_end(self, process: WarmProcess) -> None:
        try:
            end = await process.run()
        finally:
            self._ending.discard(process)
            if process in self._waiting:
                self._waiting.remove(process)
            self._wake()
        if process.served or (end.stopped_by_host and end.breach is None):
            return
        words = f"{process.id} {end.words} {WHILE_WAITING}{end.remark}"
        self._crashed(LifeEnd(str(end.reason), words, end))

    def _discard(self, process: WarmProcess) -> None:
        self._waiting.remove(process)
        self._ending.add(process)
        self._wake()
        process.discard(self._rung)

    def _wake(self) -> None:
        self._look_again.set()

    async def _look(self) -> LoadedProgram | None:
        host, descriptor = self._setting.host, self._setting.descriptor
        look = partial(find_loaded, descriptor, host.environment, self._digests)
        return await host.custody.blocking.run(f"reading the program of {descriptor.name}", look)


WHILE_WAITING = "while it waited for a request (supervision.warm)"
"""Words for the end of a process that had no request."""
