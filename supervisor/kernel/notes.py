"""What was found out about programs, kept beyond the daemon's life."""

from __future__ import annotations

from typing import Any

import msgspec

from supervisor.kernel.recorder import Recorder, Restored
from supervisor.runtime.supervision.notes import Notes

KIND = "note"
"""The kind of the documents; the name of each is the digest of its program."""

NOTES_KEPT = 10_000
"""The oldest are forgotten beyond that; it is found out again then."""


class KeptNotes(Notes):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def put(self, digest: str, note: dict[str, Any] | None) -> None:
        """Note something, and keep it; None deletes the note."""
        super().put(digest, note)
        self._keep(digest, note)
        while len(self._all) > NOTES_KEPT:
            self.put(next(iter(self._all)), None)

    def restore(self, restored: Restored) -> None:
        for name, note in restored.decoded(KIND, dict[str, Any], "a note was not restored"):
            super().put(name, note)

    def keep_all(self) -> None:
        for digest, note in self._all.items():
            self._keep(digest, note)

    def _keep(self, digest: str, note: dict[str, Any] | None) -> None:
        body = None if note is None else msgspec.json.encode(note)
        self._recorder.keep(KIND, digest, body)
