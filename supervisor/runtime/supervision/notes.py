"""What was found out about programs, such as that one is prepared: for the next time it starts.

A note is about a program as it is: it stands under a digest of all that makes it another one.
"""

from __future__ import annotations

import hashlib
from typing import Any

from protocol.frames import encode


class Notes:
    """The notes of one daemon, in memory."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, Any]] = {}

    def find(self, digest: str) -> dict[str, Any] | None:
        return self._all.get(digest)

    def put(self, digest: str, note: dict[str, Any] | None) -> None:
        """Replace a note; None removes it."""
        self._all.pop(digest, None)
        if note is not None:
            self._all[digest] = note


def digest_of(*facts: Any) -> str:
    """Return a digest (hex) of values as JSON."""
    return hashlib.sha256(encode(facts)).hexdigest()
