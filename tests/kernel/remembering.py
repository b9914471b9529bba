"""A recorder in memory, whose disk can be slow or full; a restart finds what it has."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Self, TypeVar

import msgspec
import trio

from protocol.errors import Failure, Reason
from supervisor.kernel.recorder import CutShort, Kept, Overhear, Recorder, Restored, Unended
from supervisor.kernel.store.settings import DocumentKey, Span
from tests.journals import lint

T = TypeVar("T")

FULL = Failure.because(Reason.STORAGE, "the disk is full")


class Remembering(Recorder):
    """Keeps what is recorded; a `flush` waits while it is `slow`."""

    def __init__(self) -> None:
        super().__init__()
        self.new_span = map("life-{}".format, itertools.count(1)).__next__
        self.span_of = "life-i".__add__
        self.entries: list[dict[str, Any]] = []
        self.kept: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.documents_kept = 0
        self.broken: Failure | None = None
        """Why nothing can be kept."""
        self.failure: Failure | None = None
        """Why a flush fails, if that is not known before."""
        self.slow = False
        self.waiting: list[Kept] = []
        self.unanswered: list[CutShort] = []
        self._numbers = itertools.count(1)
        self._heard = trio.lowlevel.ParkingLot()

    def record(self, event: str, **fields: Any) -> None:
        ended = fields.pop("in_place_of", None)
        if ended is not None:
            self.keep(ended[0], ended[1], None)
        present = {name: value for name, value in fields.items() if value is not None}
        entry = json.loads(msgspec.json.encode({"event": event, **present}))
        assert lint(entry) == []
        self.entries.append({"seq": next(self._numbers), **entry})
        self._heard.unpark_all()

    def overhear(self, listener: Overhear | None) -> None:
        assert listener is None, "no hook observes in these tests"

    def keep(self, kind: str, name: str, document: bytes | None, revision: int = 0) -> None:
        self.documents_kept += 1
        if document is None:
            self.kept.pop((kind, name), None)
        else:
            self.kept[kind, name] = (revision, document)
        self._heard.unpark_all()

    def span_began(self, key: DocumentKey, document: Unended) -> None:
        if isinstance(document, Span):
            document = document.in_flight()
        body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        self.keep(*key, body)

    def span_ended(self, span: Span) -> bool:
        return False

    def flush(self, done: Kept) -> None:
        if self.slow:
            self.waiting.append(done)
            self._heard.unpark_all()
        else:
            done(self.broken or self.failure)

    def catch_up(self, failure: Failure | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(failure)

    def unavailable(self) -> Failure | None:
        return self.broken

    # What the next daemon finds.

    def again(self) -> Self:
        """Return it as the next daemon finds it."""
        kinds = {kind for kind, _ in self.kept}
        self.restored = Restored(
            {kind: self.documents(kind) for kind in kinds}, self.patches, [*self.unanswered]
        )
        return self

    def documents(self, kind: str) -> list[tuple[str, bytes]]:
        return [(name, body) for (of, name), (_, body) in self.kept.items() if of == kind]

    @property
    def patches(self) -> list[tuple[str, int, bytes]]:
        found = []
        for entry in self.of("session:patch"):
            session_id, revision = entry["session_id"], entry["data"]["revision"]
            document = self.kept.get(("session", session_id))
            if document is not None and revision > document[0]:
                event = msgspec.json.encode({"ts": float(entry["seq"]), **entry})
                found.append((session_id, revision, event))
        return found

    # What tests look at.

    def of(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["event"] == event]

    def assets(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(body) for _, body in self.documents("asset")]

    async def until(self, condition: Callable[[], T]) -> T:
        while not (found := condition()):
            await self._heard.park()
        return found
