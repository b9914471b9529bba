"""What a failure of SQLite means: the file is damaged, or its place cannot be used.

Damage never heals, so a damaged file is set aside; everything else (a full disk, a read-only file
system, a lock of another program) may be over the next time, so entries that wait are kept and
retried.
"""

from __future__ import annotations

import os
import sqlite3

_PRIMARY = 0xFF
"""Extended result codes carry the primary one in their lowest byte (sqlite.org/rescode.html)."""

_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
        # The statements are fixed and fit the schema: a missing table was taken away.
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_MISMATCH,
    }
)


FAILURES = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What using the file may raise; the last one if SQLite's own words quote a damaged schema."""


class UnusableError(Exception):
    """A file is not our journal, or not one that this version can read; the message says why."""


def is_damage(error: Exception) -> bool:
    """Return whether a failure says that the file's content is not what was written."""
    if isinstance(error, UnusableError | UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & _PRIMARY in _DAMAGE


def in_words(error: Exception) -> str:
    """Return the words for a failure."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode(errors="replace")
    words = str(error) or type(error).__name__
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & _PRIMARY == sqlite3.SQLITE_IOERR:
        # SQLite says only "disk I/O error"; the name tells at least what it was doing.
        words += f" ({getattr(error, 'sqlite_errorname', code)})"
    return words
