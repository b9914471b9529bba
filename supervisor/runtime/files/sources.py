"""All sources of modules together: read as one, and watched as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from supervisor.runtime.files.directory import DescriptorFiles
from supervisor.runtime.files.file_digest import FileDigests, Signature, signature_or_none
from supervisor.runtime.files.source import Source, UnreadableSourceError
from supervisor.runtime.files.watched_paths import Interests
from supervisor.runtime.process.program import program_files


class Sources:
    """The sources of a daemon, in the order in which they came.

    They are read in threads, by one at a time; meanwhile one may come or go, and signatures may be
    looked at.
    """

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self._sources = tuple(sources)
        self._programs = FileDigests()
        self._interests = Interests()

    @classmethod
    def of_directories(cls, directories: Iterable[Path]) -> Sources:
        """Have a source for each directory."""
        return cls(DescriptorFiles(directory) for directory in directories)

    def add(self, source: Source) -> None:
        """Have a further one from the next reading on."""
        if any(one.owner == source.owner for one in self._sources):
            raise ValueError(f"there is a source of {source.owner!r} already")
        self._sources = (*self._sources, source)

    def remove(self, source: Source) -> None:
        """Have one no longer, from the next reading on."""
        self._sources = tuple(one for one in self._sources if one is not source)

    @property
    def interests(self) -> Interests:
        """What to watch, as of the last reading; made anew by each."""
        return self._interests

    def read_first(self) -> Reading:
        """Read all of them; raises `UnreadableSourceError`."""
        interests = Interests()
        return self._together([one.read(interests) for one in self._sources], (), interests)

    def read(self, current: Mapping[str, Descriptor]) -> Reading:
        """Read what may have changed; of a source that cannot be read, the owner is `bad`.

        The programs of the `current` modules are looked at too, since one may go on although its
        descriptor has become bad.
        """
        interests = Interests()
        readings = [_read(one, interests) for one in self._sources]
        return self._together(readings, current.values(), interests)

    def signatures(self, current: Mapping[str, Descriptor]) -> dict[str, Signature | None]:
        """Return what a change would show in, for those who cannot be told of one."""
        found: dict[str, Signature | None] = {}
        for source in self._sources:
            found.update(source.signatures())
        for descriptor in current.values():
            if descriptor.supervision.watch:
                found.update((path, signature_or_none(path)) for path in program_files(descriptor))
        return found

    def _together(
        self, readings: Iterable[Reading], current: Iterable[Descriptor], interests: Interests
    ) -> Reading:
        reading = merged(readings)
        programs = self._watched_programs([*current, *reading.descriptors], interests)
        self._interests = interests
        return msgspec.structs.replace(reading, programs=programs)

    def _watched_programs(
        self, descriptors: Iterable[Descriptor], interests: Interests
    ) -> dict[Version, dict[str, str]]:
        programs: dict[Version, dict[str, str]] = {}
        paths: set[str] = set()
        for descriptor in descriptors:
            if not descriptor.supervision.watch:
                continue
            digests = programs[version_of(descriptor)] = {}
            for path in program_files(descriptor):
                paths.add(path)
                interests.add_path(path, content=True)
                digest = self._programs.digest(path)
                if digest is not None:
                    digests[path] = digest
        self._programs.keep_only(paths)
        return programs


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
        return Reading(bad=(Quarantined(source.owner, reason),))
