"""The journal, with its real thread and file: what is written is there, whatever goes wrong."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.errors import Code, Failure, Reason
from supervisor.kernel.event_feed import Filter, Reader
from supervisor.kernel.journal import FILE, Journal, remembering
from supervisor.kernel.kernel import JournalOptions, Times
from supervisor.kernel.store import database as database_module
from supervisor.kernel.store import writer as writer_module
from supervisor.kernel.store.rows import (
    CHUNKS,
    ENTRY_BYTES,
    Batch,
    insert_entries,
    store_documents,
)
from supervisor.kernel.store.settings import IN_FLIGHT, OPEN_QUESTION, InFlight, OpenQuestion, Span
from supervisor.kernel.store.writer import QUEUE_BYTES, Writer
from supervisor.runtime.threads import Threads
from tests import journals
from tests.bounds import WAIT_S
from tests.kernel.conftest import daemon_with, own
from tests.kernel.memory import Disk, flushed, journal, until
from tests.principals import ADA

LONG = "x" * 4000


def note(kept: Journal, number: int = 0, text: str = "a test") -> None:
    kept.record("daemon:stop", data={"cause": text, "number": number})


def end(kept: Journal, span_id: str) -> None:
    now = kept.wall_clock()
    span = Span(
        key=(IN_FLIGHT, span_id), began=now, module="m", op="go", request_id="r1", by=ADA.by
    )
    span.ended, span.duration_ms = now, 3
    kept.span_ended(span)


async def until_true(holds: Callable[[], bool]) -> None:
    with trio.fail_after(WAIT_S):
        while not holds():
            await trio.lowlevel.checkpoint()


def numbers(path: Path) -> list[int]:
    return [document["data"]["number"] for document in journals.of(path, "daemon:stop")]


@pytest.mark.parametrize("count", [0, 1, sum(CHUNKS) + 3])
async def test_what_was_recorded_is_there_in_its_order_with_numbers_without_gaps(
    tmp_path: Path, count: int
) -> None:
    async with journal(tmp_path) as kept:
        for number in range(count):
            note(kept, number)
        assert await flushed(kept) is None
        assert (kept.state.last_seq, kept.state.events) == (count, count)
    assert [seq for seq, _ in journals.read(kept.path)] == list(range(1, count + 1))
    assert numbers(kept.path) == list(range(count))


async def test_what_a_flush_has_answered_can_be_read_while_the_daemon_runs(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        note(kept)
        assert await flushed(kept) is None
        with contextlib.closing(sqlite3.connect(kept.path)) as other:
            assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)


@pytest.mark.fault(36)
async def test_a_disk_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, now = threading.Event(), 0.0

    def insert_late(*args: Any) -> None:
        answers.wait(WAIT_S)
        insert_entries(*args)

    monkeypatch.setattr(writer_module, "insert_entries", insert_late)
    threads = Threads(lambda: now)
    async with remembering(tmp_path, JournalOptions(), threads=threads) as kept:
        note(kept)
        await until_true(lambda: bool(threads._at_work))
        now = 100.0
        assert [one.doing for one in threads.stuck()] == ["writing the journal"]
        answers.set()
        assert await flushed(kept) is None
        await until_true(lambda: not threads.stuck())


async def test_the_next_daemon_goes_on_with_the_next_number(tmp_path: Path) -> None:
    lives = set()
    for _ in range(3):
        async with journal(tmp_path) as kept:
            note(kept)
            lives.add(kept.life)
    assert [seq for seq, _ in journals.read(tmp_path / FILE)] == [1, 2, 3]
    assert len(lives) == 3


async def test_an_entry_is_written_soon_without_anybody_who_waits_for_it(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        note(kept)
        await kept.wait_beyond(0)
        assert kept.state.last_seq == 1


async def test_what_cannot_be_encoded_is_marked_and_kept(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    async with journal(tmp_path) as kept:
        kept.record("mount:remove", module="m\udcff", data={"path": "/\udcff", "module": deep})
        assert await flushed(kept) is None
    ((_, document),) = journals.read(kept.path)
    assert (document["module"], document["data"]["path"]) == ("m?", "/?")


def content(aside: dict[str, str]) -> bytes:
    return Path(aside["path"]).read_bytes()


def remove(folder: Path) -> None:
    for one in folder.glob("journal.db*"):
        one.unlink()


# Documents.


def documents(kept: Journal, kind: str) -> dict[str, bytes]:
    return dict(kept.restored.kinds.get(kind, []))


async def test_of_each_document_the_newest_form_is_found_again(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        for revision in range(5):
            kept.keep("session", "a", b"%d" % revision, revision)
        kept.keep("session", "b", b"gone")
        assert await flushed(kept) is None
        kept.keep("session", "b", None)
        kept.keep("asset", "a", b"another kind")
    async with journal(tmp_path) as kept:
        assert documents(kept, "session") == {"a": b"4"}
        assert documents(kept, "asset") == {"a": b"another kind"}
        assert documents(kept, "nothing") == {}


async def test_patches_newer_than_their_sessions_document_are_found_again(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        for session in ("a", "b", "no document"):
            for revision in range(1, 5):
                data = {"revision": revision, "patch": {"n": revision}}
                kept.record("session:patch", session_id=session, data=data)
        kept.keep("session", "b", b"{}", 4)
        kept.keep("session", "a", b"{}", 2)
    async with journal(tmp_path) as kept:
        first, second = kept.restored.patches
        assert (first[:2], second[:2]) == (("a", 3), ("a", 4))
        event = msgspec.json.decode(first[2])
        assert event["data"]["patch"] == {"n": 3}


async def test_what_was_in_flight_when_the_daemon_died_is_closed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with journal(tmp_path) as kept:
        now = kept.wall_clock()
        # The second as an older version kept it.
        for span, begun, session, by in (
            ("a-1", now - 5, "s", ADA.by),
            ("a-2", now + 3600, None, None),
        ):
            was = InFlight(begun, "slow", "think", "r7", session, "a-0", by)
            kept.span_began((IN_FLIGHT, span), msgspec.json.encode(was))
        kept.span_began((IN_FLIGHT, "a-3"), b"not JSON")
        kept.span_began((IN_FLIGHT, "a-4"), b"ended in time")
        end(kept, "a-4")
    later: set[str] = set()
    for _ in range(2):  # once, and not again
        async with journal(tmp_path) as kept:
            later |= {kept.new_span() for _ in range(256)}
    first, second, third = journals.of(kept.path, "module:invoke")[1:]
    assert not later & {first["id"], second["id"], third["id"]}, "an id was given twice"
    assert first["span_id"] == "a-1"
    assert (first["module"], first["status"], first["session_id"]) == ("slow", "error", "s")
    assert first["data"] == {"op": "think", "parent_span_id": "a-0"}
    assert first["request_id"] == "r7"
    assert first["duration_ms"] >= 5000
    assert first["error"]["code"] == Reason.DAEMON_RESTART.code
    assert first["error"]["details"] == {"origin": "host", "reason": "daemon_restart"}
    assert first["by"] == {"name": "ada", "face": "test"}
    assert second["duration_ms"] == 0  # the clock was set back
    assert (second["module"], "by" in second) == ("slow", False)
    assert third["span_id"] == "a-3"


async def test_what_is_open_has_a_row_once_two_groups_saw_it_or_somebody_waits(
    tmp_path: Path,
) -> None:
    async with journal(tmp_path) as kept:
        writer = Writer(kept, JournalOptions(), Threads(), 0.0)  # its thread is this test
        unended: dict[tuple[str, str], Any] = {}
        writer._unended = unended

        def group(ticket: int = 0) -> set[str]:
            writer._batch = Batch(ticket=ticket)
            writer._take()
            writer._stored_unended = set(writer._batch.unended)
            return {name for _, name in writer._batch.unended}

        unended[IN_FLIGHT, "short"] = unended[IN_FLIGHT, "long"] = b"{}"
        assert group() == set()
        del unended[IN_FLIGHT, "short"]
        assert group() == {"long"}
        unended[IN_FLIGHT, "waited for"] = b"{}"
        assert group(ticket=1) == {"long", "waited for"}
        unended.clear()
        assert group() == set()


async def test_a_question_that_was_open_when_the_daemon_died_is_denied_by_the_next_one(
    tmp_path: Path,
) -> None:
    async with journal(tmp_path) as kept:
        was = OpenQuestion("ap-1", "m", "r7", "s", "a-0", ADA.by)
        kept.span_began((OPEN_QUESTION, "a-1"), msgspec.json.encode(was))
        kept.span_began((OPEN_QUESTION, "a-2"), b"not JSON")
        kept.span_began((OPEN_QUESTION, "a-3"), b"decided in time")
        data = {"id": "a-3", "answer": "deny", "by": "timeout"}
        key = (OPEN_QUESTION, "a-3")
        kept.record("approval:decision", status="denied", data=data, in_place_of=key)
    for _ in range(2):  # once, and not again
        async with journal(tmp_path) as kept:
            assert documents(kept, OPEN_QUESTION) == {}
    first, second = journals.of(kept.path, "approval:decision")[1:]
    assert (first["status"], first["module"], first["session_id"]) == ("denied", "m", "s")
    assert first["data"] == {"id": "ap-1", "answer": "deny", "by": "daemon_restart"}
    assert (first["request_id"], first["span_id"]) == ("r7", "a-0")
    assert first["by"] == {"name": "ada", "face": "test"}
    assert second["data"]["by"] == "daemon_restart"


async def test_an_open_question_outlives_a_restart_of_the_journals_file_and_not_its_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journal(tmp_path) as kept:
        keys = [(OPEN_QUESTION, f"{kept.life}-{number}") for number in (1, 2)]
        for key in keys:
            kept.span_began(key, OpenQuestion("ap-1", "m", "r7"))
        data = {"id": "ap-1", "answer": "deny", "by": "timeout"}
        kept.record("approval:decision", status="denied", data=data, in_place_of=keys[0])
        assert await flushed(kept) is None
        disk.connections[-1].connection.execute("DROP TABLE events")
        note(kept)
        await kept.wait_beyond(1)
        assert await flushed(kept) is None
    async with journal(tmp_path):
        pass
    (decision,) = journals.of(kept.path, "approval:decision")
    assert decision["data"]["by"] == "daemon_restart"


async def test_an_invocation_is_at_any_moment_in_flight_or_has_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two commits, the daemon would else have lost every trace of it."""
    groups: list[tuple[int, int]] = []

    def spy(connection: Any, documents: Any) -> None:
        ended = sum(1 for _, body in documents.values() if body is None)
        (entries,) = connection.execute("SELECT count(*) FROM events").fetchone()
        groups.append((entries, ended))
        store_documents(connection, documents)

    monkeypatch.setattr(writer_module, "store_documents", spy)
    async with journal(tmp_path) as kept:
        for number in range(20):
            key = (IN_FLIGHT, f"{kept.life}-f{number}")
            kept.span_began(key, b"{}")
            assert await flushed(kept) is None
            kept.record(
                "module:invoke",
                module="m",
                status="ok",
                duration_ms=1,
                data={"op": "go"},
                request_id=f"r{number}",
                span_id=key[1],
                in_place_of=key,
            )
            assert await flushed(kept) is None
    before = 0
    for entries, ended in groups:  # what is there when a group is about to be committed
        assert entries - before == ended
        before = entries
    assert before == 20


