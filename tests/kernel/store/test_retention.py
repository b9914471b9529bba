from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.kernel.store import retention
from supervisor.kernel.store.database import Database, open_database
from supervisor.kernel.store.retention import DAY_S, STEP_ROWS, Retention
from supervisor.kernel.store.rows import EventRow, insert_entries
from supervisor.kernel.store.settings import JournalLimits

NOW = 1_763_669_622.0
BODY = b'{"data":"%s"}' % (b"x" * 300)


class Clock:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 1000.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def retention(self, **limits: float) -> Retention:
        limited = JournalLimits(**limits)  # type: ignore[arg-type]
        return Retention(limited, lambda: self.wall, lambda: self.steady)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = open_database(tmp_path / "store.db", power=False, now=NOW)
    yield found
    found.close()


def fill(database: Database, count: int, ts: float = NOW, **fields: Any) -> None:
    entry = EventRow(ts, "module:invoke", None, None, None, BODY)
    entry = msgspec.structs.replace(entry, **fields)
    insert_entries(database.connection, [entry] * count, database.last_seq)
    database.last_seq += count


def tend(kept: Retention, database: Database) -> int:
    """Do all there is to do; returns in how many steps."""
    kept.begin()
    steps = 0
    while kept.step(database):
        steps += 1
    return steps


def seqs(database: Database) -> list[int]:
    return [seq for (seq,) in database.connection.execute("SELECT seq FROM events ORDER BY seq")]


def test_what_is_too_old_goes_and_the_rest_stays(database: Database, clock: Clock) -> None:
    kept = clock.retention(days=30)
    fill(database, 10, NOW - 31 * DAY_S)
    fill(database, 5, NOW - 29 * DAY_S)
    tend(kept, database)
    assert seqs(database) == [11, 12, 13, 14, 15]
    assert database.events == 5
    clock.passes(2 * DAY_S)
    tend(kept, database)
    assert seqs(database) == [15]  # the newest stays, since the numbers go on from there
    assert database.events == 1


def test_what_is_too_much_goes_oldest_first_in_bounded_steps(
    database: Database, clock: Clock
) -> None:
    limit = 4 << 20
    kept = clock.retention(size_bytes=limit)
    fill(database, 40_000)
    steps = tend(kept, database)
    assert steps >= 25_000 / STEP_ROWS
    left = seqs(database)
    assert left == list(range(left[0], 40_001))
    assert database.events == len(left)
    assert limit * 0.8 < kept.used_bytes <= limit
    assert tend(kept, database) == 0


def test_the_file_follows_when_the_limit_is_lowered(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FREE_BYTES", 1 << 20)
    fill(database, 40_000)
    tend(clock.retention(), database)
    checkpoint(database)
    before = database.path.stat().st_size
    steps = tend(clock.retention(size_bytes=2 << 20), database)
    assert steps < 20
    checkpoint(database)
    assert database.path.stat().st_size < min(4 << 20, before / 3)


def checkpoint(database: Database) -> None:
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def test_a_file_at_its_limit_does_not_grow(database: Database, clock: Clock) -> None:
    kept = clock.retention(size_bytes=2 << 20)
    for _ in range(40):
        fill(database, 2000)
        tend(kept, database)
    checkpoint(database)
    assert database.path.stat().st_size < 4 << 20
    assert seqs(database)[-1] == 80_000


def test_patches_that_a_session_needs_stay(database: Database, clock: Clock) -> None:
    kept = clock.retention(days=1, size_bytes=1 << 20)
    old = NOW - 2 * DAY_S
    database.connection.execute("INSERT INTO documents VALUES ('session', 'a', 2, x'00')")
    for session in ("a", "gone"):
        for revision in range(1, 5):
            fill(database, 1, old, event="session:patch", session_id=session, revision=revision)
    fill(database, 2 * STEP_ROWS, old)
    fill(database, 1)
    tend(kept, database)
    assert seqs(database)[:2] == [3, 4]
    assert len(seqs(database)) == database.events == 3
    database.connection.execute("UPDATE documents SET revision = 4")
    tend(kept, database)
    assert len(seqs(database)) == 1


def test_more_patches_than_a_step_looks_at_do_not_keep_what_comes_after(
    database: Database, clock: Clock
) -> None:
    kept = clock.retention(size_bytes=4 << 20)
    database.connection.execute("INSERT INTO documents VALUES ('session', 'a', 0, x'00')")
    fill(database, STEP_ROWS + 10, event="session:patch", session_id="a", revision=1)
    fill(database, 20_000)
    tend(kept, database)
    assert seqs(database)[: STEP_ROWS + 10] == list(range(1, STEP_ROWS + 11))
    assert kept.used_bytes <= 4 << 20


@pytest.mark.parametrize("jump_s", [400 * DAY_S, -400 * DAY_S, 61.0])
def test_a_clock_that_was_set_makes_nothing_old_for_a_day(
    database: Database, clock: Clock, jump_s: float
) -> None:
    kept = clock.retention(days=30)
    fill(database, 10, NOW - 29.9 * DAY_S)
    fill(database, 1)
    clock.wall += jump_s
    tend(kept, database)
    clock.passes(DAY_S / 2)
    tend(kept, database)
    assert len(seqs(database)) == 11
    clock.passes(DAY_S)
    tend(kept, database)
    assert len(seqs(database)) == (1 if jump_s > 0 else 11)


def test_an_entry_from_the_future_keeps_no_other(database: Database, clock: Clock) -> None:
    kept = clock.retention(days=30)
    fill(database, 1, NOW + 1e9)
    fill(database, 10, NOW - 31 * DAY_S)
    fill(database, 1)
    tend(kept, database)
    assert seqs(database) == [1, 12]


def test_the_count_is_right_after_the_file_was_opened_again(
    database: Database, clock: Clock
) -> None:
    fill(database, 10, NOW - 31 * DAY_S)
    fill(database, 5)
    tend(clock.retention(days=30), database)
    fill(database, 2)
    again = open_database(database.path, power=False, now=NOW)
    assert (again.events, again.last_seq) == (7, 17)
    again.close()
