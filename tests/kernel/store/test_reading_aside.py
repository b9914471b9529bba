"""The way to a damaged journal's entries that `doctor` and the log name."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from supervisor.kernel.store.database import how_to_read, kept_aside, open_database, set_aside
from supervisor.kernel.store.rows import EventRow, insert_entries

NOW = 1_763_669_622.0
COUNT = 500
PAGE = 4096


def damaged(path: Path) -> Path:
    """Make a journal with a page of nonsense in the middle, and set it aside."""
    found = open_database(path, power=False, now=NOW)
    body = b'{"event":"daemon:stop","data":{"cause":"%s"}}' % (b"x" * 300)
    entries = [EventRow(NOW, "daemon:stop", None, None, None, body)] * COUNT
    insert_entries(found.connection, entries, found.last_seq)
    found.close()
    content = bytearray(path.read_bytes())
    at = len(content) // PAGE // 2 * PAGE
    content[at : at + PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    return set_aside(path, NOW)


def test_the_query_that_is_named_shows_the_entries_on_both_sides_of_the_damage(
    tmp_path: Path,
) -> None:
    path = damaged(tmp_path / "journal.db")
    words = how_to_read(str(path))
    assert f"sqlite3 {path} .recover" in words
    query = re.findall(r"'(SELECT .*?)'", words)[0]
    (order,) = re.findall(r"`(ORDER BY .*?)`", words)
    with closing(sqlite3.connect(path)) as connection:
        found = [0, 0]
        for side, sql in enumerate([query, f"{query} {order}"]):
            with suppress(sqlite3.DatabaseError):
                for (text,) in connection.execute(sql):
                    assert text.startswith('{"event":"daemon:stop"')
                    found[side] += 1
    assert min(found) > COUNT / 5
    assert COUNT * 0.9 < sum(found) < COUNT


def test_a_path_that_a_shell_would_take_apart_is_quoted() -> None:
    assert "`sqlite3 '/my data/journal.db' .recover`" in how_to_read("/my data/journal.db")


def test_all_that_was_set_aside_is_found_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    made = []
    for number in range(3):
        path.write_text("no journal")
        for ending in ("-wal", "-shm"):
            path.with_name(f"journal.db{ending}").touch()
        made.append(set_aside(path, NOW + number))
    path.touch()
    assert list(kept_aside(path)) == made
