"""A client that writes and reads the lines of docs/protocol.md, with the daemon as the module.

A line is a request, or a cancel of one. The bytes held for the client are bounded
(`runtime.held_bytes`): while its outbox is congested, or it has asked too much at a time, its
requests wait, up to a bound in bytes, and the modules that stream to it are not read
(backpressure). Two things do not wait. A cancel of an open request takes effect at once, so that a
client can end an answer that it no longer wants to read; and an answer is always written, whatever
its length. A client's lines are served a turn at a time (`runtime.turns`): the lines that are left
when its turn is over wait in the same way.

On a connection that is unordered, lines wait for those that are asked as the same login only: each
login has its own turns, and its own inbox (`LoginLines`) while lines of it wait.

What a line means is known to `faces.module_wire`. Once the client has asked for MCP (the op `mcp`),
no line is served any more: what was read of it from there on waits for `take_unserved`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import structlog
import trio

from protocol.errors import Reason
from protocol.frames import asked_as
from protocol.framing import Line, LineSplitter, Overlong
from protocol.json_line import Fault, excerpt, overlong_fault
from supervisor.faces.module_wire import ModuleWire
from supervisor.faces.outbox import Outbox
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import LINES, UNFINISHED_BYTES, Account
from supervisor.runtime.turns import LOOP, Turn, in_turns

HELD_BYTES = 1 << 18

LINE_COST_BYTES = 128
"""The cost of a line beside its bytes, so that many short lines have a bound too."""


class Inbox:
    """Waiting lines in order, between the task that reads and the task that serves.

    Bounded in bytes by the reader: it calls `wait_room` after each chunk.
    """

    def __init__(self, account: Account) -> None:
        self.held_bytes = 0
        self._account = account
        self._lines: deque[Line] = deque()
        self._some = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    @property
    def empty(self) -> bool:
        return not self._lines

    def put(self, lines: Sequence[Line]) -> None:
        self._lines.extend(lines)
        if lines:
            self._hold(sum(map(_cost_bytes, lines)))
            self._some.unpark_all()

    def take(self) -> Line:
        """Return the oldest line; there must be one."""
        line = self._lines.popleft()
        self._hold(-_cost_bytes(line))
        if self.held_bytes <= HELD_BYTES:
            self._room.unpark_all()
        return line

    def clear(self) -> None:
        while self._lines:
            self.take()

    async def wait_some(self) -> None:
        while self.empty:
            await self._some.park()

    async def wait_room(self) -> None:
        """Return once fewer bytes wait than the bound."""
        while self.held_bytes > HELD_BYTES:
            await self._room.park()

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self._account.add(LINES, more)


def _cost_bytes(line: Line) -> int:
    return LINE_COST_BYTES + len(line.excerpt if isinstance(line, Overlong) else line)


class LoginLines:
    """The lines of one login that wait for its turn, on an unordered connection."""

    def __init__(self, party: Party, turn: Turn) -> None:
        self.label = party.label
        self.inbox = Inbox(party.account)
        self.turn = turn


REQUEST_BYTES = 16 << 20
"""The longest line a client may write."""

CANCEL_BYTES = 1 << 16
"""A longer line is not checked for being a cancel before its turn."""

log = structlog.get_logger()


class Conversation:
    """The requests of one client, and the answers to it."""

    def __init__(self, daemon: Kernel, party: Party) -> None:
        self._account = Account(daemon.facts.ledger, party.label, party.principal.by)
        party.account = self._account
        self.outbox = Outbox(self._resume, self._account)
        self._daemon = daemon
        self._party = party
        self._splitter = LineSplitter(REQUEST_BYTES)
        self._inbox = Inbox(self._account)
        self._waiting: dict[str | None, LoginLines] = {}
        """By handle; of the connection's own lines, None."""
        self._nursery: trio.Nursery | None = None
        """For lines that wait by login, while waiting lines are served at all."""
        self.turn = Turn(party.label)
        """The turn in which bytes of the client are received."""
        party.has_logins = True
        self.until_mcp = trio.CancelScope()
        """Cancelled once the client has asked for MCP."""
        self._wire = ModuleWire(
            daemon.requests.begin,
            party,
            self.outbox,
            ended=self._ended,
            logins=daemon.logins,
        )
        self._idle = trio.Event()
        self._fewer = trio.lowlevel.ParkingLot()
        """Where tasks wait until fewer bytes are held."""

    def hold(self, data: bytes) -> None:
        """Take bytes that are not served, or not yet."""
        self._inbox.put(self._splitter.feed(data))

    def take_unserved(self) -> bytes:
        """Return what was read of the client, and is not served: whole lines, and a beginning."""
        unserved = []
        while not self._inbox.empty:
            line = self._inbox.take()
            unserved.append(line.excerpt if isinstance(line, Overlong) else line)
        return b"\n".join((*unserved, self._splitter.take_pending()))

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the client; beyond its turn lines wait, except cancels."""
        self.turn.begin()
        LOOP.begin(self._party.label, "requests")
        lines = self._splitter.feed(data)
        # First, so that a line and what others have begun are not all held while it is served.
        pending_bytes = self._splitter.pending_bytes
        if pending_bytes or self._account.unfinished:
            self._account.hold_unfinished(pending_bytes, self._drop_unfinished)
        self._receive_lines(lines)
        LOOP.end()

    def _drop_unfinished(self) -> None:
        beginning = excerpt(self._splitter.drop_pending())
        log.warning("an unfinished line was dropped: too many bytes of them", beginning=beginning)
        words = (
            "the line was dropped before its end: all clients' unfinished lines were more than"
            f" {UNFINISHED_BYTES} bytes, and this was the longest; send it again"
        )
        self._wire.refuse(Fault(Reason.LINE_TOO_LONG, words, beginning))

    async def close(self, stopped: Stopped) -> None:
        """Cancel what the client had open: the client is gone."""
        for waiting in self._waiting.values():
            waiting.inbox.clear()
        self.outbox.close()
        await self.cancel_all(stopped)
        self._wire.close()
        self._daemon.logins.leave(self._party)
        self._account.close()

    def receive_eof(self) -> None:
        """Take the end of the client's input; a last line may lack its newline."""
        self.turn.begin()
        line = self._splitter.finish()
        self._account.hold_unfinished(0, self._drop_unfinished)
        if line is not None:
            self._receive_lines([line])

    async def wait_room(self) -> None:
        """Return once more may be read from the client."""
        await self._inbox.wait_room()

    async def serve_held(self) -> None:
        """Serve waiting lines in order, whenever the client has read; until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                while True:
                    await self._serve_held()
        finally:
            self._nursery = None

    async def _serve_held(self) -> None:
        await self._inbox.wait_some()
        await self._wait_served()
        await self.turn.wait()
        self.turn.begin()
        LOOP.begin(self._party.label, "requests")
        while not (self._inbox.empty or self._must_wait):
            if self._party.unordered:
                self._serve_in_turn(self._inbox.take(), {})
            else:
                self._serve_line(self._inbox.take())
        LOOP.end()
        self._look_idle()

    async def _serve_waiting(self, handle: str | None, waiting: LoginLines) -> None:
        """Serve the waiting lines of a login in its turns."""
        while waiting.inbox.held_bytes:
            await self._wait_served()
            await waiting.turn.wait()
            waiting.turn.begin()
            LOOP.begin(waiting.label, "requests")
            while waiting.inbox.held_bytes and not (waiting.turn.over or self.outbox.congested):
                self._serve_line(waiting.inbox.take())
            LOOP.end()
        del self._waiting[handle]
        self._look_idle()

    async def cancel_all(self, stopped: Stopped) -> None:
        """Cancel the client's open requests, a turn at a time; not cancelled itself."""
        await in_turns(self._party.label, "giving up its requests", self._wire.cancelling(stopped))

    def is_idle(self) -> bool:
        """Whether nothing is open, waits, or is unread by the client."""
        return self._all_answered() and not self.outbox.waiting_bytes

    async def wait_fleet_stopped(self) -> None:
        await self._daemon.wait_fleet_stopped()

    async def wait_answered(self) -> None:
        """Return when no request is open or waiting."""
        while not self._all_answered():
            if self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()

    def _receive_lines(self, lines: list[Line]) -> None:
        if self._party.unordered:
            self._receive_unordered(lines)
            return
        for number, line in enumerate(lines):
            if not (self._inbox.held_bytes or self._must_wait):  # a batch may wait by now
                self._serve_line(line)
                continue
            # A chunk may hold as many lines as bytes: those that wait are not looked into.
            self._inbox.put([one for one in lines[number:] if not self._cancels_open(one)])
            return

    def _receive_unordered(self, lines: list[Line]) -> None:
        turns: dict[str | None, Turn] = {}
        for number, line in enumerate(lines):
            if self._inbox.held_bytes or self.outbox.congested:
                self._inbox.put([one for one in lines[number:] if not self._cancels_open(one)])
                return
            self._serve_in_turn(line, turns)

    def _serve_in_turn(self, line: Line, turns: dict[str | None, Turn]) -> None:
        """Serve a line within the turn of its login, or let it wait for that.

        `turns` are those that have begun meanwhile.
        """
        handle = None if isinstance(line, Overlong) else asked_as(line)
        party = self._daemon.logins.party(handle)
        if party is None:
            handle, party = None, self._party
        waiting = self._waiting.get(handle)
        if waiting is None:
            turn = turns.get(handle)
            if turn is None:
                turn = turns[handle] = Turn(party.label)
                turn.begin()
            if not turn.over or self._nursery is None:
                LOOP.go_on_for(party.label)
                self._serve_line(line)
                return
            waiting = self._waiting[handle] = LoginLines(party, turn)
            self._nursery.start_soon(self._serve_waiting, handle, waiting)
        if self._cancels_open(line):
            return
        if waiting.inbox.held_bytes > HELD_BYTES and not isinstance(line, Overlong):
            self._wire.refuse_busy(line, "too many requests wait that are asked as the same one")
        else:
            waiting.inbox.put([line])

    @property
    def _must_wait(self) -> bool:
        if self._party.view is not None:  # the lines are for MCP
            return True
        return self.outbox.congested or self.turn.over or self._account.is_full

    async def _wait_served(self) -> None:
        """Return when the client's requests may be served: it reads, and has not asked too much."""
        while self.outbox.congested or self._account.is_full:
            await self.outbox.wait_room()
            if self._account.is_full:  # of requests that are open, then
                await self._fewer.park()

    def _cancels_open(self, line: Line) -> bool:
        if isinstance(line, Overlong) or len(line) > CANCEL_BYTES:
            return False
        if not any(mark in line for mark in self._wire.URGENT):
            return False
        return self._wire.cancels_open(line)

    def _serve_line(self, line: Line) -> None:
        if type(line) is Overlong:  # `isinstance` of a msgspec type is slow to say no
            self._wire.refuse(overlong_fault(line, ", which a request may have,"))
        else:
            self._wire.serve(line)
            if self._party.view is not None:
                self.until_mcp.cancel()

    def _ended(self) -> None:
        self._fewer.unpark_all()
        self._look_idle()

    def _look_idle(self) -> None:
        if self._all_answered():
            self._idle.set()

    def _all_answered(self) -> bool:
        return self._wire.all_answered and self._inbox.empty and not self._waiting

    def _resume(self) -> None:
        self._fewer.unpark_all()
        self._wire.resume()
