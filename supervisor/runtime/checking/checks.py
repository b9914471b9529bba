"""Which args are checked next, and by how many processes.

Each party has its turn, and one check at a time; what it has more of waits. A party whose check was
killed for taking too long is suspect: all suspects together never have the last process, so that
there is one for those who ask for what is quick. Processes are started when there is something to
check, and a further one when something has waited for `PATIENCE_S`; unused, they end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import structlog
import trio

from protocol.args_schema import OpSchema
from protocol.problem import Problem
from supervisor.runtime.checking.checker import Checker, Unchecked, checker
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.turns import in_turns

if TYPE_CHECKING:
    from supervisor.runtime.supervision.deadlines import Deadlines, Timer

PROCESSES = 2

PATIENCE_S = 0.05
"""A process costs 0.1 s of CPU time and 25 MB; most checks take less than a millisecond."""

IDLE_S = 10.0
"""How long a process is kept that has nothing to do."""

WAITING = 1024
WAITING_BYTES = 64 << 20
"""How many checks may wait, and how much their args and schemas may take together."""

SUSPECTS = 256

Verdict = Problem | Unchecked | None
Told = Callable[[Verdict], None]

log = structlog.get_logger()


class Check:
    __slots__ = ("args", "party", "schema", "told")

    def __init__(self, party: str, schema: OpSchema, args: bytes, told: Told) -> None:
        self.party = party
        self.schema = schema
        self.args = args
        self.told: Told | None = told

    @property
    def size_bytes(self) -> int:
        return len(self.schema.json) + len(self.args)

    def drop(self) -> None:
        """Tell nobody of the outcome; a check that has begun runs to its end. Idempotent."""
        self.told = None


class Checks:
    def __init__(self, custody: Custody, deadlines: Deadlines) -> None:
        self._custody = custody
        self._deadlines = deadlines
        self._nursery: trio.Nursery | None = None
        # In the order of their turns; a party stands here while something of it waits.
        self._waiting: dict[str, deque[Check]] = {}
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._busy: set[str] = set()
        self._suspects: dict[str, None] = {}
        self._processes = 0
        self._idle = trio.lowlevel.ParkingLot()
        self._patience: Timer | None = None
        self.ended = False
        """Whether the daemon is stopping."""

    def ask(self, party: str, schema: OpSchema, args: bytes, told: Told) -> Check | None:
        """Check args (JSON) in the party's turn, and call `told` later.

        None is returned if too much waits, or all has ended.
        """
        one = Check(party, schema, args, told)
        too_many = self._waiting_count >= WAITING
        if self.ended or too_many or self._waiting_bytes + one.size_bytes > WAITING_BYTES:
            return None
        self._waiting.setdefault(party, deque()).append(one)
        self._waiting_count += 1
        self._waiting_bytes += one.size_bytes
        self._look()
        return one

    def in_turns(self, party: str, doing: str, steps: Iterator[None]) -> None:
        """Take steps of a party in its turns: requests that waited for a check may be many."""
        if self._nursery is None:  # the end has begun
            deque(steps, maxlen=0)
        else:
            self._nursery.start_soon(in_turns, party, doing, steps)

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that waits for something else than a process; not once all has ended."""
        if self._nursery is not None:
            self._nursery.start_soon(task)

    async def run(self) -> None:
        """Serve until cancelled; checks that wait then are given up."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                self._look()
                await trio.sleep_forever()
            finally:
                # Before the tasks that serve look for more.
                self._nursery = None
                self.ended = True
                self._give_up("the daemon is stopping")

    def _look(self) -> None:
        """Begin the next check that waits, if it may begin."""
        if self._nursery is not None and self._next_party() is not None:
            if self._idle:
                self._idle.unpark()
            elif self._processes == 0:
                self._add_process()
            elif self._processes < PROCESSES and self._patience is None:
                self._patience = self._deadlines.after(PATIENCE_S, self._look_again)

    def _look_again(self) -> None:
        self._patience = None
        if self._next_party() is not None and not self._idle and self._processes < PROCESSES:
            self._add_process()

    def _add_process(self) -> None:
        if self._nursery is not None:
            self._processes += 1
            self._nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        try:
            async with checker(self._custody) as one:
                await self._serve_with(one)
        except OSError as error:
            log.error("no process that checks args could be started", words=str(error))  # noqa: TRY400
            self._give_up(f"no process that looks at them could be started: {error.strerror}")
        finally:
            self._processes -= 1
            self._look()

    async def _serve_with(self, process: Checker) -> None:
        while (one := await self._take()) is not None:
            if process.ended:  # it was killed while it had nothing to do
                self._put_back(one)
                return
            self._busy.add(one.party)
            verdict: Verdict = Unchecked("the daemon is stopping")
            try:
                verdict = await process.check(one.schema, one.args)
            finally:
                self._busy.discard(one.party)
                self._tell(one, verdict)
            if isinstance(verdict, Unchecked):
                self._suspect(one.party)
                return
            await trio.lowlevel.checkpoint()

    async def _take(self) -> Check | None:
        """Return the next check; None if none came for a while."""
        while True:
            while (party := self._next_party()) is not None:
                one = self._pop(party)
                if one.told is not None:
                    self._look()  # another party may have a turn too
                    return one
            with trio.move_on_after(IDLE_S) as scope:
                await self._idle.park()
            if scope.cancelled_caught:
                return None

    def _next_party(self) -> str | None:
        suspect: str | None = None
        for party in self._waiting:
            if party in self._busy:
                continue
            if party not in self._suspects:
                return party
            suspect = suspect or party
        suspects_busy = sum(party in self._suspects for party in self._busy)
        return suspect if suspects_busy < PROCESSES - 1 else None

    def _put_back(self, one: Check) -> None:
        others = self._waiting.pop(one.party, deque())
        self._waiting = {one.party: deque((one, *others)), **self._waiting}
        self._waiting_count += 1
        self._waiting_bytes += one.size_bytes

    def _pop(self, party: str) -> Check:
        line = self._waiting.pop(party)
        one = line.popleft()
        if line:
            self._waiting[party] = line  # behind all others
        self._waiting_count -= 1
        self._waiting_bytes -= one.size_bytes
        return one

    def _suspect(self, party: str) -> None:
        self._suspects.pop(party, None)
        self._suspects[party] = None
        if len(self._suspects) > SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def _give_up(self, why: str) -> None:
        while self._waiting:
            self._tell(self._pop(next(iter(self._waiting))), Unchecked(why))

    def _tell(self, one: Check, verdict: Verdict) -> None:
        told, one.told = one.told, None
        if told is not None:
            told(verdict)
