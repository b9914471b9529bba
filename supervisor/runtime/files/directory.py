"""Read a directory of descriptors: what there is, what is bad and why; again, only what changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from protocol.descriptor.loading import DescriptorError, parse_descriptor
from protocol.descriptor.model import Descriptor
from protocol.problem import Problem, nearest
from supervisor.policy.findings import QuarantinedFile, Reading
from supervisor.runtime.files.file_digest import Signature, signature
from supervisor.runtime.files.watched_paths import DESCRIPTORS, Interest, Interests, on_the_way
from supervisor.runtime.files.whole_file import UnreadableError, read_whole
from supervisor.runtime.threads import NoAnswer, Threads

DESCRIPTOR_BYTES = 4 << 20
"""A larger file is no descriptor; it is not read into memory to find that out."""

NOT_UTF8 = "its path is not UTF-8, and cannot be shown; rename the file or folder"
"""Names are sent as JSON, and printed."""

_OF_OTHERS = re.compile(
    r"(package|composer|bower|lerna|nx|turbo|deno|biome|angular|vercel|renovate|mcp|tslint"
    r"|claude_desktop_config|npm-shrinkwrap|devcontainer|.*[.-]lock|.*\.config|[jt]sconfig.*|pyrightconfig)\.json"
)
"""Names of other tools' files, which may have comments, and say nothing of a module if broken."""

NO_ANSWER = "does not answer: a dead mount, maybe; it is read as soon as it does"


class UnreadableSourceError(Exception):
    """A source cannot be read; `what` says so as a clause without its name."""

    def __init__(self, words: str, what: str) -> None:
        super().__init__(words)
        self.what = what


class UnansweredSourceError(UnreadableSourceError):
    """A source does not answer; it is read again in a while."""


class MissingDirectoryError(UnreadableSourceError):
    def __init__(self, directory: Path, words: str, what: str) -> None:
        super().__init__(f"{shown(directory)}{words}", what)


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


def is_meant(path: Path) -> bool:
    """Tell whether a file is a descriptor, good or bad, and not one of another tool."""
    others = _OF_OTHERS.fullmatch(path.name) is not None
    document: Any = None
    with contextlib.suppress(DescriptorError, ValueError, RecursionError):
        document = json.loads(read_bytes(path))
    if not document or path.name == "module.json":  # it may be half-written
        return not others
    if not isinstance(document, dict):
        return not others
    said = {"name", "kind", "command", "capabilities", "supervision", "inputs"} & document.keys()
    is_like_one = len(said) > 1 or said == document.keys()
    return nearest("transport", document, 0.8) is not None or (is_like_one and not others)


def none_found(directories: Sequence[Path]) -> str:
    """Say that directories hold no descriptors, and which folders in them do."""
    places = ", ".join(map(shown, directories))
    words = f"no descriptors in {places}: looked for *.json and */module.json"
    for folder in (one for place in directories for one in sorted(place.glob("[!.]*/"))):
        with contextlib.suppress(MissingDirectoryError):
            if any(map(is_meant, find_files(folder))):
                return f"{words}; name {shown(folder)} itself, which has some"
    return f"{words}, and no deeper"


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


class _Known(msgspec.Struct, frozen=True):
    """What a file was read as; `signature` is None if it may not be trusted next time."""

    signature: Signature | None
    digest: str
    read: Descriptor | QuarantinedFile
    bad_name: str | None = None


class DescriptorFiles:
    """The descriptor files of a directory (`sources.Source`), read any number of times.

    A file whose signature has not changed is not opened, one whose bytes have not changed is not
    parsed.
    """

    def __init__(self, directory: Path, threads: Threads | None = None) -> None:
        self.directory = directory.absolute()
        self.owner = shown(self.directory)
        self._threads = threads or Threads()
        self._known: dict[str, _Known] = {}
        self._used: set[str] = set()

    def read(self, interests: Interests) -> Reading:
        """Read all files that may have changed; raises `UnreadableSourceError`.

        An entry that does not answer is bad, and says nothing about its module.
        """
        (listed,) = self._threads.look_at_each(
            [(f"reading the directory {self.owner}", self._list)]
        )
        if isinstance(listed, NoAnswer):
            words = " does not answer"  # a dead mount, for one
            raise UnansweredSourceError(f"{self.owner}{words}", f"the directory{words}")
        entries, around = listed
        interests |= around
        if isinstance(entries, MissingDirectoryError):
            raise entries
        looks = [(f"reading {shown(one.path)}", partial(self._look_at, one)) for one in entries]
        seen = self._threads.look_at_each(looks)
        known: dict[str, _Known] = {}
        for entry, one in zip(entries, seen, strict=True):
            if isinstance(one, NoAnswer):
                path = self._descriptor_of(entry)
                known[path] = _Known(None, "", QuarantinedFile(shown(path), NO_ANSWER))
            else:
                read, inside = one
                known.update(read)
                interests |= inside
        self._known = known
        reads = [one.read for one in known.values()]
        return Reading(
            tuple(one for one in reads if isinstance(one, Descriptor)),
            tuple(one for one in reads if isinstance(one, QuarantinedFile)),
            frozenset(one.bad_name for one in known.values() if one.bad_name is not None),
            unanswered=NoAnswer.UNANSWERED in seen,
        )

    def _list(self) -> tuple[list[os.DirEntry[str]] | MissingDirectoryError, Interests]:
        """Return what the directory holds, or why that is not known, and what to watch."""
        directory = str(self.directory)
        around = {Interest(directory, DESCRIPTORS), *on_the_way(directory, content=False)}
        try:
            return list_entries(self.directory), around
        except MissingDirectoryError as error:  # it may come back
            return error, around

    def _look_at(self, entry: os.DirEntry[str]) -> tuple[dict[str, _Known], Interests]:
        """Read the descriptor that an entry is or holds, if it does; and say what to watch."""
        interests: Interests = set()
        is_folder = _is_folder(entry)
        if entry.is_symlink():
            interests.update(on_the_way(entry.path, content=not is_folder))
        if is_folder:
            interests.add(Interest(entry.path, "module.json"))
        path = descriptor_path(entry)
        if path is None:
            return {}, interests
        if is_folder and path.is_symlink():
            interests.update(on_the_way(str(path)))
        known = self._look(path)
        is_one = str(path) in self._used or is_meant(path)
        return {str(path): known} if is_one else {}, interests

    def _descriptor_of(self, entry: os.DirEntry[str]) -> str:
        """Return the path of the descriptor that an entry is or holds, without looking there."""
        inside = os.path.join(entry.path, "module.json")  # noqa: PTH118
        is_file = entry.path in self._known or entry.name.endswith(".json")
        return entry.path if is_file and inside not in self._known else inside

    def _look(self, path: Path) -> _Known:
        if not _is_utf8(str(path)):
            return _Known(None, "", QuarantinedFile(shown(path), NOT_UTF8))
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
            descriptor = parse_descriptor(data, str(path), owner=self.owner)
            self._used.add(str(path))
            return _Known(trusted, digest, descriptor)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        except DescriptorError as error:
            reason, name = error.reason, error.name
        # A bad file is read again each time: it may be half-written, and there are few of them.
        return _Known(None, "", QuarantinedFile(shown(path), reason), name)
