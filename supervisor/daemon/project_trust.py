"""The projects that a user trusts: digests of their files, in a file outside of all projects.

A project is a folder with a `stdiod.toml`, and has a daemon of its own (docs/operating.md). Such a
file comes with any cloned repository or unpacked archive, so the daemon ignores it before
`stdiod trust`. Trust is in the bytes of the file and of the policy that it names: it ends as soon
as one of them changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from protocol.problem import printable
from supervisor.runtime.files.whole_file import UnreadableError, read_whole, replace_whole

STORE = "trusted-projects.json"

STORE_BYTES = 16 << 20
"""A project takes a few hundred bytes; a larger file is not a trust store."""

PROJECT_FILE_BYTES = 1 << 20
"""A larger file is no configuration and no policy."""

_NOT_OURS = stat.S_IWGRP | stat.S_IWOTH


class TrustStoreError(Exception):
    """The trust store cannot be used; the text names the file."""


class TrustedProject(msgspec.Struct, frozen=True):
    trusted_at: float
    """Seconds since 1970."""
    digests: dict[str, str]
    """Of each file, by its path: SHA-256 in hexadecimal."""

    def changed(self) -> str | None:
        """Return the path of a file that has changed; None if none has."""
        for path in self.digests:
            try:
                data = read_whole(Path(path), PROJECT_FILE_BYTES, "configuration")
            except UnreadableError:
                return path
            if not self.has(Path(path), data):
                return path
        return None

    def has(self, path: Path, data: bytes) -> bool:
        """Tell whether these are the trusted bytes of a file."""
        return self.digests.get(str(path)) == _digest(data)


class TrustStore:
    """The trusted projects by folder; another process may change them at any time."""

    def __init__(self, path: Path) -> None:
        """The file at `path` need not exist."""
        self._path = path

    def read(self) -> dict[str, TrustedProject]:
        """Return the trusted projects; raises `TrustStoreError`."""
        try:
            seen = self._path.lstat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(error.strerror or "cannot be looked at") from None
        if seen.st_uid != os.geteuid():
            raise self._unusable("it belongs to another user")
        if seen.st_mode & _NOT_OURS and not stat.S_ISLNK(seen.st_mode):
            raise self._unusable("others may write to it")
        try:
            data = read_whole(self._path, STORE_BYTES, "list of projects")
            return msgspec.json.decode(data, type=dict[str, TrustedProject])
        except UnreadableError as error:
            raise self._unusable(f"it {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._unusable("it is not what `stdiod trust` writes") from None

    def trust(self, folder: Path, files: Mapping[Path, bytes]) -> None:
        """Trust a project as it is now, in place of an earlier state; raises `TrustStoreError`."""
        digests = {str(path): _digest(data) for path, data in files.items()}
        with self._changing() as projects:
            projects[str(folder)] = TrustedProject(time.time(), digests)

    def revoke(self, folder: Path) -> bool:
        """Trust a project no more; returns whether it was trusted. Raises `TrustStoreError`."""
        with self._changing() as projects:
            return projects.pop(str(folder), None) is not None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, TrustedProject]]:
        folder = self._path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(f"{folder}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            projects = self.read()
            before = dict(projects)
            yield projects
            if projects != before:
                self._write(projects)
        finally:
            os.close(descriptor)

    def _write(self, projects: dict[str, TrustedProject]) -> None:
        data = msgspec.json.format(msgspec.json.encode(projects), indent=2) + b"\n"
        try:
            replace_whole(self._path, data, 0o600)
        except OSError as error:
            raise self._unusable(f"it cannot be written: {error.strerror}") from None

    def _unusable(self, why: str) -> TrustStoreError:
        words = f"the list of trusted projects cannot be used: {printable(str(self._path))}: {why}"
        return TrustStoreError(words)


def trusted_projects() -> TrustStore:
    """Return this user's trust store, in the state directory wherever the data is."""
    from platformdirs import user_state_path  # noqa: PLC0415 - a daemon without projects needs none

    return TrustStore(user_state_path("stdiod", appauthor=False) / STORE)


def objection(folder: Path, path: Path, data: bytes) -> str | None:
    """Return why bytes of a project's file are not to be used; None if they may be.

    A file that was not trusted as a part of the project, such as a policy from the command line, is
    none of its files.
    """
    try:
        project = trusted_projects().read().get(str(folder))
    except TrustStoreError as error:
        return str(error)
    if project is None:
        return f"is not used: its project {folder} is no longer trusted"
    if str(path) not in project.digests or project.has(path, data):
        return None
    return "has changed since its project was trusted: read it, then `stdiod trust`"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
