"""Where modules come from: a directory, or somebody who lends them while he is there.

A source has an owner, and its modules go with him. What it has is read with that of all the others
(`sources`), whenever there is a reload, and compared with what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.model import Descriptor
from supervisor.policy.findings import Quarantined, Reading
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


class LentDescriptors:
    """Descriptors that an owner holds in memory and lends; each is shown as `OWNER/LABEL`."""

    def __init__(self, owner: str, folder: Path, documents: Mapping[str, bytes]) -> None:
        """Lend JSON documents, by labels under which they are known from one reading to the next.

        Relative paths in them start from `folder`. The owner's name has no slash in it, and so is
        never the path of a directory.
        """
        _check_printable(owner)
        if "/" in owner:
            raise ValueError(f"the owner {owner!r} has a slash in it")
        self.owner = owner
        self._folder = str(folder.absolute())
        self._documents: Mapping[str, bytes] = {}
        self._reading: tuple[Mapping[str, bytes], Reading] = (self._documents, Reading())
        self.put(documents)

    def put(self, documents: Mapping[str, bytes]) -> None:
        """Lend these and no others, from the next reading on."""
        for label in documents:
            _check_printable(label)
        self._documents = dict(documents)

    def read(self, interests: Interests) -> Reading:  # noqa: ARG002 - there is nothing to watch
        parsed, reading = self._reading
        documents = self._documents  # which may be others, the next moment
        if documents is not parsed:
            reading = self._parsed(documents)
            self._reading = documents, reading
        return reading

    def signatures(self) -> Mapping[str, Signature | None]:
        """Nothing: the lender says when it changes."""
        return {}

    def _parsed(self, documents: Mapping[str, bytes]) -> Reading:
        good: list[Descriptor] = []
        bad: list[Quarantined] = []
        names: set[str] = set()
        for label, data in documents.items():
            place = f"{self.owner}/{label}"
            try:
                good.append(parse_descriptor(data, place, owner=self.owner, folder=self._folder))
            except DescriptorError as error:
                bad.append(Quarantined(place, error.reason))
                if error.name is not None:
                    names.add(error.name)
        return Reading(tuple(good), tuple(bad), frozenset(names))


def _check_printable(words: str) -> None:
    if not words or not words.isprintable():
        raise ValueError(f"{words!r} cannot be shown to people")
