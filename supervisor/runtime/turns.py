"""The event loop's time, shared among those it works for: one party for one turn at a time.

A party is a module's process, a client, or the daemon itself. A chunk of 65,536 bytes may hold as
many lines, and a thousand requests may go on in the same moment: taken at once, they would stop the
loop for seconds (promise 4 of ARCHITECTURE.md). So each party works for as long as its turn is, and
then lets the others go on:

    begin --work-- over?--> wait --the others' turns--> begin ...

All turns of one pass of the loop have `ALL_S` together. A party for which nothing is left stands in
a queue, and the party that has had least of late is called first, a few at the end of each pass
(start-time fair queueing, Goyal, Vin and Cheng, 1996). Each party has a time of its own, which goes
on by what it works while others wait, but is never more than `CREDIT_S` before the time of all:
that of the last party called. A party stands where its time will be after what it comes with. So
one that asks for little comes before all that ask for much, and none saves up the right to keep the
others waiting.

`LOOP` notes who works: so the cause of a long pass is known (`runtime.stalls`), and what a turn led
to is done together at its end. Under a plain `trio.run`, where nothing tells it of passes, nothing
is counted, and `wait` lets the other tasks run once.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar

import trio

T = TypeVar("T")

NOBODY = ""
THE_DAEMON = "the daemon"

TURN_S = 0.005
"""How long one party works before it is the others' turn. What is being done then is finished, and
a second task of the party may work in the same pass: so it is 20 ms at the most, unless one request
alone takes longer."""

ALL_S = 0.006
"""How long all parties work in a pass. A plain call comes in, and its answer does, each after up to
three passes: the one it just missed, one in which others were called, and its own. Those six, with
what the last party of a pass takes longer than it should, have to be well below 50 ms."""

LEAST_S = 0.0005
"""But no turn is shorter than that, or none would get on."""

WHOLE_BYTES = 1 << 10
"""So much is work for such a turn, or more: some ten short requests."""

CREDIT_S = 0.02
"""What a party may work at once after it has asked for little: some fifty plain calls."""

CALLED = 10
"""How many of those that wait are called at the end of a pass, of which each has `LEAST_S` at the
least: so there is time left for one that asks for little."""

NAMED = 1024
"""So many parties' times are kept before any is dropped: each connection and process is one."""

WOKEN = 32
"""So many tasks of one party are woken when its turn begins: few enough that it costs little to
wake those for whom nothing is left of it, and enough to fill it where each takes little."""

LINES_AT_ONCE = 128
"""Between two looks at the clock, and two writes to the module. One line may cost 0.1 ms where as
many subscribe as may; to take fewer lines at once costs a stream more than all else about turns."""

AIMED_LINES = 96
"""What a piece of a chunk would have if all lines were of one length."""

PIECES_A_TURN = 8
"""As many pieces of a module's output are handled before it is the others' turn, unless `TURN_S` is
over before that: what can be read at once, where its lines have a hundred bytes."""

SAMPLE_BYTES = 2048
"""The beginning of a chunk, which tells how long its lines are."""