async def test_who_writes_is_woken_only_when_he_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wake-up for each invocation cost as much as the rest of a small one."""
    monkeypatch.setattr(writer_module, "GROUP_S", WAIT_S)  # it collects until somebody waits
    async with journal(tmp_path) as kept:
        note(kept)
        with trio.fail_after(WAIT_S):
            while kept._writer.asleep:
                await trio.lowlevel.checkpoint()
        wakes: list[None] = []
        notify = kept._writer._changed.notify
        monkeypatch.setattr(kept._writer._changed, "notify", lambda: wakes.append(notify()))
        for number in range(100):
            span = f"{kept.life}-f{number}"
            kept.span_began((IN_FLIGHT, span), b"{}")
            end(kept, span)
        assert not wakes
        assert await flushed(kept) is None
        assert (len(wakes), kept.state.last_seq) == (1, 101)


# A disk that does not serve.


@asynccontextmanager
async def full(tmp_path: Path, disk: Disk) -> AsyncIterator[Journal]:
    """Keep a journal on a disk that is full from the second entry on."""
    async with journal(tmp_path) as kept:
        note(kept, 0)
        assert await flushed(kept) is None
        disk.fill()
        note(kept, 1, LONG)
        failure = await flushed(kept)
        assert failure is not None
        assert (failure.code, failure.details) == (
            Code.INTERNAL,
            {"origin": "host", "reason": "storage"},
        )
        assert "database or disk is full" in failure.message
        assert str(kept.path) in failure.message
        yield kept


async def test_a_full_disk_is_said_and_what_waits_is_written_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with full(tmp_path, disk) as kept:
        assert isinstance(kept.unavailable(), Failure)
        assert await flushed(kept) == kept.unavailable()
        note(kept, 2)
        kept.keep("session", "a", b"{}")
        disk.clear()
        await until(kept, well=True)
        assert await flushed(kept) is None
        assert kept.unavailable() is None
        assert kept.dropped == 0
    assert numbers(kept.path) == [0, 1, 2]
    async with journal(tmp_path) as kept:
        assert documents(kept, "session") == {"a": b"{}"}


async def test_what_comes_and_goes_while_the_disk_is_full_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journal(tmp_path) as kept:
        kept.keep("session", "stored", b"{}")
    async with full(tmp_path, disk) as kept:
        for number in range(1000):
            kept.span_began((IN_FLIGHT, f"{kept.life}-{number}"), b"{}")
            end(kept, f"{kept.life}-{number}")
        kept.keep("session", "stored", None)
        writer = kept._writer
        assert set(writer._pending.documents) | set(writer._batch.documents) == {
            ("session", "stored")
        }
        disk.clear()
        await until(kept, well=True)
    async with journal(tmp_path) as kept:
        assert documents(kept, "session") == {}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE documents SET body = 12345678901 WHERE name = 'a'",
        "UPDATE documents SET body = 'text' WHERE name = 'a'",
        "UPDATE documents SET name = CAST(x'ff80' AS TEXT) WHERE name = 'a'",
        "UPDATE documents SET body = CAST(x'7b22ff' AS TEXT) WHERE name = 'a'",
        "UPDATE events SET ts = 'yesterday' WHERE seq = 2",
        "UPDATE events SET session_id = CAST(x'ff' AS TEXT) WHERE seq = 2",
        "UPDATE events SET event = CAST(x'ff' AS TEXT) WHERE seq = 3",
        "UPDATE events SET body = 5 WHERE seq = 2",
    ],
)
async def test_a_value_that_damage_has_changed_costs_nothing_else(
    tmp_path: Path, damage: str
) -> None:
    async with journal(tmp_path) as kept:
        note(kept, 1)
        note(kept, 2)
        note(kept, 3)
        kept.keep("session", "a", b"{}")
        kept.keep("session", "b", b"{}")
    with contextlib.closing(sqlite3.connect(kept.path)) as connection:
        connection.execute(damage)
        connection.commit()
    async with journal(tmp_path) as kept:
        note(kept, 4)
        assert await flushed(kept) is None
        assert kept.state.asides == ()
        assert documents(kept, "session")["b"] == b"{}"
        with contextlib.closing(Reader(kept.path)) as reader:
            page = reader.page(Filter(), 0, 4)
        assert [seq for seq, _ in page.entries] == [1, 2, 3, 4]
    remove(tmp_path)


async def test_more_than_can_wait_is_counted_and_said_in_its_place_and_documents_are_kept_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with full(tmp_path, disk) as kept:
        asked: list[str] = []
        kept.on_loss.append(lambda: asked.append("again"))
        added = 0
        while kept.dropped == 0:
            added += 1
            note(kept, added + 1, LONG)
        assert added * len(LONG) > QUEUE_BYTES * 0.9
        for _ in range(9):
            note(kept)
        assert asked == []
        disk.clear()
        await until(kept, well=True)
        assert asked == ["again"]
        assert await flushed(kept) is None
        note(kept, -1)
    assert numbers(kept.path) == [*range(added + 1), -1]
    (dropped,) = journals.of(kept.path, "journal:dropped")
    assert dropped["data"] == {"count": 10}
    assert kept.dropped == 10


async def test_a_place_that_does_not_serve_leaves_a_daemon_without_memory_until_it_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    path.mkdir()
    async with journal(tmp_path) as kept:
        assert kept.problem == f"{path}: it is not a file"
        assert await flushed(kept) == kept.unavailable()
        note(kept, 1)
        path.rmdir()
        await until(kept, well=True)
        assert await flushed(kept) is None
    assert numbers(path) == [1]


async def test_the_end_does_not_wait_for_a_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with full(tmp_path, Disk(monkeypatch)) as kept:
        pass
    assert await flushed(kept) is not None
    assert numbers(kept.path) == [0]


async def test_a_disk_that_does_not_answer_holds_an_answer_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that on a busy machine, too, SQLite does not give up before we do.
    monkeypatch.setattr(database_module, "BUSY_S", 60.0)
    options: dict[str, Any] = {"memory": JournalOptions(), "times": Times(flush_s=0.05)}
    async with daemon_with(tmp_path, **options) as daemon:
        kept = daemon.facts.journal
        assert kept is not None
        await kept.wait_beyond(0)
        with contextlib.closing(sqlite3.connect(kept.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # as good as a disk that hangs
            late = "the disk took longer than 0.05 s to store what changed"
            said = await own(daemon, ADA, "session.new", session_id="a")
            assert said == f"it is done, but could not be stored: {late}"
            said = await own(daemon, ADA, "session.new", session_id="b")
            why = f"{kept.path}: the disk did not answer in 0.05 s"
            assert said == f"the daemon cannot store anything now: {why}"
            other.execute("ROLLBACK")
        await until(kept, well=True)
        assert (await own(daemon, ADA, "session.show", session_id="a"))["revision"] == 0


# A file that is not what it was.


async def test_a_file_that_turns_out_damaged_is_set_aside_and_the_numbers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journal(tmp_path) as kept:
        asked: list[str] = []
        kept.on_loss.append(lambda: asked.append("again"))
        kept.span_began((IN_FLIGHT, f"{kept.life}-99"), b"{}")
        note(kept, 0)
        assert await flushed(kept) is None
        disk.connections[-1].connection.execute("DROP TABLE events")
        note(kept, 1)
        await kept.wait_beyond(1)
        assert kept.problem is None
        assert asked == ["again"]
        (aside,) = kept.status()["set_aside"]
        assert "no such table" in aside["why"]
        assert content(aside)
        assert await flushed(kept) is None
    assert [seq for seq, _ in journals.read(kept.path)] == [2]
    assert numbers(kept.path) == [1]
    async with journal(tmp_path):  # what was in flight had been kept anew
        pass
    assert len(journals.of(kept.path, "module:invoke")) == 1


async def test_a_file_that_a_reader_finds_damaged_is_set_aside(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        note(kept, 0)
        assert await flushed(kept) is None
        before = kept.state.journal
        kept.suspect()
        while kept.state.journal == before:
            await kept._commits.park()
        assert len(kept.status()["set_aside"]) == 1


async def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    async with journal(tmp_path) as kept:
        note(kept, 0)
        assert await flushed(kept) is None
        remove(tmp_path)
        note(kept, 1)
        await kept.wait_beyond(1)
    assert [seq for seq, _ in journals.read(kept.path)] == [2]


async def test_garbage_at_the_start_is_set_aside_and_the_daemon_has_a_journal(
    tmp_path: Path,
) -> None:
    tmp_path.joinpath("journal.db").write_bytes(b"garbage" * 1000)
    async with journal(tmp_path) as kept:
        (aside,) = kept.status()["set_aside"]
        assert content(aside) == b"garbage" * 1000
        note(kept)
        assert await flushed(kept) is None


# Reading.


async def test_pages_are_bounded_and_together_they_are_all_there_is(tmp_path: Path) -> None:
    count = 1000
    async with journal(tmp_path) as kept:
        for number in range(count):
            note(kept, number, LONG if number == 500 else "short")
            kept.record("mount:remove", module="m", data={"path": "p", "module": "m"})
        assert await flushed(kept) is None
        reader = Reader(kept.path)
        for wanted, expected in (
            (Filter(), list(range(1, 2 * count + 1))),
            (Filter(events=("mount:remove", "mount:add")), list(range(2, 2 * count + 1, 2))),
            (Filter(events=("daemon:stop",), module=None), list(range(1, 2 * count, 2))),
            (Filter(module="m", events=("mount:add",)), []),
            (Filter(session_id="none"), []),
        ):
            cursor, found = 0, []
            while cursor < kept.state.last_seq:
                page = reader.page(wanted, cursor, kept.state.last_seq)
                found += [seq for seq, _ in page.entries]
                cursor = page.cursor
            assert found == expected
        reader.close()


def test_the_bound_of_what_waits_is_in_bytes() -> None:
    assert QUEUE_BYTES == 32 << 20
    assert ENTRY_BYTES < 1000
