"""Read directories of descriptors: what there is, what is bad and why; again, only what changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from protocol.descriptor import Descriptor
from protocol.descriptor_loading import DescriptorError, parse_descriptor
from protocol.problem import Problem
from supervisor.policy.findings import Found, Quarantined, Reading, usable
from supervisor.runtime.file_digest import FileDigests, Signature, signature
from supervisor.runtime.program import program_files
from supervisor.runtime.watched_paths import Interests
from supervisor.runtime.whole_file import UnreadableError, read_whole

DESCRIPTOR_BYTES = 4 << 20
"""A larger file is no descriptor; it is not read into memory to find that out."""


NOT_UTF8 = "its path is not UTF-8, so that nobody could be told of it; rename what is not"
"""Names are sent as JSON, and printed."""


class MissingDirectoryError(Exception):
    """A directory that was named cannot be read; `what` says so as a clause without its name."""

    def __init__(self, directory: Path, words: str, what: str) -> None:
        super().__init__(f"{shown(directory)}{words}")
        self.what = what


def shown(path: str | Path) -> str:
    """Return a path as text that can be printed and sent: a name may be any bytes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def find_files(directory: Path) -> list[Path]:
    """Return `DIR/*.json` and `DIR/*/module.json`, sorted; raises `MissingDirectoryError`."""
    return [path for entry in list_entries(directory) if (path := descriptor_path(entry))]


def list_entries(directory: Path) -> list[os.DirEntry[str]]:
    """Return what a directory holds, sorted; raises `MissingDirectoryError`."""
    try:
        with os.scandir(directory) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
    except NotADirectoryError:
        words = " is not a directory"
        raise MissingDirectoryError(directory, words, f"the path{words} any more") from None
    except OSError as error:
        words = f": {error.strerror}"
        gone = isinstance(error, FileNotFoundError)
        what = "the directory is gone" if gone else f"the directory cannot be read{words}"
        raise MissingDirectoryError(directory, words, what) from None
    return sorted(visible, key=lambda entry: entry.name)


def descriptor_path(entry: os.DirEntry[str]) -> Path | None:
    """Return the descriptor file that an entry is, or holds as `module.json`."""
    if _is_folder(entry):
        inside = Path(entry.path, "module.json")
        return inside if os.path.lexists(inside) else None
    return Path(entry.path) if entry.name.endswith(".json") else None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # what cannot be looked at, such as a link to itself


def read_descriptor(path: Path) -> Descriptor:
    """Read and check one file; raises `DescriptorError` with every problem found."""
    source = str(path.absolute())
    if not _is_utf8(source):
        raise _bad(path, NOT_UTF8)
    return parse_descriptor(read_bytes(path), source)


def read_bytes(path: Path) -> bytes:
    """Read what a descriptor file holds; raises `DescriptorError` if that cannot be one."""
    try:
        return read_whole(path, DESCRIPTOR_BYTES, "descriptor")
    except UnreadableError as error:
        raise _bad(path, str(error)) from None


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad(path: Path, words: str) -> DescriptorError:
    return DescriptorError(shown(path.absolute()), (Problem("", words),))


def scan(directories: Iterable[Path]) -> Found:
    """Read all descriptors; raises `MissingDirectoryError`, and nothing else.

    A bad descriptor, one whose name is taken, and one whose dependencies cannot be met are
    quarantined; they are never in the others' way.
    """
    return usable({}, DescriptorFiles(directories).read_first())


class _Known(msgspec.Struct, frozen=True):
    """What a file was read as; `signature` is None if it may not be trusted next time."""

    signature: Signature | None
    digest: str
    read: Descriptor | Quarantined
    bad_name: str | None = None


