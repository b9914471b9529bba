"""Cut what comes from one party into turns that cost no neighbour more than a moment.

A chunk of 65,536 bytes may hold as many lines, and a line that is no protocol costs some 50 us, one
of a name that many subscribe to more: taken at once, they would stop the event loop for seconds
(promise 4 of ARCHITECTURE.md). A module's lines are taken a few at a time, counted and timed. A
client's requests are timed one by one: one may cost a thousand times what another one does. What
follows from them later, in tasks of their own, is timed together (`SharedTurn`): a thousand
requests may all go on in the same moment.

What all parties have together in one turn of the loop is bounded, however many they are: once that
is spent, they wait, and the one that has had least lately comes next (`runtime.fair_queue`).

The party that has a turn is noted (`SERVING`): so the cause of a long turn of the loop is known
(`runtime.stalls`), and what a turn led to is done together at its end.
"""

from __future__ import annotations

import math
import time
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar

import trio

from supervisor.runtime.fair_queue import FairQueue

T = TypeVar("T")

NOBODY = ""
THE_DAEMON = "the daemon"


class Serving:
    """The party that is served; `begin` and `end` take less than a microsecond."""

    __slots__ = (
        "_begun",
        "_clock",
        "_collected_s",
        "_collecting_since",
        "_cpu_clock",
        "_cpu_since",
        "_doing",
        "_last",
        "_longest",
        "_longest_s",
        "_since",
        "_then",
        "_who",
        "about",
        "all_s",
        "queue",
        "served",
    )

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._cpu_since: float | None = None
        """Since when one is served while others wait, by the CPU time of the event loop: for what
        a busy machine keeps from us, no party is to wait longer for the next turn."""
        self._who = NOBODY
        self._doing = ""
        self.about: object = None
        """What is being done, in more words (`str`): only asked for if it took long."""
        self._since = 0.0
        self._longest: tuple[str, str, object] = (NOBODY, "", None)
        self._longest_s = 0.0
        self.all_s = -math.inf
        """How long parties were served in this turn of the loop; -inf where no clock tells of turns
        (`turn_ended`)."""
        self._collecting_since = 0.0
        self._collected_s = 0.0
        self._then: list[Callable[[], None]] = []
        self._begun = 0
        self._last = NOBODY
        self.served = 0
        """How many parties that was in the last turn of the loop, or would have been; one that came
        again counts again."""
        self.queue = FairQueue()

    def begin(self, who: str, doing: str) -> None:
        if self._who:  # mostly none was served
            self.end()
        if who != self._last:
            self._last = who
            self._begun += 1
        self._who = who
        self._doing = doing
        self.about = None
        self._cpu_since = self._cpu_clock() if self.queue.waiting else None
        self._since = self._clock()

    def end(self) -> None:
        if not self._who:
            return
        who, self._who = self._who, NOBODY
        if self._then:  # what is written then is a part of it
            then, self._then = self._then, []
            for one in then:
                one()
        took_s = self._clock() - self._since
        self.all_s += took_s
        if self._cpu_since is not None:
            self.queue.charge(who, self._cpu_clock() - self._cpu_since)
        if took_s > self._longest_s:
            self._longest_s = took_s
            self._longest = (who, self._doing, self.about)

    def go_on_for(self, who: str) -> None:
        """Serve another party within the turn that has begun, at whose end all is done together."""
        if who != self._who:
            then, self._then = self._then, []
            self.begin(who, self._doing)
            self._then = then

    def afterwards(self, then: Callable[[], None]) -> bool:
        """Call `then` once the current party has been served; False if none is."""
        if not self._who:
            return False
        self._then.append(then)
        return True

    def collecting(self, phase: str, info: object) -> None:
        """Garbage is collected, in whatever thread (`gc.callbacks`)."""
        del info
        if phase == "start":
            self._collecting_since = self._clock()
        else:
            took_s = self._clock() - self._collecting_since
            self._collected_s += took_s
            if self._cpu_since is not None:
                self._cpu_since += took_s  # it may be anybody's garbage

    def turn_ended(self) -> None:
        """Forget what was done in the turn of the loop that ends."""
        self._longest_s = self.all_s = self._collected_s = 0.0
        self.served = max(self._begun, self.queue.waiting)
        self._begun, self._last = 0, NOBODY

    def turns_ended(self) -> None:
        """Nothing will tell of turns any more."""
        self.turn_ended()
        self.all_s = -math.inf

    def culprit(self, turn_s: float) -> tuple[str, str]:
        """Return the party that was served for most of a turn, and what was done, or `NOBODY`.

        Of a crowd, each of which took little, the number is told.
        """
        self.end()
        if self._collected_s > turn_s / 2:
            return THE_DAEMON, "collecting garbage"
        who, doing, about = self._longest
        if self.all_s < turn_s / 2:
            return NOBODY, ""
        doing = doing if about is None else f"{doing}: {about}"
        if self._longest_s < turn_s / 2:
            return f"{self._begun} parties", f"one after the other, the longest {who}: {doing}"
        return who, doing


SERVING = Serving()

TURN_S = 0.005
"""How long the requests of one client are served before it is the neighbours' turn. The one that is
being served then is finished, and a second task may serve what waited: so it is 20 ms at the most,
unless one request alone takes longer."""

ALL_S = 0.006
"""What all have together in a turn of the loop: where there are many, each has less. A plain call
comes in, and its answer does, each after up to three turns: the one it just missed, one in which
others were called, and its own. Those six, with what the last one of a turn takes longer than it
should, have to be well below 50 ms."""

LEAST_S = 0.0005
"""But no less than that, or none would get on."""

