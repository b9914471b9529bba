"""What a client of `events` is sent, from a journal of any shape."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.events import Log, Progress
from protocol.journal_event import REGISTRY
from supervisor.kernel import event_feed
from supervisor.kernel import event_feed as reader
from supervisor.kernel.event_feed import EventFeed, entry_text
from supervisor.kernel.journal import Journal
from supervisor.kernel.kernel import RefusedError
from supervisor.runtime.threads import Threads
from tests.kernel.memory import flushed, journal


class Sent:
    """A client."""

    def __init__(self) -> None:
        self.events: list[Log] = []
        self._came = trio.lowlevel.ParkingLot()

    async def emit(self, event: Progress | None) -> None:
        assert isinstance(event, Log)
        self.events.append(event)
        self._came.unpark_all()

    async def until(self, count: int) -> None:
        while len(self.seqs) < count:
            await self._came.park()

    @property
    def seqs(self) -> list[int]:
        return self.each("seq")

    def each(self, name: str) -> list[Any]:
        fields = [one.fields for one in self.events if isinstance(one.fields, dict)]
        return [one[name] for one in fields if name in one]


async def sent(kept: Journal, **args: Any) -> Sent:
    client = Sent()
    with contextlib.closing(EventFeed(kept, Threads())) as feed:
        await feed.send({"last": 50, **args}, client.emit, None)
    return client


@asynccontextmanager
async def following(kept: Journal, since: int) -> AsyncIterator[Sent]:
    """Have a client follow until the block ends."""
    client = Sent()
    with contextlib.closing(EventFeed(kept, Threads())) as feed:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.send, {"since": since, "follow": True}, client.emit, None)
            yield client
            nursery.cancel_scope.cancel()


def note(kept: Journal, count: int = 1, event: str = "daemon:stop") -> None:
    for _ in range(count):
        kept.record(event, data={"cause": "a test", "version": "0", "pid": 1})


@pytest.mark.parametrize("span", [1, 7, 1000])
async def test_the_last_entries_are_found_however_far_they_lie_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: int
) -> None:
    monkeypatch.setattr(reader, "PAGE_SPAN", span)
    async with journal(tmp_path) as kept:
        for _ in range(5):
            note(kept, 9)
            note(kept, 1, "daemon:start")
        assert await flushed(kept) is None
        assert (await sent(kept, last=3)).seqs == [48, 49, 50]
        assert (await sent(kept, last=3, event="daemon:start")).seqs == [30, 40, 50]
        assert (await sent(kept, last=9, event="daemon:start")).seqs == [10, 20, 30, 40, 50]
        assert (await sent(kept, last=9, event="mount:*")).seqs == []
        assert (await sent(kept, last=0)).seqs == []
        assert (await sent(kept, since=47)).seqs == [48, 49, 50]


async def test_who_follows_gets_each_entry_once_as_it_is_committed(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept, following(kept, 1) as client:
        for _ in range(51):
            note(kept, 2)
            assert await flushed(kept) is None
        await client.until(101)
        assert client.seqs == list(range(2, 103))


async def test_who_follows_is_told_of_a_new_journal_and_goes_on_in_it(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept, following(kept, 0) as client:
        note(kept, 3)
        await client.until(3)
        kept.suspect()
        note(kept, 3)
        await client.until(6)
        assert client.seqs == [1, 2, 3, 4, 5, 6]
        named = client.each("journal")
        assert named[-1] == kept.state.journal
        assert len(set(named)) == 2


class Slow(Sent):
    """A client with room for a few events at a time."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = self._most = room
        self.waiting_for: list[Progress | None] = []

    async def emit(self, event: Progress | None) -> None:
        if self.room == 0:
            self.waiting_for.append(event)
            await trio.lowlevel.checkpoint()
            self.room = self._most
        if event is not None:
            self.room -= 1
            await super().emit(event)


