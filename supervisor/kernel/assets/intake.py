"""The events of one invocation from its first asset on, kept in order while files are looked at.

What comes after an asset waits behind it, and so does the answer. Files are looked at side by side,
each within `ASSET_CHECK_S` of its event, so that is also the longest the answer waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from protocol.connection import Notice
from protocol.events import Asset, AssetBytes, CallEvent, Progress
from supervisor.kernel.assets.checks import Looked
from supervisor.kernel.assets.registry import Assets
from supervisor.kernel.origin import Origin

WAITING_EVENTS = 16
WAITING_BYTES = 1 << 20
"""With more waiting than either, in number or in bytes of their lines, no more is read."""

Finish = Callable[[], None]


class _Pending:
    """An asset whose file is being looked at, and then what was found."""

    __slots__ = ("asset", "dropped", "found")

    def __init__(self, asset: Asset) -> None:
        self.asset = asset
        self.found: Looked | Notice | None = None
        self.dropped = False


class AssetIntake:
    """What of one invocation waits for its assets."""

    def __init__(
        self,
        assets: Assets,
        origin: Origin,
        folder: str,
        *,
        pass_on: Callable[[Progress, bytes | None], None],
        warn: Callable[[Notice], None],
        resume: Callable[[], None],
    ) -> None:
        """`resume` is called when there is room again; relative paths start from `folder`."""
        self.registered = 0
        self._assets = assets
        self._origin = origin
        self._folder = folder
        self._pass_on = pass_on
        self._warn = warn
        self._resume = resume
        self._waiting: deque[tuple[Progress | _Pending, bytes | None]] = deque()
        self._waiting_bytes = 0
        self._finish: Finish | None = None

    @property
    def congested(self) -> bool:
        """Whether no more should be read for now."""
        return len(self._waiting) > WAITING_EVENTS or self._waiting_bytes > WAITING_BYTES

    def put(self, event: CallEvent, line: bytes | None) -> None:
        """Take an event with its line; it is passed on after all that came before it."""
        if type(event) is AssetBytes:
            raise NotImplementedError
        if type(event) is Asset:
            pending = _Pending(event)
            self._wait(pending, line)
            module = self._origin.module
            self._assets.check(event, module, self._folder, lambda one: self._checked(pending, one))
        elif self._waiting:
            self._wait(event, line)
        else:
            self._pass_on(event, line)

    def finish(self, finish: Finish) -> None:
        """Call `finish` when nothing waits any more."""
        self._finish = finish
        self._go_on()

    def hurry(self) -> None:
        """Wait for nothing: assets still being looked at are refused, the rest is passed on."""
        for waiting, _ in self._waiting:
            if isinstance(waiting, _Pending) and waiting.found is None:
                words = "the request ended before it had been looked at"
                waiting.found = Notice(
                    "unreadable_path", f"asset {waiting.asset.asset_id!r:.80}: {words}"
                )
                waiting.dropped = True
        self._go_on()

    def _wait(self, waiting: Progress | _Pending, line: bytes | None) -> None:
        self._waiting.append((waiting, line))
        self._waiting_bytes += len(line or b"")

    def _checked(self, pending: _Pending, found: Looked | Notice) -> None:
        if not pending.dropped:
            pending.found = found
            self._go_on()
        elif isinstance(found, Looked):
            self._assets.discard(found)

    def _go_on(self) -> None:
        congested = self.congested
        while self._waiting:
            first, line = self._waiting[0]
            if isinstance(first, _Pending) and first.found is None:
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(line or b"")
            if isinstance(first, _Pending):
                self._take(first, line)
            else:
                self._pass_on(first, line)
        if congested and not self.congested:
            self._resume()
        if not self._waiting and self._finish is not None:
            finish, self._finish = self._finish, None
            finish()

    def _take(self, pending: _Pending, line: bytes | None) -> None:
        found = pending.found
        if not isinstance(found, Looked):
            assert found is not None  # noqa: S101 - taken only once it is there
            self._warn(found)
            return
        asset, record, notices = self._assets.register(pending.asset, found, self._origin)
        for notice in notices:
            self._warn(notice)
        if record is not None:
            self.registered += 1
        self._pass_on(asset, line if asset == pending.asset else None)
