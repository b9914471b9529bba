"""One process of a module outside of a fleet, for those who look at what it does.

It is contained, spoken with in its dialect, and stopped as one of a daemon. Nothing is made of its
answers but notes; a subclass takes what else it says.
"""

from __future__ import annotations

from msgspec.structs import replace

from protocol.connection import (
    Answered,
    Asked,
    Events,
    Memory,
    NewId,
    Ready,
    Received,
    Request,
    StartAgain,
    StartFailed,
)
from protocol.descriptor.model import Descriptor
from protocol.dialects.registry import DIALECTS
from protocol.replies import Operation
from supervisor.policy.verdict import Exit
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.process.incarnation import Incarnation, Receiver, StopStep
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.taps import Tap, Taps


class LoneProcess(Receiver):
    def __init__(
        self,
        descriptor: Descriptor,
        host: Host,
        new_id: NewId,
        memory: Memory,
        tap: Tap,
        *,
        patience: float = 1,
    ) -> None:
        """Speak with a process that `spawn` starts, and that has `patience` times its `stop_s`.

        The `tap` hears all of it.
        """
        self._descriptor = descriptor
        self._host = host
        taps = Taps()
        taps.attach(tap)
        connect = DIALECTS[descriptor.transport.protocol].connect
        self.connection = connect(descriptor, new_id, memory)
        timeouts = descriptor.supervision.timeouts
        self.process = Incarnation(
            f"{descriptor.name}#1",
            self.connection,
            self,
            module_log=ModuleLog(descriptor.name, host.log_files, host.wall_clock),
            timeouts=replace(timeouts, stop_s=patience * timeouts.stop_s),
            deadlines=host.deadlines,
            taps=taps,
        )
        self.exit: Exit | None = None
        self.ready: Ready | None = None
        self.start_failed: StartFailed | None = None
        self.again = False
        """Whether the start needs a fresh process."""
        self.asked: dict[str, Operation] = {}
        self.answered: dict[str, Answered] = {}

    async def spawn(self, *, single_use: bool = False) -> None:
        """Start the process; raises `SpawnError`. `run` has to follow.

        One of `single_use` was asked before.
        """
        if single_use:
            self.process.take_opening()
        await self._host.containers.spawn(self._descriptor, self.process)

    async def run(self) -> Exit:
        self.exit = await self.process.run()
        self.heard()
        return await self.process.remove_container(self.exit)

    def stop(self, rung: StopStep = StopStep.END_OF_INPUT) -> None:
        if self.process.pid is not None and self.exit is None:
            self.process.stop(rung)

    def ask(self, request: Request) -> None:
        self.asked[request.request_id] = request.operation
        self.process.ask(request)

    def receive(self, events: Events) -> None:
        for item in events:
            match item:
                case Ready():
                    self.ready = item
                case StartFailed():
                    self.start_failed = item
                case StartAgain():
                    self.again = True
                case Asked(request=request):
                    self.asked[request.request_id] = request.operation
                case Answered():
                    self.answered[item.request_id] = item
            self.take(item)
        self.heard()

    def take(self, item: Received) -> None:
        """Take an event, of which note was taken."""

    def heard(self) -> None:
        """The process has said something, or has ended."""
