from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from supervisor.kernel.store import database
from supervisor.kernel.store.database import (
    APPLICATION_ID,
    MIGRATIONS,
    Database,
    open_database,
    set_aside,
)
from supervisor.kernel.store.rows import EventRow, insert_entries

NOW = 1_763_669_622.0
ENTRY = EventRow(NOW, "daemon:stop", None, None, None, b'{"event":"daemon:stop"}')


@contextlib.contextmanager
def opened(path: Path, after_seq: int = 0) -> Iterator[Database]:
    found = open_database(path, power=False, now=NOW, after_seq=after_seq)
    try:
        yield found
    finally:
        found.close()


def fill(path: Path, count: int = 3) -> None:
    with opened(path) as found:
        insert_entries(found.connection, [ENTRY] * count, found.last_seq)


class Statements:
    """A connection that keeps what it is asked to execute."""

    def __init__(self) -> None:
        self.parameters: list[object] = []

    def execute(self, statement: str, parameters: list[object]) -> None:
        assert statement.count("?") == len(parameters)
        self.parameters += parameters


def test_no_parameter_of_an_entry_without_a_session_needs_an_adapter() -> None:
    # Each costs 2,800 instructions: sqlite3 asks None and `bytes` for an adapter that none has.
    invoked = msgspec.structs.replace(ENTRY, module="m")
    connection = Statements()
    insert_entries(connection, [invoked] * 300, 0)  # type: ignore[arg-type]
    exact = {type(one) for one in connection.parameters}
    assert exact == {int, float, str, bytearray}


def test_entries_with_and_without_a_session_are_written_together(tmp_path: Path) -> None:
    patch = EventRow(NOW, "session:patch", "m", "s1", 2, b"{}")
    with opened(tmp_path / "store.db") as found:
        insert_entries(found.connection, [ENTRY, patch, ENTRY], 0)
        rows = found.connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
    assert rows == [
        (seq, one.ts, one.event, one.module, one.session_id, one.revision, one.body)
        for seq, one in enumerate((ENTRY, patch, ENTRY), 1)
    ]


def test_a_new_journal_is_empty_private_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with opened(path) as found:
        assert (found.last_seq, found.events, found.aside) == (0, 0, None)
        assert found.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert found.connection.execute("PRAGMA synchronous").fetchone() == (1,)  # NORMAL
        assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}


def test_durability_power_syncs_each_commit(tmp_path: Path) -> None:
    found = open_database(tmp_path / "store.db", power=True, now=NOW)
    assert found.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    found.close()


def test_a_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    with opened(path) as first, opened(path) as again:
        assert (again.last_seq, again.events) == (3, 3)
        assert again.journal == first.journal
        assert len(first.journal) == 32


def test_a_journal_that_nothing_is_known_of_is_not_taken_for_one_that_was_set_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as new:
        assert (new.last_seq, new.set_back) == (0, None)
    fill(path)
    assert not path.with_name("store.db-last").exists()  # as an older stdiod leaves it
    with opened(path) as old:
        assert (old.last_seq, old.set_back) == (3, None)
        old.note_last()
    with opened(path) as known:
        assert (known.journal, known.set_back) == (old.journal, None)


def test_numbers_go_on_if_a_daemon_was_killed_after_it_set_the_file_aside(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    with opened(path) as found:
        found.note_last()
    set_aside(path, NOW)
    with opened(path) as found:
        assert (found.last_seq, found.events) == (3, 0)
    with opened(path) as again:  # before an entry was written
        assert (again.last_seq, again.set_back) == (3, None)


def foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name)")


def newer(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


def headless(path: Path) -> None:
    fill(path)
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(len(data) - 100))


