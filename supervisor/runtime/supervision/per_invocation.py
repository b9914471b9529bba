r"""A process per invocation: readiness means that the command could be run.

Each process serves one call, from spawn to gone (`Run`). The verdict waits for the process's exit
(Spec 001 5.3), except where the host has put an end to it: then the caller is answered at once, and
the process is seen to its end afterwards.

With `warm`, some processes are started before their request:

    spawned --> waiting --take--> serving --> gone
                   \--discard, or its own end--> gone

A waiting process has a stdin to which nothing was written, and its stdout is left in the pipe: what
it prints is read once it has a request, so it is judged as a process that was started for that
request. Its stderr is read from the start. Each serves once. One that ends while it waits, and one
that cannot be started, end the life, as a crash: no other is started and no more calls are taken,
those in flight keep their own deadlines.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import trio
from msgspec.structs import replace

from protocol.connection import (
    Alive,
    Answered,
    Asked,
    Described,
    EventReceived,
    Events,
    HostCalled,
    Logged,
    Notice,
    Notified,
    OutOfStep,
    Quarantined,
    Ready,
    Received,
    Request,
    ResourceUpdated,
    StartAgain,
    StartFailed,
    Stray,
    Unanswered,
    Violated,
    Warned,
)
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import CallEvent, ErrorEvent
from protocol.json_line import Fault
from protocol.problem import without_password
from protocol.replies import Operation, completed, read_error
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Exit, Said, Stopped, on_invocation
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.files.module_log import NOTED
from supervisor.runtime.process.incarnation import Incarnation, Receiver, StopStep
from supervisor.runtime.process.program import LoadedProgram, SpawnError, find_loaded
from supervisor.runtime.supervision.call import Awaited, Call, Server
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.life import HELD, Instance, Life, LifeEnd, Setting

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker


RAN_CHARS = 500
"""Of the command line that a failure shows."""


REPLACE_AFTER_S = 0.1
"""A process that was taken is replaced when it has ended, or after this long: the start of another
would compete with the request for the processor, and most requests are short."""

STATE = "warm"
"""What `status` calls an instance that waits."""

WHILE_WAITING = "while it waited for a request (supervision.warm)"
"""Words for the end of a process that had no request."""


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
            warm = self._waiting.popleft()
            if warm.process.is_alive:
                self._setting.host.deadlines.after(REPLACE_AFTER_S, self._wake)
                return warm
            self._ending.add(warm)  # its end is about to be noticed, and counted
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
            await self._setting.spawn(process.process)
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
        return await host.registry.threads.run(f"reading the program of {descriptor.name}", look)


class Run(Receiver, Server):
    def __init__(self, setting: Setting, call: Call, warm: WarmProcesses | None) -> None:
        """With `warm`, one of these processes serves the call, if there is one."""
        self.id = setting.next_instance() if warm is None else setting.descriptor.name
        self.call = call
        self._setting = setting
        self._warm = warm
        self._timeouts = setting.descriptor.supervision.timeouts
        self._what = f"{setting.descriptor.name}.{call.request.op or call.request.operation}"
        self._said = Said()
        self._ran = ""
        """The command line, if it is made of the request's args."""
        self._process: Incarnation | None = None
        """None while it is not known which of the warm ones it is."""
        self._stopped: Stopped | None = None
        self._exit_timer: Timer | None = None

    async def run(self) -> LifeEnd | None:
        """Spawn, speak, judge; whatever happens, the call is settled then.

        Returns the end of a process that ended badly by itself; None if the host stopped it.
        """
        try:
            exit_ = await self._run()
        finally:
            if self._exit_timer is not None:
                self._exit_timer.cancel()
            if not self.call.settled:  # the daemon ends without waiting, or a mistake of ours
                self.call.settle(self._setting.host.stopping(self.id, self.evidence()))
        if exit_ is None or self._said.bears(exit_):
            return None
        if exit_.stopped_by_host and exit_.breach is None:
            return None
        return LifeEnd(str(exit_.reason), f"{exit_.words}{exit_.remark}", exit_)

    async def _run(self) -> Exit | None:
        """Run a process from spawn to gone, or from where it waits; None if there was none."""
        setting, call = self._setting, self.call
        if self._warm is not None and not call.settled:
            await self._warm.refresh()
        if call.settled:
            return None
        if self._warm is not None:
            warm = self._warm.take()
            self.id = setting.next_instance() if warm is None else warm.id
            setting.overhear(self.id, call)
            if warm is not None:
                self._process = warm.process
                return self._judge(await warm.serve(call, self))
        self._process = process = setting.connect(self.id, self)
        process.ask(call.request)
        call.mark = process.mark
        if self._said.answer is not None:  # it takes no process to say so
            process.close()
            call.settle(self._said.answer)
            return None
        process.take_opening()
        if setting.descriptor.transport.protocol == "exec":
            command = setting.descriptor.transport.command
            ran = shlex.join((*command, *process.connection.arguments))
            self._ran = without_password(ran)[:RAN_CHARS]
        try:
            await setting.spawn(process, call.request.traceparent)
        except SpawnError as error:
            process.close()  # what was asked may have set its waits off
            words = f"{self._what} could not be started: {error}"
            call.settle(Failure.because(Reason.SPAWN_FAILED, words, instance=self.id))
            return None
        with setting.host.sampler.watching(process, setting.descriptor.supervision.limits):
            exit_ = self._judge(await process.run())
        return await process.remove_container(exit_)

    def _judge(self, exit_: Exit) -> Exit:
        outcome = on_invocation(self._said, exit_, self._stopped, self._what)
        if isinstance(outcome, Failure) and self._ran:
            outcome = replace(outcome, details={**outcome.details, "ran": self._ran})
        self.call.settle(outcome)
        return exit_

    def stop(self, rung: StopStep) -> None:
        """Stop the process; for a call that is settled none is started or taken."""
        if self._process is not None:
            self._process.stop(rung)

    def instance(self) -> Instance | None:
        process = self._process
        if process is None or process.pid is None:
            return None
        state = HELD if process.is_held else None
        return Instance(self.id, process.pid, process.uptime_s, 1, state)

    # What the process says; that it closes its stdin says nothing: a tool need not read its input
    # (Spec 001 section 6).

    def receive(self, events: Events) -> None:
        call = self.call
        call.heard_at = trio.current_time()
        noted: list[CallEvent] = []
        for item in events:
            if not isinstance(item, EventReceived):
                self._receive_other(item)
                continue
            if type(item.event) in NOTED:
                noted.append(item.event)
            if not call.settled:
                call.listener.event(item.event, call, item.line)
        if noted:
            self._setting.log.events(self.id, noted)
            last = next((one for one in reversed(noted) if isinstance(one, ErrorEvent)), None)
            if last is not None:
                self._said = replace(self._said, error=read_error(last))

    def _receive_other(self, item: Received) -> None:
        match item:
            case Answered():
                self._said = replace(self._said, answer=item.outcome, codes=item.codes)
                self._expect_exit(self._timeouts.linger_s)
                if item.fault is not None:
                    self._violated(item.fault)
            case Violated(fault=fault):
                self._violated(fault)
            case StartFailed():
                self._violated(Fault(Reason.NOT_READY, f"the process {item.message}", ""))
            case StartAgain() | OutOfStep():
                self._violated(Fault(Reason.NOT_READY, f"the process {item.why}", ""))
            case Warned(notice=notice):
                self.call.warn(notice)
            case Stray():
                self._setting.keep(self.id, item)
                words = "a line after the answer was not accepted"
                self.call.warn(Notice("after_done", words, item.excerpt))
            case Quarantined(fault=fault):
                self._setting.keep(self.id, item)
                self.call.warn(Notice.of(fault))
            case Logged():
                self._setting.keep(self.id, item)
            case HostCalled():
                # A process that can be told nothing after its request cannot be answered.
                self._setting.counters.late_lines += 1
            case Asked() | Unanswered():
                pass  # the process serves this call alone, and its exit decides
            case Alive() | Described() | Notified() | Ready() | ResourceUpdated():
                pass
            case EventReceived():
                raise AssertionError
            case _:
                assert_never(item)

    def congested(self) -> bool:
        """Whether the listener cannot keep up; a settled call has none."""
        return not self.call.settled and bool(self.call.listener.congested())

    def stdout_closed(self) -> None:
        self._expect_exit(self._timeouts.exit_s)

    def held(self, end: Exit) -> None:
        """Settle the call: it is over, though its process's place is not free yet."""
        self._judge(end)

    # What becomes of the call (call.Server).

    def refined(self, stopped: Stopped) -> Stopped:
        """Say of a deadline that the answer was there, if it was."""
        if self._said.answer is None or stopped.reason not in (Reason.DEADLINE, Reason.SILENCE):
            return stopped
        return self._lingered("answered, and still ran at the deadline")

    def _lingered(self, words: str) -> Stopped:
        return Stopped(Reason.EXIT_DEADLINE, f"{self._what}: its process {words}")

    def give_up(self, call: Call, stopped: Stopped) -> None:
        del call
        self._stopped = stopped
        self.stop(StopStep.TERMINATE)
        self.nudge()

    def evidence(self) -> dict[str, Any]:
        process = self._process
        if process is not None and process.pid is not None:
            return {**process.evidence(), "reported": self._said.carried}
        known = self.id != self._setting.descriptor.name  # which of the warm ones it will be
        return {"instance": self.id} if known else {}

    def nudge(self) -> None:
        if self._process is not None:
            self._process.nudge()

    def _violated(self, fault: Fault) -> None:
        self._said = replace(self._said, fault=fault)
        # A line that the end of the output cut off: the process is ending as it is.
        if fault.reason is not Reason.TRUNCATED_LINE:
            self._expect_exit(self._timeouts.exit_s)
            self.stop(StopStep.TERMINATE)

    def _expect_exit(self, within_s: float) -> None:
        if self._exit_timer is None:
            deadlines = self._setting.host.deadlines
            self._exit_timer = deadlines.after(within_s, self._exit_overdue)

    def _exit_overdue(self) -> None:
        if self._said.fault is not None:
            outcome: Outcome = self._said.fault.failure(**self.evidence())
        elif self._said.answer is None:
            words = f"{self._what}: its process closed its stdout without `done` and kept running"
            outcome = Failure.because(Reason.MISSING_DONE, words, **self.evidence())
        else:
            words = f"still ran {self._timeouts.linger_s:g} s after its answer"
            stopped = self._lingered(words)
            outcome = Failure.because(stopped.reason, stopped.message, **self.evidence())
        self.call.settle(outcome)
        self.stop(StopStep.TERMINATE)
        self.nudge()