class LoopTime:
    """Who works in this pass of the loop, and who waits; `begin` and `end` take under 1 us."""

    __slots__ = (
        "_begun",
        "_collected_s",
        "_collecting_since",
        "_doing",
        "_last",
        "_longest",
        "_longest_s",
        "_now",
        "_numbers",
        "_queue",
        "_since",
        "_then",
        "_times",
        "_who",
        "about",
        "all_s",
        "clock",
        "parties",
    )

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._who = NOBODY
        self._doing = ""
        self.about: object = None
        """What is being done, in more words (`str`): only asked for if it took long."""
        self._since = 0.0
        self._longest: tuple[str, str, object] = (NOBODY, "", None)
        self._longest_s = 0.0
        self.all_s = -math.inf
        """How long parties have worked in this pass; -inf where nothing tells of passes."""
        self._collecting_since = 0.0
        self._collected_s = 0.0
        self._then: list[Callable[[], None]] = []
        self._begun = 0
        self._last = NOBODY
        self.parties = 0
        """How many parties worked in the last pass, or waited; one that came again counts twice."""
        self._queue: list[tuple[float, int, _Waiter]] = []
        """A heap of those that wait: their time, and in which order they came."""
        self._numbers = itertools.count()
        self._times: dict[str, float] = {}
        """Each party's own time (s of work), of those that worked while others waited."""
        self._now = 0.0
        """The time of all."""

    def begin(self, who: str, doing: str) -> None:
        if self._who:  # mostly none works
            self.end()
        if who != self._last:
            self._last = who
            self._begun += 1
        self._who = who
        self._doing = doing
        self.about = None
        self._since = self.clock()

    def end(self) -> None:
        if not self._who:
            return
        who, self._who = self._who, NOBODY
        if self._then:  # what is written then is a part of it
            then, self._then = self._then, []
            for one in then:
                one()
        took_s = self.clock() - self._since
        self.all_s += took_s
        if self._queue:
            self._times[who] = self._time_of(who) + took_s
        if took_s > self._longest_s:
            self._longest_s = took_s
            self._longest = (who, self._doing, self.about)

    def go_on_for(self, who: str) -> None:
        """Charge what follows to another party; what was given to `afterwards` keeps its end."""
        if who != self._who:
            then, self._then = self._then, []
            self.begin(who, self._doing)
            self._then = then

    def afterwards(self, then: Callable[[], None]) -> bool:
        """Call `then` at the end of what the current party does; False if none works."""
        if not self._who:
            return False
        self._then.append(then)
        return True

    def collecting(self, phase: str, info: object) -> None:
        """Garbage is collected, in whatever thread (`gc.callbacks`)."""
        del info
        if phase == "start":
            self._collecting_since = self.clock()
        else:
            self._collected_s += self.clock() - self._collecting_since

    def pass_ended(self) -> bool:
        """Forget what was done in the pass that ends, and call the next of those that wait.

        Returns whether any was called: the loop has no time to sleep then.
        """
        self._longest_s = self.all_s = self._collected_s = 0.0
        self.parties = max(self._begun, len(self._queue))
        self._begun, self._last = 0, NOBODY
        return bool(self._queue) and self._call()

    def passes_ended(self) -> None:
        """Nothing will tell of passes any more."""
        self._queue.clear()
        self.pass_ended()
        self.all_s = -math.inf

    def culprit(self, pass_s: float) -> tuple[str, str]:
        """Return the party that worked for most of a pass, and what it did, or `NOBODY`.

        Of a crowd, each of which took little, the number is told.
        """
        self.end()
        if self._collected_s > pass_s / 2:
            return THE_DAEMON, "collecting garbage"
        who, doing, about = self._longest
        if self.all_s < pass_s / 2:
            return NOBODY, ""
        doing = doing if about is None else f"{doing}: {about}"
        if self._longest_s < pass_s / 2:
            return f"{self._begun} parties", f"one after the other, the longest {who}: {doing}"
        return who, doing

    # Who comes next.

    def may_begin(self, who: str) -> bool:
        """Whether there is time left in this pass, and no party waits that has had less."""
        queue = self._queue
        return self.all_s < ALL_S and (not queue or self._time_of(who) < queue[0][0])

    def length_s(self) -> float:
        """Return how long a turn is that begins now.

        That is by how many worked in the last pass, and by what is left of this one.
        """
        left_s = ALL_S - self.all_s
        return min(TURN_S, max(min(ALL_S / (self.parties or 1), left_s), LEAST_S))

    async def wait(self, who: str, size_bytes: int = WHOLE_BYTES) -> None:
        """Let the others go on; returns when there is time for what a party comes with."""
        if not who or not self._queue:
            await trio.lowlevel.checkpoint()
            if not who or self.may_begin(who):
                return
        waiter = _Waiter()
        at = self._time_of(who) + LEAST_S * min(size_bytes / WHOLE_BYTES, 1)
        heapq.heappush(self._queue, (at, next(self._numbers), waiter))
        await waiter.wait()

    def _call(self) -> bool:
        count = 0
        while self._queue and count < CALLED:
            at, _, waiter = heapq.heappop(self._queue)
            if waiter.call():
                self._now = max(self._now, at)
                count += 1
        if len(self._times) > NAMED:  # one that is not named has a whole credit, too
            since = self._now - CREDIT_S
            self._times = {who: at for who, at in self._times.items() if at > since}
        if not self._queue:  # what they had is nothing to those that come next
            self._times.clear()
        return count > 0

    def _time_of(self, who: str) -> float:
        return max(self._times.get(who, 0.0), self._now - CREDIT_S)


