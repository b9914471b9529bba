"""Read the journals that daemons left, and hold them to what is promised of each one."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from protocol.journal_event import lint
from tests.schemas.local_registry import validator

FILE = "journal.db"


def read(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return what a journal holds that nobody writes any more."""
    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder:
        # A copy: SQLite writes beside what it reads, and where this is may be full.
        for one in path.parent.glob(f"{path.name}*"):
            if not one.name.endswith("-shm"):
                shutil.copy(one, folder)
        with contextlib.closing(sqlite3.connect(Path(folder, path.name))) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                return []  # the disk was full before there was a first entry
            rows = connection.execute("SELECT seq, body FROM events ORDER BY seq")
            return [(seq, json.loads(body)) for seq, body in rows]


def of(path: Path, event: str) -> list[dict[str, Any]]:
    """Return the entries of one event."""
    return [document for _, document in read(path) if document["event"] == event]


def check(path: Path) -> None:
    """Fail unless each entry is an Event v1 that the registry accepts, and none is missing."""
    entries = read(path)
    numbers = [seq for seq, _ in entries]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    ids = [document["id"] for _, document in entries]
    again = [one for one, times in Counter(ids).items() if times > 1]
    assert not again, f"{path}: entries have the same id: {again}"
    event = validator("event.v1")
    seen: set[tuple[Any, ...]] = set()
    for seq, document in entries:
        assert lint(document) == [], (path, seq, document)
        # The schema speaks of the fields and their types alone.
        shape = tuple((name, type(value)) for name, value in document.items())
        if shape not in seen:
            seen.add(shape)
            event.validate(document)


def check_all(folder: Path) -> None:
    """Check each journal below a folder."""
    for path in folder.rglob(FILE):
        if path.is_file() and path.read_bytes()[:6] == b"SQLite":
            check(path)
