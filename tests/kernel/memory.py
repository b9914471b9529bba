"""A journal in a folder, and what a test asks of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from protocol.errors import Failure
from supervisor.kernel.journal import Journal, remembering
from supervisor.kernel.kernel import JournalOptions
from supervisor.kernel.store import writer
from supervisor.kernel.store.database import Database, open_database


def journal(folder: Path, **options: Any) -> Any:
    """Keep a journal around the block; what failed is tried again soon."""
    return remembering(folder, JournalOptions(**options), retry_s=0.01)


async def flushed(kept: Journal) -> Failure | None:
    """Return what a flush says."""
    said: list[Failure | None] = []
    over = trio.Event()

    def done(failure: Failure | None) -> None:
        said.append(failure)
        over.set()

    kept.flush(done)
    await over.wait()
    (answer,) = said
    return answer


async def until(kept: Journal, *, well: bool) -> None:
    """Wait until the journal can be written, or cannot."""
    while (kept.problem is None) is not well:
        await kept._commits.park()


class Disk:
    """Stands in for the disk below SQLite: a file may have so many pages, as on a full one."""

    def __init__(self, monkeypatch: Any) -> None:
        self.pages: int | None = None
        self.connections: list[Database] = []
        monkeypatch.setattr(writer, "open_database", self._open)

    def _open(self, *args: Any, **options: Any) -> Database:
        found = open_database(*args, **options)
        self.connections.append(found)
        self._limit(found)
        return found

    def _limit(self, found: Database) -> None:
        if self.pages is not None:
            found.connection.execute(f"PRAGMA max_page_count = {self.pages}")

    def fill(self) -> None:
        """Let no file grow from here on; the writer's thread has to be idle."""
        self.pages = 1
        self._limit(self.connections[-1])

    def clear(self) -> None:
        """Let files grow again: what is opened from here on may."""
        self.pages = None
