"""Where modules come from: directories, and whoever lends some while he is there.

A source has an owner, and its modules go with him. All sources are read as one and watched as one,
whenever there is a reload, and compared with what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.model import Descriptor
from supervisor.policy.findings import (
    Found,
    QuarantinedFile,
    Reading,
    Version,
    merged,
    usable,
    version_of,
)
from supervisor.runtime.files.directory import (
    DescriptorFiles,
    UnansweredSourceError,
    UnreadableSourceError,
)
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.files.program_files import program_files
from supervisor.runtime.files.watched_paths import Interests, on_the_way
from supervisor.runtime.threads import NoAnswer, Threads


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

    def _parsed(self, documents: Mapping[str, bytes]) -> Reading:
        good: list[Descriptor] = []
        bad: list[QuarantinedFile] = []
        names: set[str] = set()
        for label, data in documents.items():
            place = f"{self.owner}/{label}"
            try:
                good.append(parse_descriptor(data, place, owner=self.owner, folder=self._folder))
            except DescriptorError as error:
                bad.append(QuarantinedFile(place, error.reason))
                if error.name is not None:
                    names.add(error.name)
        return Reading(tuple(good), tuple(bad), frozenset(names))


def _check_printable(words: str) -> None:
    if not words or not words.isprintable():
        raise ValueError(f"{words!r} cannot be shown to people")


class Sources:
    """The sources of a daemon, in the order in which they came.

    They are read in threads, by one at a time; meanwhile one may come or go.
    """

    def __init__(self, sources: Iterable[Source] = (), threads: Threads | None = None) -> None:
        self._sources = tuple(sources)
        self._threads = threads or Threads()
        self._programs = FileDigests()
        self.interests = Interests()
        """The files and folders to watch; each reading replaces them."""
        self.unanswered = False
        """Whether something did not answer to the last reading."""

    @classmethod
    def of_directories(cls, directories: Iterable[Path], threads: Threads | None = None) -> Sources:
        threads = threads or Threads()
        return cls((DescriptorFiles(directory, threads) for directory in directories), threads)

    def add(self, source: Source) -> None:
        """Read a further source from the next reading on."""
        if any(one.owner == source.owner for one in self._sources):
            raise ValueError(f"there is a source of {source.owner!r} already")
        self._sources = (*self._sources, source)

    def remove(self, source: Source) -> None:
        self._sources = tuple(one for one in self._sources if one is not source)

    def read_first(self) -> Reading:
        """Read all; raises `UnreadableSourceError`, but for a source that only does not answer."""
        interests = Interests()
        readings: list[Reading] = []
        for one in self._sources:
            try:
                readings.append(one.read(interests))
            except UnansweredSourceError as error:
                reason = f"{error.what}. Its modules start as soon as it does."
                readings.append(_unread(one, reason, unanswered=True))
        return self._together(readings, (), interests)

    def read(self, current: Mapping[str, Descriptor]) -> Reading:
        """Read what may have changed; of a source that cannot be read, the owner is `bad`.

        The programs of the `current` modules are looked at too, since one may go on although its
        descriptor has become bad.
        """
        interests = Interests()
        readings = [_read(one, interests) for one in self._sources]
        return self._together(readings, current.values(), interests)

    def _together(
        self, readings: Iterable[Reading], current: Iterable[Descriptor], interests: Interests
    ) -> Reading:
        reading = merged(readings)
        every = (*current, *reading.descriptors)
        watched = list({version_of(one): one for one in every if one.supervision.watch}.values())
        looks = [
            (f"looking at the program of {one.source}", partial(self._look_at_program, one))
            for one in watched
        ]
        programs: dict[Version, dict[str, str]] = {}
        unanswered = reading.unanswered
        for descriptor, seen in zip(watched, self._threads.look_at_each(looks), strict=True):
            if isinstance(seen, NoAnswer):
                unanswered = True
            else:
                programs[version_of(descriptor)], way = seen
                interests |= way
        self._programs.keep_only({path for digests in programs.values() for path in digests})
        self.interests, self.unanswered = interests, unanswered
        return msgspec.structs.replace(reading, programs=programs, unanswered=unanswered)

    def _look_at_program(self, descriptor: Descriptor) -> tuple[dict[str, str], Interests]:
        """Return the digests of the files that there are, and what to watch."""
        digests: dict[str, str] = {}
        interests = Interests()
        for path in program_files(descriptor):
            interests.update(on_the_way(path))
            digest = self._programs.digest(path)
            if digest is not None:
                digests[path] = digest
        return digests, interests


def scan(directories: Iterable[Path]) -> Found:
    """Read all descriptors of directories; raises `MissingDirectoryError`, and nothing else.

    A bad descriptor, one whose name is taken, and one whose dependencies cannot be met are
    quarantined; they are never in the others' way.
    """
    return usable({}, Sources.of_directories(directories).read_first())


def _read(source: Source, interests: Interests) -> Reading:
    try:
        return source.read(interests)
    except UnreadableSourceError as error:
        reason = f"{error.what}. What was last read stays in use."
        return _unread(source, reason, unanswered=isinstance(error, UnansweredSourceError))


def _unread(source: Source, reason: str, *, unanswered: bool) -> Reading:
    return Reading(bad=(QuarantinedFile(source.owner, reason),), unanswered=unanswered)
