"""One process from before its spawn to its last byte: what it is told, what it says, how it ends.

**Speaking.** All that its connection is told, by the pipes, by a life or by the kernel, goes
through here; then its events are received, all that it has to say is written, and its waits are
kept (protocol.connection). What it is told while events are received leads to events that are
received after those: no receiver is called while it is being called.

Bytes are written at once where the pipe has room, those of one client's turn together at its end;
else as soon as there is room. A process that is told much and does not read is not read from
either, once `HIGH_BYTES` wait for it: it gets no further with its request, whose deadline ends it.
What it streams from other modules pauses those meanwhile, as a slow client does.

**Its end.** The order is the design (docs/architecture.md). The pidfd says that the leader has
ended; then

1. the readers, the writer and the ladder are cancelled: an exit ends every escalation;
2. the rest of the containment is killed while the leader is still unreaped, so its number is safe;
3. what the leader left in the pipes is read, as much as FIONREAD says and no more: a grandchild
   that holds a pipe open is not waited for;
4. those who were killed are seen gone, within a bound; who is left is named in the exit;
5. the leader is reaped and everything is closed. While a tracer keeps it from being reaped
   (`reaping`), the receiver is told how it ended and by whom it is held, and it is tried again.

The stop ladder: end of stdin, wait `exit_s`; SIGTERM and SIGCONT to the containment, wait `stop_s`;
SIGKILL to all of it. A process that survives that (uninterruptible in the kernel), and a dead one
that can't be reaped, keep their place: starting another would make two.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import trio

from protocol.connection import Connection, Events, Flow, HostCalled, Received, Request, Wait
from protocol.descriptor.model import Timeouts
from protocol.errors import Failure, Outcome, Reason
from protocol.framing import Written
from protocol.host_call import Chunk
from protocol.transcript import EntrySource, Happened
from supervisor.policy.verdict import Breach, Exit, unset_remark
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.containment.reaping import REAP_AGAIN_S, End
from supervisor.runtime.files.module_log import ModuleLog, Stderr
from supervisor.runtime.process.effort import MARK_S, Mark, cpu_clock, tree
from supervisor.runtime.process.pipes import READ_BYTES, Output, read, read_rest
from supervisor.runtime.process.process import Opening, Process
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import LOOP, LineTurn, pieces

if TYPE_CHECKING:
    from supervisor.runtime.supervision.deadlines import Deadlines, Timer

HIGH_BYTES = 1 << 20
"""What may wait while the pipe is full, before the process is not read from any more."""

FULL_BYTES = 32 << 20
"""What may wait at all: of an answer beyond it only the failure to deliver it is sent."""

FEW_BYTES = 512
"""A piece no longer than this may well be the answer to what was asked a moment ago."""

UNKILLABLE_AFTER_S = 5.0
"""A killed process is gone within milliseconds; after this long its name goes into the log."""

EXIT_FOLLOWS_S = 0.25
"""A dying process closes its pipes before its exit can be seen; so an end of a pipe is taken for
the choice of a living process only when no exit has followed."""

ABANDON_AFTER_S = 10.0
"""How long a cancelled incarnation may wait for its killed process before it gives up."""

PART_AFTER_S = 1.0
"""How long a daemon that ends waits for a killed process that a tracer holds."""

log = structlog.get_logger()


class StopStep(IntEnum):
    END_OF_INPUT = 0
    TERMINATE = 1
    KILL = 2


class Receiver:
    """Is told what a process says, and what becomes of its pipes; no method may block."""

    def receive(self, events: Events) -> None: ...

    def congested(self) -> bool:
        """Whether reading should pause; asked after each chunk."""
        return False

    def stdout_closed(self) -> None:
        """The process closed its stdout and still runs."""

    def stdin_broken(self) -> None:
        """The process closed its stdin while something was to be written."""

    def held(self, end: Exit) -> None:
        """The process is dead and cannot be reaped yet; all it said has been received."""


class Incarnation:
    """A connection and its process; once `spawned` was called, `run` has to follow."""

    containment: Containment
    """Of the process, once it is spawned; so is `_process`."""
    _process: Process
    _stdout: Output
    _stderr: Output

    def __init__(
        self,
        instance: str,
        connection: Connection,
        receiver: Receiver,
        *,
        module_log: ModuleLog,
        timeouts: Timeouts,
        deadlines: Deadlines,
        taps: Taps,
        parting: Callable[[], bool] = lambda: False,
    ) -> None:
        """`parting` says whether the daemon is ending."""
        self.instance = instance
        self.receiver = receiver
        """It may be replaced by another one, which takes all that follows."""
        self.taps = taps
        self.stderr = Stderr(instance, module_log)
        self.pid: int | None = None
        self._started_at = 0.0
        self.connection = connection
        self._timeouts = timeouts
        self._deadlines = deadlines
        self._parting = parting
        self._nursery: trio.Nursery | None = None

        # What it is told.
        self.opening: Opening | None = None
        self._outgoing = connection.outgoing
        self._is_open = False
        """Whether there is a process that can be written to."""
        self._to_write = trio.Event()
        self._left = memoryview(b"")
        self._to_flush = False
        self.on_room: set[Callable[[], None]] = set()
        """Each is called when there may be room again for what it sends in pieces."""

        # What it says.
        self._receiving = False
        self._more: list[Received] = []
        """Events that wait until those before them have been received."""
        self._room = trio.Event()
        self._eof = False
        self._waits: tuple[Wait, ...] = ()
        self._timers: list[tuple[Wait, Timer]] = []

        # What it does while it is waited for (`effort`).
        self.times_heard = 0
        self.mark: Mark | None = Mark(self, time.clock_gettime(time.CLOCK_BOOTTIME), {}, 0)
        """Where it stood when it was asked last, or before its spawn."""
        self.clocks: list[int] = []
        """The `cpu_clock` of it and of those below it, once it was asked."""

        # Its end.
        self.is_stopping = False
        self.is_held = False
        """Whether it is dead and cannot be reaped."""
        self._is_left = False
        """Whether it is left to the guardian: killed, and kept by a tracer from dying."""
        self._hurry = trio.Event()
        self._first_rung = StopStep.END_OF_INPUT
        self._breach: Breach | None = None

    # From spawn to gone.

    def take_opening(self) -> None:
        """Take what the connection has to say already; the spawning thread writes it to stdin."""
        data = self._outgoing.take()
        self.opening = Opening(data, closes_stdin=self.connection.closes_stdin)

    def spawned(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid
        self.containment = process.containment
        self._started_at = trio.current_time()
        turns = LineTurn(self.instance), LineTurn(self.instance)
        self._stdout = Output(process.stdout, EntrySource.MODULE, "stdout", turns[0])
        self._stderr = Output(process.stderr, EntrySource.STDERR, "stderr", turns[1])

    async def run(self, asked: trio.Event | None = None) -> Exit:
        """Speak with the process until it has ended; the last lines are received before that.

        With `asked`, stdout is left in the pipe until that is set, or the process has ended.
        """
        process = self._process
        ended = False
        exit_ = Exit()
        with self.taps.of_process(self):
            try:
                self._begin()
                if not process.exited:  # a quick tool may have said all there is in the meantime
                    await self._listen(asked)
                ended = True
            finally:
                try:
                    if self._is_left:
                        exit_ = self._exit(End(), (process.pid,))
                        self._exited(None)
                    elif ended or await self._kill():
                        exit_ = await process.ends.serve(self._finish(), "its end", self.instance)
                finally:
                    self.close()
        return exit_

    def _begin(self) -> None:
        """Begin to speak, where its opening left off if it had one."""
        self._is_open = True
        opening = self._process.opening
        if opening is not None:
            self.taps.said(self.instance, EntrySource.HOST, opening.written)
            self._left = memoryview(opening.left)
            if self._process.stdin is None:
                self.taps.happened(self.instance, Happened.STDIN_CLOSED)
        self._follow(self.connection.start())
        self.write_now()

    async def _listen(self, asked: trio.Event | None) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, self._stdout, asked)
            nursery.start_soon(self._read, self._stderr)
            if self._process.stdin is not None:
                nursery.start_soon(self._write_stdin)
            if self.is_stopping:
                nursery.start_soon(self._climb_down)
            self._nursery = nursery  # `stop` starts the ladder there; most never need one
            try:
                await self._process.wait_exited()
            finally:
                self._nursery = None
            nursery.cancel_scope.cancel()

    async def _finish(self) -> Exit:
        process = self._process
        await process.kill()
        survivors: tuple[int, ...] = ()
        try:
            await self._take_rest(self._stdout)
            self.receive_eof()
            await self._take_rest(self._stderr)
            self.stderr.finish()
            counted = self.containment.memory_breach()
            if counted is not None:
                self._breach = Breach("memory_bytes", *counted, by_kernel=True)
        finally:
            survivors = await process.kill_the_rest()
            end = process.reap()
            if end is None:
                end = await self._until_reaped(survivors)
        if survivors:
            log.error("processes cannot be killed", instance=self.instance, pids=survivors)
        exit_ = self._exit(end, survivors)
        self.taps.exited(self.instance, exit_)
        if not self.is_held:
            self._exited(exit_.exit_code)
        return exit_

    async def _until_reaped(self, survivors: tuple[int, ...]) -> End:
        """Try again until the dead leader can be reaped; it keeps its place for as long."""
        self.is_held = True
        exit_ = self._exit(self._process.end, survivors)
        known = {"instance": self.instance, "pid": self.pid, "words": exit_.words}
        known["traced_by"] = exit_.traced_by.words if exit_.traced_by else None
        log.warning("a dead process cannot be reaped", **known)
        end: End | None = None
        try:
            self._exited(exit_.exit_code)
            self.receiver.held(exit_)
            part_at = math.inf
            while end is None and trio.current_time() < part_at:
                if self._parting():
                    part_at = min(part_at, trio.current_time() + PART_AFTER_S)
                await trio.sleep(REAP_AGAIN_S)
                end = self._process.reap()
        finally:
            if end is None:
                self._process.abandon()
                log.error("left behind: a dead process that could not be reaped", **known)
        return end or End(exit_.exit_code, exit_.signal)

    def _exit(self, end: End, survivors: tuple[int, ...]) -> Exit:
        return Exit(
            exit_code=end.exit_code,
            signal=end.signal,
            instance=self.instance,
            pid=self.pid,
            uptime_s=round(self.uptime_s, 3),
            stderr_tail=tuple(self.stderr.tail()),
            survivors=survivors,
            breach=self._breach,
            stopped_by_host=self.is_stopping,
            traced_by=self._process.tracer,
            remark="" if self.is_stopping else unset_remark(self._process.unset_variables),
        )

    def _exited(self, code: int | None) -> None:
        self._is_open = False
        self._follow(self.connection.process_exited(code))
        self.close()

    def close(self) -> None:
        """Stop all timers, and write nothing more; may be called again."""
        self._is_open = False
        for _, timer in self._timers:
            timer.cancel()
        self._timers = []

    async def remove_container(self, exit_: Exit) -> Exit:
        """Remove the container that its command ran, if any; returns the exit, naming one left."""
        remove = self._process.remove_container
        left = "" if remove is None else await remove()
        return msgspec.structs.replace(exit_, remark=exit_.remark + left) if left else exit_

    # The stop ladder.

    def stop(self, rung: StopStep = StopStep.END_OF_INPUT) -> None:
        """Begin the stop ladder at a rung, or climb on to it if it has begun.

        A process that is not there yet is stopped as soon as it is, and its opening is withheld.
        """
        if self.is_held:
            return  # it is dead, and of something else
        self._first_rung = max(self._first_rung, rung)
        if self.opening is not None:
            self.opening.withheld = True
        if not self.is_stopping and self._nursery is not None:
            self._nursery.start_soon(self._climb_down)
        self.is_stopping = True
        if rung is StopStep.KILL:
            self._hurry.set()

    def breach(self, breach: Breach) -> None:
        """End it for a limit that it passed; the first one is the reason."""
        self._breach = self._breach or breach
        self.stop(StopStep.KILL)

    async def _climb_down(self) -> None:
        if self._first_rung <= StopStep.END_OF_INPUT:
            self.close_stdin()
            await self._pause(self._timeouts.exit_s)
        if self._first_rung <= StopStep.TERMINATE:
            # A stopped process takes its SIGTERM only once it is continued.
            await self._process.signal(signal.SIGTERM, signal.SIGCONT)
            await self._pause(self._timeouts.stop_s)
        await self._process.kill()
        killed_at = trio.current_time()
        tell_at = killed_at + UNKILLABLE_AFTER_S
        while not self._died_unseen():
            await trio.sleep(REAP_AGAIN_S)
            if trio.current_time() > killed_at + PART_AFTER_S and self._parting():
                self._leave_if_traced()
            if trio.current_time() > tell_at:
                self._tell_unkillable()
                tell_at = math.inf

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._hurry.wait()

    def _leave_if_traced(self) -> None:
        # A tracer may stop it on its way out (PTRACE_EVENT_EXIT), where it hears no SIGKILL.
        tracer = self._process.tracer
        if tracer is None or self._nursery is None:
            return
        self._is_left = True
        known = {"instance": self.instance, "pid": self.pid, "traced_by": tracer.words}
        log.error("left behind: a killed process that a tracer keeps from dying", **known)
        self._nursery.cancel_scope.cancel()

    def _died_unseen(self) -> bool:
        """End the listening if the process is dead and its pidfd does not say so (`reaping`)."""
        if self._nursery is None or not self._process.is_dead:
            return False
        self._nursery.cancel_scope.cancel()
        return True

    async def _kill(self) -> bool:
        """Kill a process whose `run` was cancelled; False if it does not end within a bound."""
        await self._process.kill()
        with trio.move_on_after(ABANDON_AFTER_S, shield=True):
            # One that /proc calls dead can be reaped a moment later, unless a tracer holds it.
            while not self._process.exited and not self._process.is_held:
                with trio.move_on_after(REAP_AGAIN_S):
                    await self._process.wait_exited()
            return True
        self._tell_unkillable()
        return False

    def _tell_unkillable(self) -> None:
        tracer = self._process.tracer
        known = {} if tracer is None else {"traced_by": tracer.words}
        log.error("process cannot be killed", instance=self.instance, pid=self.pid, **known)

    # What is known of it.

    @property
    def is_alive(self) -> bool:
        """Whether there is a process that has not ended, even if nobody has taken note yet."""
        return self.pid is not None and not self.is_held and not self._process.exited

    @property
    def uptime_s(self) -> float:
        return trio.current_time() - self._started_at

    def evidence(self) -> dict[str, Any]:
        if self.pid is None:
            return {"instance": self.instance}
        tracer = self._process.tracer
        return {
            "instance": self.instance,
            "pid": self.pid,
            "uptime_s": round(self.uptime_s, 3),
            "stderr_tail": self.stderr.tail(),
            "traced_by": None if tracer is None else msgspec.structs.asdict(tracer),
        }

    @property
    def congested(self) -> bool:
        """Whether the process does not read what it is told, beside its requests."""
        return bool(self._left) and self._outgoing.unasked_bytes > HIGH_BYTES

    @property
    def full(self) -> bool:
        """Whether no more may be said but short failures."""
        return self._outgoing.unasked_bytes > FULL_BYTES

    # What its connection is told.

    def ask(self, request: Request, *, busy: bool = False) -> None:
        """Write a request; to a `busy` process, together with what else comes at this moment."""
        # As `_follow` and `flush` would do it; but each request passes here.
        connection = self.connection
        if self.pid is not None:
            now, mark = time.clock_gettime(time.CLOCK_BOOTTIME), self.mark
            if mark is None or not mark.cpu_s or now - mark.at_s > MARK_S:
                clocks = self.clocks = self.clocks or [cpu_clock(one) for one in tree(self.pid)]
                try:
                    cpu_s = dict(zip(clocks, map(time.clock_gettime, clocks), strict=True))
                    self.mark = Mark(self, now, cpu_s, self.times_heard)
                except OSError:  # one of them is gone
                    self.mark = None
                    del clocks[1:]
            elif mark.times_heard != self.times_heard:
                self.mark = Mark(self, mark.at_s, mark.cpu_s, self.times_heard)
        events = connection.ask(request)
        if events:
            self._receive(events)
        if connection.waits is not self._waits:
            self._keep_waits()
        if self._to_flush or self._receiving:
            return
        if LOOP.afterwards(self._flush_asked):
            self._to_flush = True
        elif busy:
            self._to_write.set()
        else:
            self.write_now()

    def _flush_asked(self) -> None:
        self._to_flush = False
        self.write_now()

    def cancel(self, request_id: str, *, to_its_end: bool = False) -> Written:
        """Take back what was not written of a request; returns how much of it was.

        With `to_its_end`, one that was written in part is written whole, as there is room.
        """
        if self._left:
            # Left with the connection until the pipe has room: a thousand that are given up in one
            # moment would each copy all that the others wait to write.
            self._outgoing.take_back(len(self._left))
            self._left = memoryview(b"")
            self._to_write.set()
        written = self._outgoing.withdraw(request_id)
        if to_its_end and written is Written.PART:
            written = Written.ALL
        self._follow(self.connection.cancel(request_id, written))
        self.flush()
        return written

    def flow(self, request_id: str, operation: Flow) -> None:
        """Pause or resume what is streamed for a request, if the module can be told so."""
        self._follow(self.connection.flow(request_id, operation))
        self.flush()

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> None:
        """Answer a call of the module; a process that is gone needs no answer."""
        if self._is_open:
            if self.taps.listeners and (chunk is None or chunk.is_last):
                self.taps.host_answered(self.instance, asked, outcome)
            self._follow(self.connection.answer(asked, outcome, chunk))
            self.flush()

    def refuse(
        self, asked: HostCalled, words: str, reason: Reason = Reason.MALFORMED_REQUEST
    ) -> None:
        self.answer(asked, Failure.because(reason, words))

    def receive_data(self, data: bytes) -> bool:
        """Take what was read; returns whether that led to a write."""
        # `_follow` would do; but here passes all that a module says.
        self.times_heard += 1
        events = self.connection.receive_data(data)
        if events:
            self._receive(events)
        if self.connection.waits is not self._waits:
            self._keep_waits()
        return self.write_now()

    def receive_eof(self) -> None:
        if not self._eof:
            self._eof = True
            self._follow(self.connection.receive_eof())
            self.write_now()

    def _follow(self, events: Events) -> None:
        if events:
            self._receive(events)
        if self.connection.waits is not self._waits:
            self._keep_waits()

    def _receive(self, events: Events) -> None:
        if self._receiving:
            self._more += events
            return
        self._receiving = True
        try:
            self.receiver.receive(events)
            while self._more:
                events, self._more = self._more, []
                self.receiver.receive(events)
        finally:
            self._receiving = False

    def _keep_waits(self) -> None:
        self._waits = waits = self.connection.waits
        timers: list[tuple[Wait, Timer]] = []
        for wait, timer in self._timers:
            if any(one is wait for one in waits):
                timers.append((wait, timer))
            else:
                timer.cancel()
        for wait in waits:
            if all(one is not wait for one, _ in timers):
                over = partial(self._time_passed, wait)
                timers.append((wait, self._deadlines.after(wait.seconds, over)))
        self._timers = timers

    def _time_passed(self, wait: Wait) -> None:
        self._timers = [one for one in self._timers if one[0] is not wait]
        self._follow(self.connection.time_passed(wait))
        self.write_now()

    # What is written.

    def flush(self) -> None:
        """Write, soon, what the connection has to say; many calls make one write."""
        if not self._receiving:
            self._to_write.set()

    def write_now(self) -> bool:
        """Write what the pipe takes this moment; the writer sees to the rest.

        While events are received nothing is: what they all lead to makes one write. Returns whether
        there was anything that could be written.
        """
        if self._receiving or not self._is_open:
            return False
        stdin = self._process.stdin
        if self._left or stdin is None:
            self._to_write.set()
            return False
        data = self._outgoing.take()
        if not data:
            return False
        try:
            written = os.write(stdin, data)
        except OSError:
            written = 0  # whatever it is, the writer will meet it too
        if self.taps.listeners:
            self.taps.said(self.instance, EntrySource.HOST, data[:written])
        if written < len(data):
            self._left = memoryview(data)[written:]
            self._to_write.set()
        elif not self._outgoing.empty:
            self._to_write.set()
        elif self.connection.closes_stdin:
            self.close_stdin()
        return True

    async def _write_stdin(self) -> None:
        if not await self._write_rest():
            await trio.sleep(EXIT_FOLLOWS_S)
            if not self._died_unseen():
                self.receiver.stdin_broken()

    async def _write_rest(self) -> bool:
        """Write what there was no room for; ends when stdin has been closed.

        Returns False if it was the process that closed it, while something was to be written.
        """
        drained = True
        while True:
            self._to_write = trio.Event()
            if not self._left:
                self._left = memoryview(self._outgoing.take())
            if self._left:
                drained = False
                if not await self._write_left():
                    return False
                if not self._outgoing.empty:
                    await trio.lowlevel.checkpoint()  # a piece, then the neighbours' turn
            elif not drained:  # `write_now` may have written the last piece
                drained = True
                self.nudge()
                for resume in tuple(self.on_room):
                    resume()
                if self.connection.closes_stdin:
                    self.close_stdin()
                    return True
            else:
                await self._to_write.wait()

    async def _write_left(self) -> bool:
        while self._left:
            stdin = self._process.stdin if self._is_open else None
            if stdin is None:
                return False
            try:
                written = os.write(stdin, self._left)
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_writable(stdin)
                except trio.ClosedResourceError:
                    return False
            except OSError:
                return False  # EPIPE: it closed its stdin; SIGPIPE is ignored by Python
            else:
                self.taps.said(self.instance, EntrySource.HOST, self._left[:written])
                self._left = self._left[written:]
        return True

    def close_stdin(self) -> None:
        if self._is_open and self._process.stdin is not None:
            self.taps.happened(self.instance, Happened.STDIN_CLOSED)
            self._process.close_stdin()

    # What is read.

    def nudge(self) -> None:
        """Let the paused reader of stdout look again whether there is room."""
        self._room.set()

    async def _stdout_ended(self) -> None:
        self.taps.happened(self.instance, Happened.EOF)
        self.receive_eof()
        await trio.sleep(EXIT_FOLLOWS_S)
        if not self._died_unseen():
            self.receiver.stdout_closed()

    async def _read(self, output: Output, asked: trio.Event | None = None) -> None:
        """Take what comes until the end of the pipe, a turn at a time, but nothing before `asked`.

        Stdout is not read while the receiver, or the process itself, cannot keep up.
        """
        if asked is not None:
            await asked.wait()
        turn, untaken = output.turn, output.untaken
        drained = True
        while data := await read(output.pipe, drained=drained):
            drained = len(data) < READ_BYTES
            self._note(output, data)
            while untaken:
                if not turn.begin():
                    await turn.wait(len(untaken[0]))
                    continue
                if self._take_turn(output):
                    drained = False  # just asked: it may answer during the neighbours' turn
                if untaken:
                    await turn.wait()
                elif not drained:
                    await trio.lowlevel.checkpoint()  # then the neighbours' turn
                if output is self._stdout:
                    while (self._left and self.congested) or self.receiver.congested():
                        self._room = trio.Event()
                        await self._room.wait()
        if output is self._stdout:
            await self._stdout_ended()
        else:
            self.stderr.finish()

    def _take_turn(self, output: Output) -> bool:
        """Take as much as a turn has time for; return whether there may be more at once.

        That is so if what was taken led to asking. An answer that comes at once belongs to this
        turn: to come round to it in another one costs more than a small call itself.
        """
        turn, untaken, asked = output.turn, output.untaken, False
        take = self.receive_data if output is self._stdout else self.stderr.feed
        LOOP.begin(self.instance, output.label)
        while untaken:
            piece = untaken.popleft()
            asked |= bool(take(piece))
            if turn.took_piece():
                break
            if asked and not untaken and len(piece) <= FEW_BYTES:
                asked = self._read_more(output)
        LOOP.end()
        return asked

    def _read_more(self, output: Output) -> bool:
        """Read what has come since; return whether that is anything, or the end."""
        try:
            data = os.read(output.pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._note(output, data)
        return True

    async def _take_rest(self, output: Output) -> None:
        """Take what was read already, then what the pipe has now, in turns; not cancelled."""
        turn, untaken, chunks = output.turn, output.untaken, deque(read_rest(output.pipe))
        if not (untaken or chunks):
            return
        take = self.receive_data if output is self._stdout else self.stderr.feed
        turn.begin()
        while untaken or chunks:
            if not untaken:
                self._note(output, chunks.popleft())
            take(untaken.popleft())
            if turn.took_piece():
                with trio.CancelScope(shield=True):
                    await turn.wait()
                turn.begin()

    def _note(self, output: Output, data: bytes) -> None:
        if self.taps.listeners:
            self.taps.said(self.instance, output.source, data)
        output.untaken += pieces(data)