class _Waiter:
    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    async def wait(self) -> None:
        def leave(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    def call(self) -> bool:
        """Wake the task; False if it was cancelled."""
        if self._task is None:
            return False
        trio.lowlevel.reschedule(self._task)
        return True


LOOP = LoopTime()


class Turn:
    def __init__(self, who: str = NOBODY, loop: LoopTime = LOOP) -> None:
        """`who` is the party, as for `LOOP`; `NOBODY` for a part of what a party does."""
        self._loop = loop
        self._clock = loop.clock
        self._who = who
        self._until = -math.inf
        self._has_waited = False

    @property
    def may_begin(self) -> bool:
        return self._has_waited or not self._who or self._loop.may_begin(self._who)

    def begin(self) -> bool:
        """Begin a turn; False if others come first: then `wait`."""
        if not (self._has_waited or not self._who or self._loop.may_begin(self._who)):
            self._until = -math.inf
            return False
        self._has_waited = False
        self._until = self._clock() + self._loop.length_s()
        return True

    async def wait(self, size_bytes: int = WHOLE_BYTES) -> None:
        """Let the others have their turns; then `begin` begins one, whatever they had.

        `size_bytes` is of what there is to do, if that is known.
        """
        await self._loop.wait(self._who, size_bytes)
        self._has_waited = True

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    async def go_on(self) -> None:
        """Go on in this turn, or after the others' in the next one."""
        if self.over:
            await self.wait()
            self.begin()


class LineTurn(Turn):
    _pieces = 0

    def begin(self) -> bool:
        self._pieces = PIECES_A_TURN
        return super().begin()

    def took_piece(self) -> bool:
        """Count a piece that was handled; return whether it is the others' turn."""
        self._pieces -= 1
        return self._pieces <= 0 or self.over


class SharedTurn:
    """The turns of all tasks that work for one party: together they have what one party may have.

    A step of a task is what it does from one wait to the next. It begins within a turn, or waits
    for the next one. The first task that waits begins that, and wakes others; each of them that
    finds something left wakes one more.
    """

    def __init__(self, who: str, loop: LoopTime = LOOP) -> None:
        """`who` is the party, for `LOOP`."""
        self._who = who
        self._loop = loop
        self._clock = loop.clock
        self._turn = Turn(who, loop)
        self._worked_at = -math.inf
        self._waiting = trio.lowlevel.ParkingLot()
        self._is_to_begin = False

    @property
    def is_over(self) -> bool:
        """Whether a step that takes long should wait for the party's next turn."""
        return self._turn.over

    @types.coroutine
    def serve(
        self, task: Coroutine[Any, Any, T], doing: str, who: str | None = None
    ) -> Generator[Any, Any, T]:
        """Run a task, each step of it in a turn; `doing` says what it does, and `who` for whom."""
        who = who or self._who
        go_on, told = task.send, None
        while True:
            if self.is_over:
                yield from self.wait().__await__()
            self._loop.begin(who, doing)
            try:
                awaited = go_on(told)
            except StopIteration as end:
                returned: T = end.value
                return returned
            finally:
                # On CPython 3.12 and 3.13 (gh-100964) the frames of a cancel's traceback refer to
                # this one, which would refer to the cancel: a cycle.
                del told
                self._loop.end()
                self._worked_at = self._clock()
            try:
                go_on, told = task.send, (yield awaited)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the task's
                go_on, told = task.throw, error

    async def wait(self) -> None:
        """Return within a turn. It is not cancelled: the task is to be told what it waited for."""
        if not self._waiting and self._clock() - self._worked_at > TURN_S:
            self._turn.begin()  # the others have had theirs
        with trio.CancelScope(shield=True):
            while self.is_over:
                if self._is_to_begin:
                    await self._waiting.park()
                else:
                    self._is_to_begin = True
                    await self._turn.wait()
                    self._turn.begin()
                    self._is_to_begin = False
                    self._waiting.unpark(count=WOKEN)
                    break  # however short it is
        self._waiting.unpark()
        self._worked_at = self._clock()


async def in_turns(who: str, doing: str, steps: Iterable[object]) -> None:
    """Take all steps of an iterator, each of which does something; not cancelled.

    `who` does it, for `LOOP`.
    """
    turn = Turn(who)
    turn.begin()
    LOOP.begin(who, doing)
    try:
        for _ in steps:
            if turn.over:
                LOOP.end()
                with trio.CancelScope(shield=True):
                    await turn.wait()
                turn.begin()
                LOOP.begin(who, doing)
    finally:
        LOOP.end()


async def each_in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield each item; what the consumer does with them is cut into turns."""
    turn = Turn()
    turn.begin()
    for one in items:
        yield one
        await turn.go_on()


def pieces(data: bytes) -> list[bytes]:
    """Return the pieces of a chunk, in order, each with `LINES_AT_ONCE` newlines at the most.

    To count costs a stream more than it looks, five instructions a byte. So only the first bytes
    are counted twice, and the pieces of which those told too little.
    """
    size = len(data)
    seen = data.count(b"\n", 0, SAMPLE_BYTES)
    if size <= SAMPLE_BYTES and seen <= LINES_AT_ONCE:
        return [data]
    return _cut(data, min(size, SAMPLE_BYTES) * AIMED_LINES // (seen or 1))


def _cut(data: bytes, size: int) -> list[bytes]:
    cut: list[bytes] = []
    for begin in range(0, len(data), size):
        piece = data[begin : begin + size]
        newlines = piece.count(b"\n")
        if newlines <= LINES_AT_ONCE:
            cut.append(piece)
        else:
            cut += _cut(piece, len(piece) * AIMED_LINES // newlines)
    return cut
