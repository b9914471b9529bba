"""What is said to one process, and heard of it: the one place that drives its connection.

All that the connection is told, by the pumps, by a life or by the kernel, goes through here; then
its events are received, all that it has to say is written, and its waits are kept
(protocol.connection). What it is told while events are received leads to events that are received
after those: no receiver is called while it is being called.

Bytes are written at once where the pipe has room, those of one client's turn together at its end;
else as soon as there is room. A process that is told much and does not read is not read from
either, once `HIGH_BYTES` wait for it: it gets no further with its request, whose deadline ends it.
What it streams from other modules pauses those meanwhile, as a slow client does.

Where it stood when it was asked is marked, so that of one that was waited for in vain it can be
said what it did (`effort`): it computed, or waited itself.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import trio

from protocol.connection import Connection, Events, Flow, HostCalled, Received, Request, Wait
from protocol.errors import Failure, Outcome, Reason
from protocol.framing import Written
from protocol.host_call import Chunk
from protocol.transcript import EntrySource, Happened
from supervisor.policy.verdict import Exit
from supervisor.runtime.containment import procfs
from supervisor.runtime.process.process import Opening, Process
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import LOOP

if TYPE_CHECKING:
    from supervisor.runtime.supervision.deadlines import Deadlines, Timer

HIGH_BYTES = 1 << 20
"""What may wait while the pipe is full, before the process is not read from any more."""

FULL_BYTES = 32 << 20
"""What may wait at all: of an answer beyond it only the failure to deliver it is sent."""

MOST_PROCESSES = 8
"""Of a bigger tree the rest is not read: that takes too long for the event loop."""

NO_CPU_S = 0.05
"""Less is called none."""

BUSY, IDLE_BY_CHANCE = 0.5, 0.05
"""The part of its time for which one computed that was busy, and for which one that happens to run
at the moment may have been idle: on a busy machine an endless loop gets little CPU."""


class Receiver:
    """Is told what a process says, and what becomes of its pipes; no method may block."""

    def receive(self, events: Events) -> None: ...

    def congested(self) -> bool:
        """Whether reading should pause; asked after each chunk."""
        return False

    def drained(self) -> None:
        """The pipe took what it had no room for at first."""

    def stdout_closed(self) -> None:
        """The process closed its stdout and still runs."""

    def stdin_broken(self) -> None:
        """The process closed its stdin while something was to be written."""

    def held(self, end: Exit) -> None:
        """The process is dead and cannot be reaped yet; all it said has been received."""


class Stream(Protocol):
    """Sends to the process in pieces, and pauses while there is no room."""

    def resume(self) -> None:
        """There may be room again."""


class Mark(msgspec.Struct, frozen=True):
    """Where a process stood when the host began to wait for it (`CLOCK_BOOTTIME`)."""

    dialogue: Dialogue
    at_s: float
    cpu_s: dict[int, float]
    """By `cpu_clock`, of it and of those below it; empty if it was not there."""
    times_heard: int


class Dialogue:
    def __init__(
        self,
        instance: str,
        connection: Connection,
        receiver: Receiver,
        deadlines: Deadlines,
        taps: Taps,
    ) -> None:
        self.instance = instance
        self.receiver = receiver
        self._connection = connection
        self._outgoing = connection.outgoing
        self._deadlines = deadlines
        self.taps = taps
        self._process: Process | None = None
        self.pid: int | None = None
        self._to_write = trio.Event()
        self._left = memoryview(b"")
        self._receiving = False
        self._to_flush = False
        self._more: list[Received] = []
        """Events that wait until those before them have been received."""
        self._eof = False
        self.times_heard = 0
        """How often it was heard."""
        self.mark: Mark | None = Mark(self, time.clock_gettime(time.CLOCK_BOOTTIME), {}, 0)
        """Where it stood when it was asked last, or before its spawn."""
        self.clocks: list[int] = []
        """The `cpu_clock` of it and of those below it, once it was asked."""
        self._waits: tuple[Wait, ...] = ()
        self._timers: list[tuple[Wait, Timer]] = []
        self._streams: set[Stream] = set()

    # What the connection is told.

    def opening(self) -> Opening:
        """Take what is to be written before the process is there."""
        return Opening(self._outgoing.take(), closes_stdin=self._connection.closes_stdin)

    def begin(self, process: Process) -> None:
        """Begin with the process, where its opening left off if it had one."""
        self._process = process
        opening = process.opening
        if opening is not None:
            self.taps.said(self.instance, EntrySource.HOST, opening.written)
            self._left = memoryview(opening.left)
            if process.stdin is None:
                self.taps.happened(self.instance, Happened.STDIN_CLOSED)
        self._follow(self._connection.start())
        self.write_now()

    def ask(self, request: Request, *, busy: bool = False) -> None:
        """Write a request; to a `busy` process, together with what else comes at this moment."""
        # As `_follow` and `flush` would do it; but each request passes here.
        connection = self._connection
        if self.pid is not None:
            clocks = self.clocks = self.clocks or [cpu_clock(one) for one in tree(self.pid)]
            try:
                cpu_s = dict(zip(clocks, map(time.clock_gettime, clocks), strict=True))
                now = time.clock_gettime(time.CLOCK_BOOTTIME)
                self.mark = Mark(self, now, cpu_s, self.times_heard)
            except OSError:  # one of them is gone
                self.mark = None
                del clocks[1:]
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
        self._follow(self._connection.cancel(request_id, written))
        self.flush()
        return written

    def flow(self, request_id: str, operation: Flow) -> None:
        """Pause or resume what is streamed for a request, if the module can be told so."""
        self._follow(self._connection.flow(request_id, operation))
        self.flush()

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> None:
        """Answer a call of the module; a process that is gone needs no answer."""
        if self._process is not None:
            if self.taps.listeners and (chunk is None or chunk.is_last):
                self.taps.host_answered(self.instance, asked, outcome)
            self._follow(self._connection.answer(asked, outcome, chunk))
            self.flush()

    def refuse(
        self, asked: HostCalled, words: str, reason: Reason = Reason.MALFORMED_REQUEST
    ) -> None:
        self.answer(asked, Failure.because(reason, words))

    def receive_data(self, data: bytes) -> bool:
        """Take what was read; returns whether that led to a write."""
        # `_follow` would do; but here passes all that a module says.
        self.times_heard += 1
        events = self._connection.receive_data(data)
        if events:
            self._receive(events)
        if self._connection.waits is not self._waits:
            self._keep_waits()
        return self.write_now()

    def receive_eof(self) -> None:
        if not self._eof:
            self._eof = True
            self._follow(self._connection.receive_eof())
            self.write_now()

    def exited(self, code: int | None) -> None:
        self._process = None
        self._follow(self._connection.process_exited(code))
        self.end()

    def end(self) -> None:
        """Cancel all waits, and answer nothing; idempotent."""
        self._process = None
        for _, timer in self._timers:
            timer.cancel()
        self._timers = []

    def _time_passed(self, wait: Wait) -> None:
        self._timers = [one for one in self._timers if one[0] is not wait]
        self._follow(self._connection.time_passed(wait))
        self.write_now()

    def _follow(self, events: Events) -> None:
        if events:
            self._receive(events)
        if self._connection.waits is not self._waits:
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
        self._waits = waits = self._connection.waits
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

    # What is known of it.

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._connection.arguments

    @property
    def waits_for(self) -> str:
        """What the connection waits for, in words; empty if for nothing."""
        return " and ".join(one.for_what for one in self._connection.waits)

    @property
    def unfinished_line(self) -> str | None:
        """The beginning of what was printed without a newline, if anything was."""
        return self._connection.unfinished_line

    @property
    def half_written(self) -> bool:
        """Whether bytes wait because the process does not read them."""
        return bool(self._left)

    @property
    def congested(self) -> bool:
        """Whether the process does not read what it is told, beside its requests."""
        return bool(self._left) and self._outgoing.unasked_bytes > HIGH_BYTES

    @property
    def full(self) -> bool:
        """Whether no more may be said but short failures."""
        return self._outgoing.unasked_bytes > FULL_BYTES

    def begin_stream(self, stream: Stream) -> None:
        """Resume a stream when there may be room again."""
        self._streams.add(stream)

    def end_stream(self, stream: Stream) -> None:
        self._streams.discard(stream)

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
        if self._receiving or self._process is None:
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
        elif self._connection.closes_stdin:
            self.close_stdin()
        return True

    async def write_rest(self) -> bool:
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
                self.receiver.drained()
                for stream in tuple(self._streams):
                    stream.resume()
                if self._connection.closes_stdin:
                    self.close_stdin()
                    return True
            else:
                await self._to_write.wait()

    def close_stdin(self) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self.taps.happened(self.instance, Happened.STDIN_CLOSED)
        self._process.close_stdin()

    async def _write_left(self) -> bool:
        while self._left:
            stdin = None if self._process is None else self._process.stdin
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


# What it did while it was waited for.


class Effort(NamedTuple):
    """What a process and those below it did, as a clause; how much CPU they used; if still so."""

    words: str = ""
    cpu_s: float | None = None
    is_busy: bool = False


def cpu_clock(pid: int) -> int:
    """Return the clock of a process for `time.clock_gettime`, as clock_getcpuclockid(3) does."""
    return ~pid << 3 | 2


def tree(pid: int) -> list[int]:
    """Return a process and those below it: a launcher leaves the work to a child."""
    found = [pid]
    for one in found:
        if len(found) < MOST_PROCESSES:
            found += procfs.children(one) or ()
    return found[:MOST_PROCESSES]


def effort(since: Mark | None) -> Effort:
    """Return what a process did since then; empty where that cannot be known."""
    if since is None or since.dialogue.pid is None:
        return Effort()
    used_s, is_running = 0.0, False
    since.dialogue.clocks = []  # there may be others by the next request
    for one in filter(None, map(procfs.stat, tree(since.dialogue.pid))):
        before = since.cpu_s.get(cpu_clock(one.pid))
        if before is None and since.cpu_s and one.start < int(since.at_s * procfs.TICKS_PER_S):
            return Effort()  # how much of its time was before?
        used_s += max((procfs.cpu_s(one.pid) or 0.0) - (before or 0.0), 0.0)
        is_running = is_running or one.state == "R"
    share = used_s / (time.clock_gettime(time.CLOCK_BOOTTIME) - since.at_s)
    is_busy = used_s > NO_CPU_S and (share > BUSY or (is_running and share > IDLE_BY_CHANCE))
    is_mute = since.times_heard == since.dialogue.times_heard
    words = "; it used no CPU" if used_s < NO_CPU_S else f"; it used {used_s:.1f} s of CPU"
    if is_busy:
        words += f"{', printed nothing' if is_mute else ''}: an endless loop?"
    elif is_mute:
        words += " and printed nothing: waiting for something, or its output is not flushed"
    else:
        words += ": waiting for something?"
    return Effort(words, round(used_s, 2), is_busy)
