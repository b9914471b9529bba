"""Say how a journal that was set aside is read: SQLite's own shell can, up to the damage.

No SQLite here: `doctor` says it without a daemon.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

MARK = ".set-aside-"
"""What stands between the name of the journal and the time when it was set aside."""

_QUERY = "SELECT CAST(body AS TEXT) FROM events"


def how_to_read(path: str) -> str:
    """Return the commands for a damaged journal, in words.

    `.recover` finds what no table leads to any more, but not every build of `sqlite3` has it.
    """
    file = shlex.quote(path)
    return (
        f"of a damaged one, `sqlite3 {file} '{_QUERY}'` shows the entries before the damage, with"
        f" `ORDER BY seq DESC` those behind it; `sqlite3 {file} .recover` finds more, if it can"
    )


def kept_aside(journal: Path) -> Iterator[Path]:
    """Yield the files that were set aside in the place of a journal, the oldest first."""
    for one in sorted(journal.parent.glob(f"{journal.name}{MARK}*")):
        if not one.name.endswith(("-wal", "-shm")):
            yield one
