"""All sources of modules together: read as one, and watched as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from protocol.descriptor.model import Descriptor
from supervisor.policy.findings import (
    Found,
    Quarantined,
    Reading,
    Version,
    merged,
    usable,
    version_of,
)
from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.files.directory import DescriptorFiles
from supervisor.runtime.files.file_digest import FileDigests, Signature, signature_or_none
from supervisor.runtime.files.looks import Looks, Unanswered
from supervisor.runtime.files.program_files import program_files
from supervisor.runtime.files.source import Source, UnansweredSourceError, UnreadableSourceError
from supervisor.runtime.files.watched_paths import Interests


class Sources:
    """The sources of a daemon, in the order in which they came.

    They are read in threads, by one at a time; meanwhile one may come or go, and signatures may be
    looked at.
    """

    def __init__(self, sources: Iterable[Source] = (), looks: Looks | None = None) -> None:
        self._sources = tuple(sources)
        self._looks = looks or Looks()
        self._programs = FileDigests()
        self._interests = Interests()
        self._unanswered = False

    @classmethod
    def of_directories(
        cls, directories: Iterable[Path], blocking: BlockingWork | None = None
    ) -> Sources:
        looks = Looks(blocking)
        return cls((DescriptorFiles(directory, looks) for directory in directories), looks)

    def add(self, source: Source) -> None:
        """Read a further source from the next reading on."""
        if any(one.owner == source.owner for one in self._sources):
            raise ValueError(f"there is a source of {source.owner!r} already")
        self._sources = (*self._sources, source)

    def remove(self, source: Source) -> None:
        self._sources = tuple(one for one in self._sources if one is not source)

    @property
    def interests(self) -> Interests:
        """What to watch, as of the last reading; made anew by each."""
        return self._interests

    @property
    def unanswered(self) -> bool:
        return self._unanswered

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

    def signatures(self, current: Mapping[str, Descriptor]) -> dict[str, Signature | None]:
        """Return what a change would show in, where no watch tells of it."""
        looks: list[tuple[str, Callable[[], Mapping[str, Signature | None]]]] = []
        looks += [(f"comparing {one.owner}", one.signatures) for one in self._sources]
        looks += [
            (f"comparing the program of {one.source}", partial(_program_signatures, one))
            for one in current.values()
            if one.supervision.watch
        ]
        found: dict[str, Signature | None] = {}
        for seen in self._looks.each(looks):
            if not isinstance(seen, Unanswered):
                found.update(seen)
        return found

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
        for descriptor, seen in zip(watched, self._looks.each(looks), strict=True):
            if isinstance(seen, Unanswered):
                unanswered = True
            else:
                programs[version_of(descriptor)], way = seen
                interests.add(way)
        self._programs.keep_only({path for digests in programs.values() for path in digests})
        self._interests, self._unanswered = interests, unanswered
        return msgspec.structs.replace(reading, programs=programs, unanswered=unanswered)

    def _look_at_program(self, descriptor: Descriptor) -> tuple[dict[str, str], Interests]:
        """Return the digests of the files that there are, and what to watch."""
        digests: dict[str, str] = {}
        interests = Interests()
        for path in program_files(descriptor):
            interests.add_path(path, content=True)
            digest = self._programs.digest(path)
            if digest is not None:
                digests[path] = digest
        return digests, interests


def _program_signatures(descriptor: Descriptor) -> Mapping[str, Signature | None]:
    return {path: signature_or_none(path) for path in program_files(descriptor)}


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
    return Reading(bad=(Quarantined(source.owner, reason),), unanswered=unanswered)
