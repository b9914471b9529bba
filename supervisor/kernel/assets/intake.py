"""The events of one invocation from its first asset on, kept in order while files are looked at.

An asset may also come in pieces, which are written to a file (`Spool`): with the last piece it has
its place among the events. Events after an asset wait behind it, and so does the answer. Files are
looked at side by side, each within `ASSET_CHECK_S` of its event, so that is also the longest the
answer waits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from protocol.assets import asset_refusal
from protocol.connection import HostCalled, Notice
from protocol.errors import Outcome
from protocol.events import Asset, AssetBytes, CallEvent, Progress
from supervisor.kernel.assets.files import CheckedFile
from supervisor.kernel.assets.store import SPOOLS_OPEN, SPOOLS_WHOLE, Spool
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.held_bytes import ASSETS
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Call, Congestion, Listener

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation

WAITING_EVENTS = 16
WAITING_BYTES = 1 << 20
"""With more waiting than either, in number or in bytes of lines, no more is read."""


class _Pending:
    """An asset whose file is being looked at, and then the result."""

    __slots__ = ("asset", "dropped", "found")

    def __init__(self, asset: Asset) -> None:
        self.asset = asset
        self.found: CheckedFile | Notice | None = None
        self.dropped = False


class AssetIntake(Listener):
    """The listener of an invocation that has assets."""

    def __init__(self, invocation: Invocation) -> None:
        self.registered = 0
        self._invocation = invocation
        self._assets = invocation.setting.effects.assets
        self._origin = invocation.origin
        self._folder = module_folder(invocation.module.descriptor)
        """Where relative paths start from."""
        self._account = invocation.account
        self._held_bytes = 0
        self._waiting: deque[tuple[Progress | _Pending, bytes | None]] = deque()
        self._waiting_bytes = 0
        self._moved = trio.lowlevel.ParkingLot()
        self._spools: dict[str, Spool] = {}
        """The files that come in pieces and are not whole, by the module's id."""
        self._handed_over: dict[Spool, _Pending] = {}
        self._refused: dict[str, Notice] = {}
        self._asset_ids: set[str] = set()

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        """Take an event with its line; it is passed on after all that came before it."""
        del call
        if type(event) is AssetBytes:
            self._take_piece(event)
        elif type(event) is Asset:
            pending = _Pending(event)
            self._wait(pending, line)
            self._invocation.setting.nursery.start_soon(self._check, pending)
        elif self._waiting:
            self._wait(event, line)
        else:
            self._invocation.pass_on(event, line)
        self._count()

    def host_call(self, asked: HostCalled, process: Incarnation, call: Call) -> None:
        """Serve the call at once: it waits for no asset."""
        self._invocation.host_call(asked, process, call)

    def answered(self, outcome: Outcome, call: Call) -> None:
        self._invocation.answered(outcome, call)

    def congested(self) -> Congestion:
        """Whether too much waits, here or for the client."""
        return max(self._congestion, self._invocation.congested())

    @property
    def _congestion(self) -> Congestion:
        spooled = sum(one.waiting_bytes for one in self._spools.values())
        if self._waiting_bytes + spooled > OVERRUN_BYTES:
            return Congestion.FULL
        if len(self._waiting) > WAITING_EVENTS or self._waiting_bytes > WAITING_BYTES:
            return Congestion.SLOW
        return Congestion.SLOW if spooled > WAITING_BYTES else Congestion.NONE

    def finish(self) -> None:
        """Drop the files that are not whole: nothing more comes."""
        for one in [one for one in self._spools.values() if not one.whole]:
            self._drop(one)
            self._invocation.warn(
                one.notice("asset_unfinished", "it was not handed over to its end")
            )

    async def drained(self) -> None:
        """Return when all events have been passed on."""
        while self._waiting:
            await self._moved.park()

    def end(self) -> None:
        """Wait for nothing: assets still being looked at are refused, the rest is passed on."""
        self.finish()
        for spool in list(self._spools.values()):
            self._drop(spool)
        for waiting, _ in self._waiting:
            if isinstance(waiting, _Pending) and waiting.found is None:
                words = "the request ended before it had been looked at"
                waiting.found = Notice(
                    "unreadable_path", f"asset {waiting.asset.asset_id!r:.80}: {words}"
                )
                waiting.dropped = True
        self._go_on()

    def _take_piece(self, piece: AssetBytes) -> None:
        """Take a part of a file; the last part gives the asset its place among the events."""
        spool = self._spools.get(piece.asset_id)
        if spool is None or spool.whole:
            spool = Spool(
                piece,
                self._assets,
                self._origin,
                done=self._spooled,
                drained=self._look,
            )
            refusal = self._refusal(spool)
            if refusal is not None:
                if piece.last:  # once, however many pieces there are
                    self._invocation.warn(refusal)
                return
            self._spools[piece.asset_id] = spool
            self._assets.spool(spool)
        spool.add(piece)
        if piece.last:
            pending = _Pending(spool.asset(""))
            self._handed_over[spool] = pending
            self._wait(pending, None)

    def _refusal(self, spool: Spool) -> Notice | None:
        asset_id = spool.first.asset_id
        if asset_id in self._refused:
            return self._refused[asset_id]
        refusal = asset_refusal(spool.asset(""), self._asset_ids)
        most = SPOOLS_WHOLE if spool.first.last else SPOOLS_OPEN
        if refusal is None and len(self._spools) >= most:
            words = f"{most} others are being handed over, which is the most there may be"
            # Remembered: its next piece is no beginning, even if there is room by then.
            refusal = self._refused[asset_id] = spool.notice("asset_not_copied", words)
        return refusal

    def _spooled(self, spool: Spool, found: CheckedFile | Notice) -> None:
        del self._spools[spool.first.asset_id]
        pending = self._handed_over.pop(spool)
        if isinstance(found, CheckedFile):
            pending.asset = spool.asset(found.path)
        self._checked(pending, found)

    def _drop(self, spool: Spool) -> None:
        del self._spools[spool.first.asset_id]
        self._handed_over.pop(spool, None)
        spool.drop()

    def _count(self) -> None:
        held = self._waiting_bytes + sum(one.waiting_bytes for one in self._spools.values())
        if held != self._held_bytes:
            self._account.add(ASSETS, held - self._held_bytes)
            self._held_bytes = held

    def _look(self) -> None:
        self._count()
        if not self._congestion:
            self._invocation.nudge()

    def _wait(self, waiting: Progress | _Pending, line: bytes | None) -> None:
        self._waiting.append((waiting, line))
        self._waiting_bytes += len(line or b"")

    async def _check(self, pending: _Pending) -> None:
        self._checked(pending, await self._assets.check(pending.asset, self._origin, self._folder))

    def _checked(self, pending: _Pending, found: CheckedFile | Notice) -> None:
        if not pending.dropped:
            pending.found = found
            self._go_on()
        elif isinstance(found, CheckedFile):
            self._assets.discard(found)

    def _go_on(self) -> None:
        congested = self._congestion
        while self._waiting:
            first, line = self._waiting[0]
            if isinstance(first, _Pending) and first.found is None:
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(line or b"")
            if isinstance(first, _Pending):
                self._take(first, line)
            else:
                self._invocation.pass_on(first, line)
        self._count()
        if congested and not self._congestion:
            self._invocation.nudge()
        if not self._waiting:
            self._moved.unpark_all()

    def _take(self, pending: _Pending, line: bytes | None) -> None:
        found = pending.found
        if not isinstance(found, CheckedFile):
            assert found is not None  # noqa: S101 - taken only once it is there
            self._invocation.warn(found)
            return
        asset, record, notices = self._assets.register(pending.asset, found, self._origin)
        for notice in notices:
            self._invocation.warn(notice)
        if record is not None:
            self.registered += 1
        self._invocation.pass_on(asset, line if asset == pending.asset else None)