WHOLE_BYTES = 1 << 10
"""So much is work for a turn of that length, or more: some ten short requests."""

LINES_AT_ONCE = 128
"""Between two looks at the clock, and two writes to the module. One line may cost 0.1 ms where as
many subscribe as may; to take fewer lines at once costs a stream more than all else about turns."""

AIMED_LINES = 96
"""What a piece of a chunk would have if all lines were of one length."""

SAMPLE_BYTES = 2048
"""The beginning of a chunk, which tells how long its lines are."""

PIECES_A_TURN = 8
"""As many pieces of a module's output are handled before it is the neighbours' turn, unless
`TURN_S` is over before that: what can be read at once, where its lines have a hundred bytes."""

WOKEN = 32
"""So many of the tasks that wait for a turn are woken at a time: few enough that it costs little to
wake those for whom nothing is left of it, and enough to fill it where each takes little."""


def length_s() -> float:
    """Return how long a turn is that begins now.

    That is by how many had one in the last turn of the loop, and by what is left of this one.
    """
    left_s = ALL_S - SERVING.all_s
    return min(TURN_S, max(min(ALL_S / (SERVING.served or 1), left_s), LEAST_S))


class Turn:
    def __init__(self, clock: Callable[[], float] = time.perf_counter, who: str = NOBODY) -> None:
        """`who` is the party, as for `SERVING`; `NOBODY` for a part of what a party is served."""
        self._clock = clock
        self._who = who
        self._until = -math.inf
        self._has_waited = False

    @property
    def may_begin(self) -> bool:
        """Whether it is time: it has waited, or it is early and no party waits that had less."""
        if self._has_waited or not self._who:
            return True
        queue = SERVING.queue
        return SERVING.all_s < ALL_S and (not queue.waiting or queue.precedes(self._who))

    def begin(self) -> bool:
        """Begin a turn; False if it is over at once, since others come first: then `wait`."""
        if not self.may_begin:
            self._until = -math.inf
            return False
        self._has_waited = False
        self._until = self._clock() + length_s()
        return True

    async def wait(self, size: int = WHOLE_BYTES) -> None:
        """Let the neighbours have their turns; then `begin` begins one, whatever they had.

        `size` is of what there is to serve, if it is known (bytes).
        """
        if not self._who or not SERVING.queue.waiting:
            await trio.lowlevel.checkpoint()
            if self.may_begin:
                return
        size_s = LEAST_S * min(size / WHOLE_BYTES, 1)
        await SERVING.queue.wait(self._who, size_s, _is_time_left)
        self._has_waited = True

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    async def go_on(self) -> None:
        """Go on in this turn, or after the neighbours' in the next one."""
        if self.over:
            await self.wait()
            self.begin()


def _is_time_left() -> bool:
    return SERVING.all_s < ALL_S


class LineTurn(Turn):
    _pieces = 0

    def begin(self) -> bool:
        self._pieces = PIECES_A_TURN
        return super().begin()

    def took_piece(self) -> bool:
        """Count a piece that was handled; return whether it is the neighbours' turn."""
        self._pieces -= 1
        return self._pieces <= 0 or self.over


class SharedTurn:
    """The turns of all tasks that serve one party: together they have what one party may have.

    A step of a task is what it does from one wait to the next. It begins within a turn, or waits
    for the next one, while the neighbours have theirs. The first task that waits begins that, and
    wakes others; each of them that finds something left wakes one more.
    """

    def __init__(self, who: str, clock: Callable[[], float] = time.perf_counter) -> None:
        """`who` is the party, for `SERVING`."""
        self._who = who
        self._clock = clock
        self._turn = Turn(clock, who)
        self._served_at = -math.inf
        self._waiting = trio.lowlevel.ParkingLot()
        self._is_to_begin = False

    @property
    def is_over(self) -> bool:
        """Whether a step that takes long should wait, for the neighbours and for its next turn."""
        return self._turn.over

    @types.coroutine
    def serve(
        self, task: Coroutine[Any, Any, T], doing: str, who: str | None = None
    ) -> Generator[Any, Any, T]:
        """Run a task, each step of it in a turn; `doing` says what it does, and `who` for whom."""
        who = who or self._who
        this = trio.lowlevel.current_task()
        go_on, told = task.send, None
        while True:
            # A task that was called in a queue that it waited in itself goes on at once.
            if self.is_over and not SERVING.queue.expects(this):
                yield from self.wait().__await__()
            SERVING.begin(who, doing)
            try:
                awaited = go_on(told)
            except StopIteration as end:
                returned: T = end.value
                return returned
            finally:
                # On CPython 3.12 and 3.13 (gh-100964) the frames of a cancel's traceback refer to
                # this one, which would refer to the cancel: a cycle.
                del told
                SERVING.end()
                self._served_at = self._clock()
            try:
                go_on, told = task.send, (yield awaited)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the task's
                go_on, told = task.throw, error

    async def wait(self) -> None:
        """Return within a turn. It is not cancelled: the task is to be told what it waited for."""
        if not self._waiting and self._clock() - self._served_at > TURN_S:
            self._turn.begin()  # the neighbours have had theirs
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
        self._served_at = self._clock()


async def in_turns(who: str, doing: str, steps: Iterable[object]) -> None:
    """Take all steps of an iterator, each of which does something; not cancelled.

    `who` does it, for `SERVING`.
    """
    turn = Turn(who=who)
    turn.begin()
    SERVING.begin(who, doing)
    try:
        for _ in steps:
            if turn.over:
                SERVING.end()
                with trio.CancelScope(shield=True):
                    await turn.wait()
                turn.begin()
                SERVING.begin(who, doing)
    finally:
        SERVING.end()


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
