"""Wait until what was recorded is stored, within a bound, whatever the disk does."""

from __future__ import annotations

import msgspec
import trio

from protocol.connection import Notice
from protocol.errors import Failure, Reason, Success
from protocol.response import Response
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.recorder import Kept, Recorder
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

FLUSH_S = 5.0
"""How long an answer waits for the disk; a commit takes some milliseconds."""


class Durability:
    """Answers that wait until what they acknowledge outlives the daemon."""

    def __init__(self, recorder: Recorder, deadlines: Deadlines, flush_s: float = FLUSH_S) -> None:
        self._flush_s = flush_s
        self.waiting = 0
        self._unstored = 0
        self._recorder = recorder
        self._deadlines = deadlines
        self._none_waits = trio.lowlevel.ParkingLot()

    def confirm(self, done: Kept) -> None:
        """Call `done` once, perhaps at once: with None, or with why nothing was stored."""
        timer: Timer | None = None
        told = False

        def tell(failure: Failure | None) -> None:
            nonlocal told
            if told:
                return
            told = True
            if timer is not None:
                timer.cancel()
            self.waiting -= 1
            self._unstored += failure is not None
            if not self.waiting:
                self._none_waits.unpark_all()
            done(failure)

        self.waiting += 1
        self._recorder.flush(tell)
        if not told:
            timer = self._deadlines.after(
                self._flush_s, lambda: tell(self._recorder.flush_is_late(self._flush_s))
            )

    async def confirmed(self) -> None:
        """Return when all that was recorded so far is stored; raises `RefusedError`."""
        done, found = trio.open_memory_channel[Failure | None](1)
        self.confirm(done.send_nowait)
        failure = await found.receive()
        if failure is not None:
            raise RefusedError(_unstored("it is done, but could not be stored", failure))

    async def wait_told(self) -> bool:
        """Return when no answer waits any more, and whether all they waited for was stored.

        Bounded by `flush_s`.
        """
        unstored = self._unstored
        while self.waiting:
            await self._none_waits.park()
        return self._unstored == unstored


def acknowledged(response: Response, failure: Failure | None) -> Response:
    """Return the response, or what takes its place if what it acknowledges was not stored."""
    if failure is None:
        return response
    what = f"what {response.module}.{response.op} changed could not be stored"
    if isinstance(response.outcome, Success):
        unstored = _unstored(f"{response.module} answered, but {what}", failure)
        return msgspec.structs.replace(response, outcome=unstored)
    # A failure acknowledges nothing, and why it failed is worth more.
    notices = (*response.notices, Notice(str(Reason.STORAGE), f"{what}: {failure.message}"))
    return msgspec.structs.replace(response, notices=notices)


def _unstored(what: str, failure: Failure) -> Failure:
    """Return a failure that says that the change was made, which a refusal does not say."""
    evidence = {key: value for key, value in failure.details.items() if key != "reason"}
    return Failure.because(Reason.STORAGE, f"{what}: {failure.message}", **evidence)