async def test_a_client_that_does_not_read_has_nothing_of_a_page_waiting_for_it(
    tmp_path: Path,
) -> None:
    client = Slow(3)
    async with journal(tmp_path) as kept:
        note(kept, 20)
        assert await flushed(kept) is None
        feed = EventFeed(kept, Threads())
        await feed.send({"since": 0, "last": 0}, client.emit, None)
        feed.close()
    assert client.seqs == list(range(1, 21))
    # What did not fit was let go of at once; it is the room that was waited for.
    assert client.waiting_for[1::2] == [None] * (len(client.waiting_for) // 2)
    assert len(client.waiting_for) > 10


async def test_what_was_removed_is_said_to_be_gone(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        note(kept, 9)
        assert await flushed(kept) is None
        change(kept.path, "DELETE FROM events WHERE seq < 5")
        client = await sent(kept, since=2)
        assert client.seqs == [5, 6, 7, 8, 9]
        assert client.events[0].level == "warn"
        assert "entries up to 4 were removed" in client.events[0].message


def change(path: Path, words: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(words)
        connection.commit()


async def test_an_entry_that_is_no_json_is_named_and_the_others_follow(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        note(kept, 3)
        assert await flushed(kept) is None
        change(kept.path, "UPDATE events SET body = x'7bff' WHERE seq = 2")
        client = await sent(kept, since=0)
        assert client.seqs == [1, 3]
        assert [one.message for one in client.events if one.level == "warn"] == [
            "the entry 2 cannot be read"
        ]
        change(kept.path, "DELETE FROM events WHERE seq = 2")
        change(kept.path, "UPDATE events SET seq = 2 WHERE seq = 3")


async def test_a_file_that_cannot_be_read_as_a_journal_is_refused_and_set_aside(
    tmp_path: Path,
) -> None:
    async with journal(tmp_path) as kept:
        note(kept)
        assert await flushed(kept) is None
        before = kept.state.journal
        change(kept.path, "DROP TABLE events")
        with pytest.raises(RefusedError, match="the journal cannot be read"):
            await sent(kept, since=0)
        while kept.state.journal == before:
            await kept._commits.park()
        assert (await sent(kept, since=0)).seqs == []


@pytest.mark.fault(36)
async def test_what_took_the_place_of_the_file_is_refused_and_not_waited_for(
    tmp_path: Path,
) -> None:
    async with journal(tmp_path) as kept:
        note(kept)
        assert await flushed(kept) is None
        kept.path.rename(tmp_path / "aside")
        os.mkfifo(kept.path)
        with pytest.raises(RefusedError, match="cannot be read: it is not a file"):
            await sent(kept, since=0)


@pytest.mark.fault(36)
async def test_a_disk_that_does_not_answer_holds_up_no_reader_for_long_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "PAGE_S", 0.01)
    monkeypatch.setattr(event_feed, "ABANDON_AFTER_S", 0.01)
    answers = threading.Event()
    first_seq = reader.Reader.first_seq

    def stuck(self: reader.Reader) -> int | None:
        answers.wait()
        return first_seq(self)

    async with journal(tmp_path) as kept:
        note(kept)
        assert await flushed(kept) is None
        client, threads = Sent(), Threads()
        try:
            with contextlib.closing(EventFeed(kept, threads)) as feed:
                monkeypatch.setattr(reader.Reader, "first_seq", stuck)
                for _ in range(3):  # who comes later does not wait again
                    with pytest.raises(RefusedError, match="not read within"):
                        await feed.send({"since": 0}, client.emit, None)
                monkeypatch.undo()
                answers.set()
                while feed._at_work:
                    await trio.lowlevel.checkpoint()
                await feed.send({"since": 0}, client.emit, None)
        finally:
            answers.set()
        assert len(client.seqs) == 1


@pytest.mark.parametrize("pattern", ["module:invok", "Module:*"])
async def test_a_pattern_that_fits_nothing_is_refused_with_the_names_there_are(
    tmp_path: Path, pattern: str
) -> None:
    async with journal(tmp_path) as kept:
        with pytest.raises(RefusedError, match=", ".join(REGISTRY)):
            await sent(kept, event=pattern)


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"event": "daemon:stop", "data": {"cause": "SIGTERM"}}, "daemon:stop cause=SIGTERM"),
        (
            {
                "event": "module:invoke",
                "module": "dice",
                "status": "error",
                "duration_ms": 5,
                "data": {"op": "roll"},
                "error": {"code": "timeout", "message": "late", "details": {"reason": "deadline"}},
                "session_id": "s1",
            },
            "module:invoke dice.roll error 5ms timeout/deadline: late session=s1",
        ),
        (
            {
                "event": "module:state",
                "module": "dice",
                "data": {"from": "ready", "to": "down", "cause": "it exited"},
            },
            "module:state dice ready -> down: it exited",
        ),
        (
            {
                "event": "mount:quarantine",
                "data": {"path": "/m/a.json"},
                "error": {"code": "bad_request", "message": "is no object"},
            },
            "mount:quarantine path=/m/a.json bad_request: is no object",
        ),
    ],
)
def test_an_entry_is_one_line_for_people(document: dict[str, Any], line: str) -> None:
    assert entry_text(document) == line
