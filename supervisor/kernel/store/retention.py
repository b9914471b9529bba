"""Keep the journal within its age and size: the oldest entries go first, a few at a time.

A step is one short transaction, so a flush waits for no more than that. Patches that are newer than
their session's document stay, however old they are: a restart needs them. The newest entry stays
too, since `seq` goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.kernel.store.database import Database, transaction
from supervisor.kernel.store.settings import JournalLimits

STEP_ROWS = 4096
"""Entries that a step examines; some 20 ms."""

VACUUM_PAGES = 1024
"""Free pages that a step gives back to the file system."""

SLACK = 0.05
"""How far below its limit the journal is brought, so that not each group has to make room."""

FREE_BYTES = 16 << 20
FREE_SHARE = 0.25
"""Free pages are used again; only above both of these they are given back."""

DAY_S = 86400.0

JUMP_S = 60.0
"""A wall clock that is this far off was set."""


class Retention:
    """The removal of old and surplus entries; `step` is called until it returns False."""

    def __init__(
        self,
        limits: JournalLimits,
        wall_clock: Callable[[], float],
        steady_clock: Callable[[], float],
    ) -> None:
        """The clocks give Unix time and monotonic time (s)."""
        self.used_bytes = 0
        self._limits = limits
        self._wall_clock, self._steady_clock = wall_clock, steady_clock
        self._from = 0
        self._wall = wall_clock()
        self._steady = self._last_jump = steady_clock()
        self._jumped = False

    def begin(self) -> None:
        self._from = 0
        self._look_at_clocks()

    def step(self, database: Database) -> bool:
        """Do a bounded part of the work; returns whether there may be more."""
        used, free, page = self._measure(database)
        if used > self._limits.size_bytes:
            share = 1 - (1 - SLACK) * self._limits.size_bytes / used
            wanted = max(1, min(STEP_ROWS, round(share * database.events)))
            if self._remove(database, wanted, None):
                self._measure(database)
                return True
        elif not self._jumped and self._remove(
            database, STEP_ROWS, self._wall - self._limits.days * DAY_S
        ):
            return True
        if free * page > max(FREE_BYTES, FREE_SHARE * used):
            # Each page is a step of the statement, and `execute` stops after the first one.
            database.connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
            return True
        return False

    def _remove(self, database: Database, rows: int, before: float | None) -> bool:
        """Remove as many of the next oldest entries as may go; returns whether any could."""
        looked_at = database.connection.execute(
            _OLDEST, {"after": self._from, "last": database.last_seq, "rows": rows}
        ).fetchall()
        gone = [
            seq for seq, ts, needed in looked_at if not needed and (before is None or ts < before)
        ]
        if not gone:
            if not looked_at or not all(needed for _, _, needed in looked_at):
                return False
            self._from = looked_at[-1][0]  # look further
            return True
        counted = database.events - len(gone)
        with transaction(database.connection):
            for first, last in _runs(gone):
                database.connection.execute(
                    "DELETE FROM events WHERE seq BETWEEN ? AND ?", (first, last)
                )
            database.connection.execute(_COUNT, (database.last_seq, counted))
        database.counted_at, database.counted = database.last_seq, counted
        self._from = gone[-1]
        return True

    def _measure(self, database: Database) -> tuple[int, int, int]:
        """Return the bytes in use, the free pages and the size of a page."""
        (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
        (free,) = database.connection.execute("PRAGMA freelist_count").fetchone()
        (page,) = database.connection.execute("PRAGMA page_size").fetchone()
        self.used_bytes = (pages - free) * page
        return self.used_bytes, free, page

    def _look_at_clocks(self) -> None:
        """Read both clocks; after a jump of the wall clock, no entry's age is known for a day."""
        wall, steady = self._wall_clock(), self._steady_clock()
        off = wall - self._wall - (steady - self._steady)
        self._wall, self._steady = wall, steady
        if abs(off) > JUMP_S:
            self._jumped, self._last_jump = True, steady
        elif steady - self._last_jump > DAY_S:
            self._jumped = False


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges without gaps."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


_OLDEST = """
SELECT seq, iif(typeof(ts) = 'real', ts, 1e300), event = 'session:patch' AND revision > coalesce((
    SELECT revision FROM documents WHERE kind = 'session' AND name = session_id), revision)
FROM events WHERE seq > :after AND seq < :last ORDER BY seq LIMIT :rows
"""
"""A time whose type damage has changed is not that of an old entry."""

_COUNT = """
INSERT OR REPLACE INTO facts
SELECT 'counted_at', column1 FROM (VALUES (?)) UNION ALL
SELECT 'counted', column1 FROM (VALUES (?))
"""
