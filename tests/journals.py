"""Read the journals that daemons left, and hold them to what is promised of each one."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.journal_event import REGISTRY, module_event_problem
from tests.schemas.local_registry import validator

FILE = "journal.db"


def read(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return what a journal holds that nobody writes any more."""
    rows = _rows(path, "SELECT seq, body FROM events ORDER BY seq")
    return [(seq, json.loads(body)) for seq, body in rows]


def _rows(path: Path, query: str) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder:
        # A copy: SQLite writes beside what it reads, and where this is may be full.
        for one in path.parent.glob(f"{path.name}*"):
            if not one.name.endswith("-shm"):
                shutil.copy(one, folder)
        with contextlib.closing(sqlite3.connect(Path(folder, path.name))) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                return []  # the disk was full before there was a first entry
            return connection.execute(query).fetchall()


def of(path: Path, event: str) -> list[dict[str, Any]]:
    """Return the entries of one event."""
    return [document for _, document in read(path) if document["event"] == event]


MAY_BE_NULL = frozenset({"data.plan", "data.parent", "data.patch"})
"""Fields whose value is the client's."""


def lint(document: Mapping[str, Any]) -> list[str]:
    """Return what the registry finds wrong with an entry's fields; the schema is another check."""
    name = document["event"]
    if name in REGISTRY:
        return [f"{name} has no {path}" for path in REGISTRY[name] if not has(document, path)]
    is_own = document.get("module") is not None and module_event_problem(document) is None
    return [] if is_own else [f"there is no event {name!r}"]


def has(document: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return document is not None or path in MAY_BE_NULL


def check(path: Path) -> None:
    """Fail unless each entry is an Event v1 that the registry accepts, and none is missing."""
    entries = read(path)
    numbers = [seq for seq, _ in entries]
    gaps = [before for before, after in itertools.pairwise(numbers) if after != before + 1]
    if gaps:  # it was set back, and has counted its entries there
        (counted,) = _rows(path, "SELECT value FROM facts WHERE name = 'counted_at'")[0]
        (last_before,) = gaps
        assert last_before < counted
        assert counted + 1 in numbers
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