class PerInvocationLife(Life):
    """The readiness of a per-invocation module, and the processes it runs at the moment."""

    # Only the program is looked for: a start waits for no turn, and has no instance.
    takes_turn = False
    is_instance = False

    def __init__(self, setting: Setting, owner: Worker) -> None:
        super().__init__(setting, owner)
        self._runs: set[Run] = set()
        self._warm: WarmProcesses | None = None
        if setting.descriptor.supervision.warm:
            self._warm = WarmProcesses(setting, self._crash)
        self._crashed: LifeEnd | None = None
        self._closed = False
        self._retiring = trio.Event()
        self._abrupt = trio.Event()
        self._drained = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self) -> LifeEnd:
        """Be ready until told to end, then until the last process is gone."""
        outcome = await self._check()
        if isinstance(outcome, Failure):
            return LifeEnd("spawn_failed", outcome.message)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if self._warm is not None:
                nursery.start_soon(self._warm.run)
            try:
                self._owner.happened(self, Input.STARTED, "its command can be run")
                await self._retiring.wait()
                await self._retire()
            finally:
                self._closed = True  # cancelled, it takes no more calls either
            # The nursery stays open until each run has seen its process to the end.
        return self._crashed or LifeEnd("stopped", "was stopped", Exit(exit_code=0))

    def is_alive(self) -> bool:
        """Whether no process has died that nothing was asked of."""
        return self._crashed is None

    def can_take(self) -> bool:
        has_room = len(self._runs) < self._concurrency
        return self._nursery is not None and not self._closed and has_room

    @property
    def load(self) -> int:
        return len(self._runs)

    @property
    def oldest(self) -> tuple[str, float] | None:
        calls = sorted((run.call.begun_at, run.call.request.op) for run in self._runs)
        return (calls[0][1], calls[0][0]) if calls else None

    def take(self, call: Call) -> None:
        assert self._nursery is not None  # noqa: S101 - can_take said so
        run = Run(self._setting, call, self._warm)
        self._runs.add(run)
        call.server = run
        if self._warm is None:
            self._setting.overhear(run.id, call)
        call.heard_at = call.begun_at = trio.current_time()
        self._nursery.start_soon(self._serve, run)

    def end(self, *, abrupt: bool) -> None:
        self._close()
        self._retiring.set()
        if abrupt:
            self._abrupt.set()
        if abrupt or not self._runs:
            self._drained.set()

    def hurry(self) -> None:
        self.end(abrupt=True)
        if self._warm is not None:
            self._warm.kill()
        for run in tuple(self._runs):
            run.call.settle(self._setting.host.stopping(run.id, run.evidence()))
            run.stop(StopStep.KILL)

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        """Answer for the module where its dialect cannot be asked; else run a process that does.

        docs/protocol.md: a probe must never run a Spec 001 tool.
        """
        descriptor = self._setting.descriptor
        if DIALECTS[descriptor.transport.protocol].answers_probes:
            return await self._ask_process(operation, timeout_s)
        if operation is Operation.HEALTH:
            return await self._check()
        return completed(operation, Success({}), descriptor)

    def instances(self) -> list[Instance]:
        """Return the running processes, then those that wait for a request."""
        running = [shown for run in self._runs if (shown := run.instance()) is not None]
        return running if self._warm is None else [*running, *self._warm.instances()]

    async def _check(self) -> Outcome:
        found = await self._setting.look_for_obstacle("finding")
        if found is not None:
            return Failure.because(Reason.SPAWN_FAILED, f"could not be started: {found.words}")
        return Success({"status": "ok"})

    async def _ask_process(self, operation: Operation, timeout_s: float) -> Outcome:
        awaited = Awaited()
        call = Call(Request(self._setting.host.next_request_id(), operation), awaited)
        if self._nursery is None or self._closed:
            return self._setting.host.stopping(self.id, {})
        self.take(call)
        words = f"{self.id} gave no answer to {operation} in {timeout_s:g} s"
        try:
            with trio.move_on_after(timeout_s):
                return await awaited.wait()
        finally:
            # Also if the caller is cancelled: a probe's process has no other bound.
            if call.server is not None and not call.settled:
                call.settle(Failure.because(Reason.DEADLINE, words, **call.server.evidence()))
                call.server.give_up(call, Stopped(Reason.DEADLINE, words))
        return await awaited.wait()

    async def _serve(self, run: Run) -> None:
        try:
            ended = await run.run()
            if ended is not None:
                self._owner.run_failed(self, ended)
        finally:
            self._runs.discard(run)
            if not self._runs and self._closed:
                self._drained.set()
                self._retiring.set()
        self._owner.capacity_freed(self)

    def _close(self) -> None:
        self._closed = True
        if self._warm is not None:
            self._warm.close()

    def _crash(self, ended: LifeEnd) -> None:
        if self._closed:
            return
        self._crashed = ended
        self._close()
        self._owner.run_failed(self, ended)
        if not self._runs:
            self._retiring.set()
            self._drained.set()

    async def _retire(self) -> None:
        if not self._abrupt.is_set():
            with trio.move_on_after(self._timeouts.stop_s):
                await self._drained.wait()
        for run in tuple(self._runs):
            run.call.settle(self._setting.host.stopping(run.id, run.evidence()))
            run.stop(StopStep.TERMINATE)