def without_a_table(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE documents")


def without_facts(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM facts")
        connection.commit()


def with_an_endless_number(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE events SET seq = 9223372036854775807 WHERE seq = 3")
        connection.commit()


def with_a_schema_that_is_no_text(path: Path) -> None:
    fill(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"session_id IS NOT NULL", b"session_i\xcd IS NOT NULL"))


def with_an_unknown_format(path: Path) -> None:
    fill(path)
    content = bytearray(path.read_bytes())
    content[18] = 3
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.write_bytes(b"a shopping list\n" * 100), "it is not an SQLite database"),
        (lambda path: path.write_bytes(b"S"), "it is not an SQLite database"),
        (foreign, "it is the database of another program"),
        (newer, f"a newer stdiod wrote it: its schema is {len(MIGRATIONS) + 1}"),
        (headless, "malformed"),
        (without_a_table, "no such table"),
        (without_facts, "facts"),
        (with_an_endless_number, "such numbers"),
        (with_a_schema_that_is_no_text, "malformed"),
        (with_an_unknown_format, "header"),
    ],
    ids=[
        "text",
        "short",
        "foreign",
        "newer",
        "damaged",
        "table gone",
        "facts gone",
        "number",
        "schema",
        "format",
    ],
)
def test_what_is_no_journal_of_ours_is_set_aside_as_it_is_and_a_new_one_begun(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    path = tmp_path / "store.db"
    make(path)
    before = path.read_bytes()
    with opened(path, after_seq=7) as found:
        assert found.aside is not None
        assert why in found.aside.why
        aside = Path(found.aside.path)
        assert aside.name == "store.db.set-aside-20251120T201342Z"
        assert aside.read_bytes() == before
        assert (found.last_seq, found.events) == (7, 0)
        insert_entries(found.connection, [ENTRY], found.last_seq)
    with opened(path) as again:
        assert (again.last_seq, again.events, again.aside) == (8, 1, None)


def test_nothing_that_was_set_aside_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for number in range(3):
        path.write_bytes(b"not SQLite %d" % number)
        with opened(path):
            pass
    kept = sorted(one for one in tmp_path.iterdir() if "set-aside" in one.name)
    assert [one.read_bytes()[-1:] for one in kept] == [b"0", b"1", b"2"]


def test_the_write_ahead_log_is_set_aside_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not SQLite")
    path.with_name("store.db-wal").write_bytes(b"its log")
    with opened(path) as found:
        assert found.aside is not None
        assert Path(found.aside.path + "-wal").read_bytes() == b"its log"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_left_alone_and_is_a_fault_of_the_place(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "store.db"
    make(path)
    with pytest.raises(OSError, match="it is not a file"), opened(path):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["store.db"]


def test_a_folder_that_is_not_there_is_a_fault_of_the_place(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), opened(tmp_path / "gone" / "store.db"):
        pass


def test_an_older_journal_is_migrated_with_all_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    fill(path)
    later = (*MIGRATIONS, ("ALTER TABLE documents ADD COLUMN note TEXT",))
    monkeypatch.setattr(database, "MIGRATIONS", later)
    with opened(path) as found:
        assert (found.last_seq, found.aside) == (3, None)
        assert found.connection.execute("SELECT note FROM documents").fetchall() == []
        assert found.connection.execute("PRAGMA user_version").fetchone() == (len(later),)
        assert found.connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_a_migration_is_done_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    fill(path)
    halfway = ("ALTER TABLE documents ADD COLUMN note TEXT", "SELECT * FROM nowhere")
    with monkeypatch.context() as patched:
        patched.setattr(database, "MIGRATIONS", (*MIGRATIONS, halfway))
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            database._open(path, power=False, now=NOW, life="", after_seq=0)
    with opened(path) as found:
        assert (found.last_seq, found.aside) == (3, None)
        with pytest.raises(sqlite3.OperationalError, match="note"):
            found.connection.execute("SELECT note FROM documents")


def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with opened(path) as found:
        assert found.is_in_place()
        path.rename(tmp_path / "elsewhere")
        assert not found.is_in_place()
        path.touch()
        assert not found.is_in_place()
