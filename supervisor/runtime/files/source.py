"""Where modules come from: a directory, or somebody who lends them while he is there.

A source has an owner, and its modules go with him. What it has is read with that of all the others
(`sources`), whenever there is a reload, and compared with what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from supervisor.policy.findings import Reading
from supervisor.runtime.files.file_digest import Signature
from supervisor.runtime.files.watched_paths import Interests


class UnreadableSourceError(Exception):
    """A source cannot be read; `what` says so as a clause without its name."""

    def __init__(self, words: str, what: str) -> None:
        super().__init__(words)
        self.what = what


class UnansweredSourceError(UnreadableSourceError):
    """A source does not answer; it is read again in a while."""


class Source(Protocol):
    """Descriptors that have an owner. It is used from threads, but read by one at a time."""

    @property
    def owner(self) -> str:
        """Whose they are, in words that no other source of the daemon has; shown to people."""

    def read(self, interests: Interests) -> Reading:
        """Read what there is now; add to `interests` the files that decide over it, if any.

        Each descriptor names the owner. Raises `UnreadableSourceError`: what was last read stays in
        use then.
        """

    def signatures(self) -> Mapping[str, Signature | None]:
        """Return what a change of these files would show in; for sources without notification."""
