"""One process under trial, through the dialect that a daemon would use.

The process is held, read and stopped by an `Incarnation` like any other. Kept here, unlike in a
daemon: each line both ways, and the lines that were set aside.

An answer that did not come within its bound is waited for once more as long, so that a late answer,
as on a busy machine, can be told from a missing one. The time in which the machine kept the
process, or us, from running is waited for besides: the process cannot answer then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec
import trio

from protocol.connection import (
    TOLERABLE,
    Answered,
    HostCalled,
    Memory,
    Notice,
    OutOfStep,
    Quarantined,
    Received,
    Request,
    Stray,
    Unanswered,
    Violated,
    Warned,
)
from protocol.connection import Logged as ModuleLogged
from protocol.descriptor.model import Descriptor
from protocol.errors import Outcome
from protocol.json_line import Fault, excerpt, read_object
from protocol.replies import Operation
from protocol.transcript import EntrySource
from supervisor.policy.verdict import Said, last_words, telling_tail
from supervisor.runtime.containment import procfs
from supervisor.runtime.process.effort import effort
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.lone_process import LoneProcess
from supervisor.runtime.taps import Tap

PATIENCE = 2
"""How many times its bound an answer is waited for."""

KEPT_FOR = 8
"""How many times its bound an answer is waited for besides, at the most, while the machine is busy.
"""

LOOKS, LOOK_S = 3, 0.01
"""How many times in a row a process has to be seen asleep."""

SHOWN_LINES, SHOWN_STDERR = 2, 4
"""Of the exchange, for a finding: each way, so that no flood hides the request."""

KEPT_BYTES = 4 << 20
"""Of the output since the host last wrote."""


class TrialHost(NamedTuple):
    """The setting of trials."""

    host: Host
    host_call: Callable[[Descriptor, HostCalled], Outcome]
    progress: Callable[[str], None] = lambda _: None
    """Receives the name of each step."""


class Timing(Enum):
    IN_TIME = auto()
    LATE = auto()
    NEVER = auto()


class TimedAnswer(NamedTuple):
    answered: Answered | None
    timing: Timing
    bound: str


class Traffic(Tap):
    """What passed both ways."""

    def __init__(self) -> None:
        self._since_written = bytearray()
        self._lines: list[str] = []
        self._mid_line: dict[str, bool] = {}
        self.stderr: Callable[[], list[str]] = list

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects that came since the host last wrote."""
        read = (read_object(one) for one in bytes(self._since_written).split(b"\n") if one.strip())
        return [one for one in read if not isinstance(one, Fault)]

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, each with the sign of its direction."""
        return (*self._lines, *(f"! {one}" for one in telling_tail(self.stderr(), SHOWN_STDERR)))

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        del instance
        if source is EntrySource.HOST:
            self._since_written.clear()
        elif source is EntrySource.MODULE and len(self._since_written) < KEPT_BYTES:
            self._since_written += data
        sign = _SIGNS.get(source)
        if sign is None or not data:
            return
        was_mid_line, self._mid_line[sign] = self._mid_line.get(sign), not data.endswith(b"\n")
        if was_mid_line:
            # Only the beginning of a line is shown.
            data = data.partition(b"\n")[2]
        for line in [one for one in data.splitlines() if one.strip()][-SHOWN_LINES:]:
            self._lines.append(f"{sign} {excerpt(line)}")
            same = [one for one in self._lines if one[0] == sign]
            if len(same) > SHOWN_LINES:
                self._lines.remove(same[0])


_SIGNS = {EntrySource.HOST: ">", EntrySource.MODULE: "<"}


class Watched:
    """A process or request under trial."""

    exchange: Traffic


class Trial(LoneProcess, Watched):
    """One process, from before its spawn to its end. What does not come shows."""

    def __init__(
        self, descriptor: Descriptor, place: TrialHost, memory: Memory, new_id: Callable[[], str]
    ) -> None:
        self._place = place
        self.exchange = Traffic()
        tap = self.exchange
        super().__init__(descriptor, place.host, new_id, memory, tap, patience=PATIENCE)
        self.said = Said()
        """For a process per invocation."""
        self.noise: list[Notice] = []
        """Lines that were set aside."""
        self.findings: list[str] = []
        """Oddities of definitions, in a dialect that checks them."""
        self.notices: list[Notice] = []
        """Everything else that was not accepted."""
        self.strays: list[str] = []
        """Lines for no open request, but for requests that were given up."""
        self.twice = ""
        """The words for a second answer to one request; empty if there was none."""
        self.odd_lines: tuple[str, ...] = ()
        """The last lines both ways at the moment of the first misplaced line."""
        self.is_out_of_step = False
        self.replies: dict[Operation, dict[str, Any]] = {}
        """The last answer to each operation, as it was printed."""
        self._odd = 0
        """The number of strays at the last request."""
        self._gave_up = False
        self._is_beside = False
        """Whether the last request was sent while another one was open."""
        self._news = trio.Event()

    # Its life.

    async def begin(self, *, single_use: bool) -> None:
        """Start the process, contained; raises `SpawnError`. `run` has to follow."""
        await self.spawn(single_use=single_use)
        self.exchange.stderr = self.process.stderr.tail

    async def until(self, holds: Callable[[], object], bound_s: float) -> Timing:
        """Wait for `holds`, or the process's end, up to `PATIENCE` times the bound."""
        began, kept_before_s = trio.current_time(), self._kept_s()
        until, latest = began + PATIENCE * bound_s, began + (PATIENCE + KEPT_FOR) * bound_s
        while not holds() and self.exit is None and trio.current_time() < until:
            with trio.move_on_at(until):
                while not holds() and self.exit is None:
                    await self._news.wait()
            kept_s = self._kept_s() - kept_before_s
            until = min(began + PATIENCE * bound_s + kept_s, latest)
        if not holds():
            return Timing.NEVER
        kept_s = self._kept_s() - kept_before_s
        return Timing.IN_TIME if trio.current_time() - began - kept_s <= bound_s else Timing.LATE

    def _kept_s(self) -> float:
        """Return for how long the machine has kept the process, and us, from running."""
        pid = self.process.pid
        return procfs.run_delay_s(os.getpid()) + (0.0 if pid is None else procfs.run_delay_s(pid))

    def known(self) -> tuple[str, str]:
        """Return a clause on the process's end, or on its present state; and a key of `FIXES`."""
        if self.exit is None:
            done = effort(self.process.mark)
            return done.words, "busy" if done.is_busy else "silent"
        said = last_words(self.exit.stderr_tail)
        fix = "" if not self.exit.abnormal else "memory" if self.exit.breach else "crash"
        return f"; its last line on stderr: {said}" if said else "", fix

    async def settle(self, bound_s: float) -> None:
        """Wait until the process sleeps: it has begun, and set its signals."""
        assert self.process.pid is not None  # noqa: S101 - it was spawned
        asleep = 0
        with trio.move_on_after(bound_s):
            while asleep < LOOKS and self.exit is None:
                now = procfs.stat(self.process.pid)
                asleep = asleep + 1 if now is not None and now.state == "S" else 0
                await trio.sleep(LOOK_S)

    # What it is asked.

    def ask(self, request: Request, **unknown: Any) -> None:
        """Ask something; `unknown` are fields in the request's line that no protocol knows."""
        self._is_beside = bool(self.asked.keys() - self.answered.keys())
        self._odd = len(self.strays)
        if not unknown:
            super().ask(request)
            return
        self.asked[request.request_id] = request.operation
        events = self.connection.ask(request)
        line = read_object(self.connection.outgoing.take())
        assert not isinstance(line, Fault)  # noqa: S101 - it is our own
        if "jsonrpc" in line:
            # In MCP, further fields belong there.
            meta = line.setdefault("params", {}).setdefault("_meta", {})
            meta.update({f"org.example/{name}": value for name, value in unknown.items()})
        else:
            line.update(unknown)
        self.connection.outgoing.add(msgspec.json.encode(line) + b"\n", request.request_id)
        self.receive(events)
        self.process.flush()

    def tell(self, line: dict[str, Any]) -> None:
        """Write a line that expects no answer."""
        self.connection.outgoing.add(msgspec.json.encode(line) + b"\n")
        self.process.flush()

    def give_up(self, request_id: str) -> None:
        """Cancel, like a host whose deadline has passed."""
        self._gave_up = True
        self.process.cancel(request_id)

    async def answer(self, request_id: str, bound: str) -> TimedAnswer:
        """Wait for an answer, or a line with an unknown id: no other answer will come then."""
        bound_s: float = getattr(self._descriptor.supervision.timeouts, bound)
        timing = await self.until(
            lambda: request_id in self.answered or len(self.strays) > self._odd, bound_s
        )
        return TimedAnswer(self.answered.get(request_id), timing, f"{bound} ({bound_s:g} s)")

    # What it says.

    def heard(self) -> None:
        if not self.odd_lines and (self.noise or self.strays or self.twice):
            self.odd_lines = self.exchange.lines
        self._news.set()
        self._news = trio.Event()

    def take(self, item: Received) -> None:
        match item:
            case Answered():
                self._take_answer(item)
            case OutOfStep():
                self.is_out_of_step = True
            case ModuleLogged(event=event, is_finding=True):
                self.findings.append(event.message)
            case HostCalled():
                self.process.answer(item, self._place.host_call(self._descriptor, item))
            case Unanswered(error=error):
                self.said = msgspec.structs.replace(self.said, error=error)
            case Violated(fault=fault):
                self.said = msgspec.structs.replace(self.said, fault=fault)
            case Quarantined(fault=fault):
                self.noise.append(Notice.of(fault))
            case Warned(notice=notice):
                (self.noise if notice.reason in TOLERABLE else self.notices).append(notice)
            case Stray(named=None) if self._gave_up:
                pass
            case Stray(named=named, excerpt=shown):
                if named in self.asked and (self.twice or not self._is_beside):
                    self.twice = self.twice or f"it answered {named!r} a second time: {shown}"
                else:
                    self.strays.append(shown)
            case _:
                pass

    def _take_answer(self, item: Answered) -> None:
        operation, objects = self.asked.get(item.request_id), self.exchange.objects
        if operation is not None and objects and item.fault is None:
            self.replies[operation] = objects[-1]
        self.said = msgspec.structs.replace(
            self.said, answer=item.outcome, fault=item.fault or self.said.fault, codes=item.codes
        )