class DescriptorFiles:
    """The descriptor files of some directories, read any number of times.

    A file whose signature has not changed is not opened, one whose bytes have not changed is not
    parsed. Not for several threads at once.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self.directories = tuple(directory.absolute() for directory in directories)
        self._known: dict[str, _Known] = {}
        self._programs = FileDigests()
        self._interests = Interests()

    @property
    def interests(self) -> Interests:
        """What to watch, as of the last reading; made anew by each."""
        return self._interests

    def read_first(self) -> Reading:
        """Read all files; raises `MissingDirectoryError`."""
        for directory in self.directories:
            list_entries(directory)
        return self.read({})

    def read(self, current: Mapping[str, Descriptor]) -> Reading:
        """Read all files that may have changed; a directory that cannot be read is `bad`.

        The programs of the `current` modules are looked at too, since one may go on although its
        file has become bad.
        """
        interests = Interests()
        bad: list[Quarantined] = []
        known: dict[str, _Known] = {}
        for directory in self.directories:
            interests.add_folder(str(directory))
            try:
                paths = _files(directory, interests)
            except MissingDirectoryError as error:
                bad.append(
                    Quarantined(shown(directory), f"{error.what}. What was last read stays in use.")
                )
                continue
            for path in paths:
                known[str(path)] = self._look(path)
        good = [one.read for one in known.values() if isinstance(one.read, Descriptor)]
        bad += [one.read for one in known.values() if isinstance(one.read, Quarantined)]
        programs = self._watched_programs([*current.values(), *good], interests)
        self._known, self._interests = known, interests
        names = frozenset(one.bad_name for one in known.values() if one.bad_name is not None)
        return Reading(tuple(good), tuple(bad), names, programs)

    def signatures(self, current: Mapping[str, Descriptor]) -> dict[str, Signature | None]:
        """Return what a change would show in, for those who cannot be told of one."""
        found: dict[str, Signature | None] = {}
        for directory in self.directories:
            found[str(directory)] = None
            try:
                for path in find_files(directory):
                    found[str(path)] = _signature_or_none(str(path))
            except MissingDirectoryError:
                del found[str(directory)]
        for descriptor in current.values():
            if descriptor.supervision.watch:
                for program in program_files(descriptor):
                    found[program] = _signature_or_none(program)
        return found

    def _look(self, path: Path) -> _Known:
        if not _is_utf8(str(path)):
            return _Known(None, "", Quarantined(shown(path), NOT_UTF8))
        before = self._known.get(str(path))
        name: str | None = None
        try:
            now = signature(str(path))
            if before is not None and before.signature == now:
                return before
            # Asked before the file is read: what changes while it is read must not be trusted.
            trusted = now if now.settled() else None
            data = read_bytes(path)
            digest = hashlib.sha256(data).hexdigest()
            if before is not None and before.digest == digest:
                return msgspec.structs.replace(before, signature=trusted)
            return _Known(trusted, digest, parse_descriptor(data, str(path)))
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        except DescriptorError as error:
            reason = "; ".join(str(problem) for problem in error.problems)
            name = error.name
        # A bad file is read again each time: it may be half-written, and there are few of them.
        return _Known(None, "", Quarantined(shown(path), reason), name)

    def _watched_programs(
        self, descriptors: Iterable[Descriptor], interests: Interests
    ) -> dict[str, dict[str, str]]:
        programs: dict[str, dict[str, str]] = {}
        paths: set[str] = set()
        for descriptor in descriptors:
            if not descriptor.supervision.watch:
                continue
            digests = programs[descriptor.name] = {}
            for path in program_files(descriptor):
                paths.add(path)
                interests.add_path(path, content=True)
                digest = self._programs.digest(path)
                if digest is not None:
                    digests[path] = digest
        self._programs.keep_only(paths)
        return programs


def _files(directory: Path, interests: Interests) -> list[Path]:
    """Return the descriptor files of a directory; be interested in what they are reached by."""
    files: list[Path] = []
    for entry in list_entries(directory):
        if entry.is_symlink():
            interests.add_path(entry.path, content=not _is_folder(entry))
        if _is_folder(entry):
            interests.add_file(entry.path, "module.json")
        path = descriptor_path(entry)
        if path is not None:
            files.append(path)
            if path.name == "module.json" and path.is_symlink():
                interests.add_path(str(path), content=True)
    return files


def _signature_or_none(path: str) -> Signature | None:
    try:
        return signature(path)
    except OSError:
        return None
