"""Answers of people to "may this module do that?", kept beyond the daemon's life.

An answer is about one program: it does not count for a changed one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping

import msgspec

from protocol.descriptor.model import Descriptor
from protocol.frames import encode
from supervisor.kernel.recorder import Recorder, Restored
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.files.program_files import program_files
from supervisor.runtime.process.environment import UnsetVariableError, resolved
from supervisor.runtime.process.program import SpawnError, find_program

KIND = "grant"
"""The kind of the documents."""

ANSWERS_KEPT = 10_000
"""The oldest are forgotten beyond that; the question is asked again then."""


class Remembered(msgspec.Struct, frozen=True):
    """An answer; `ts` is Unix time (s)."""

    module: str
    capability: str
    program: str
    """The digest of the program that the answer is about."""
    allowed: bool
    ts: float


class Answers:
    def __init__(self, recorder: Recorder, wall_clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._wall_clock = wall_clock
        self._all: dict[tuple[str, str], Remembered] = {}

    def find(self, module: str, capability: str) -> Remembered | None:
        return self._all.get((module, capability))

    def all(self) -> list[Remembered]:
        return list(self._all.values())

    def add(self, module: str, capability: str, program: str, *, allowed: bool) -> None:
        one = Remembered(module, capability, program, allowed, self._wall_clock())
        self._all.pop((module, capability), None)
        self._all[module, capability] = one
        self._keep(one)
        while len(self._all) > ANSWERS_KEPT:
            oldest = next(iter(self._all.values()))
            self._drop(oldest)

    def forget(self, module: str) -> list[Remembered]:
        found = [one for one in self._all.values() if one.module == module]
        for one in found:
            self._drop(one)
        return found

    def restore(self, restored: Restored) -> None:
        found = restored.decoded(KIND, Remembered, "an answer was not restored")
        for _, one in sorted(found, key=lambda item: item[1].ts):
            self._all[one.module, one.capability] = one

    def keep_all(self) -> None:
        for one in self._all.values():
            self._keep(one)

    def _drop(self, one: Remembered) -> None:
        del self._all[one.module, one.capability]
        self._recorder.keep(KIND, _name(one), None)

    def _keep(self, one: Remembered) -> None:
        self._recorder.keep(KIND, _name(one), msgspec.json.encode(one))


def _name(one: Remembered) -> str:
    # Both may hold any character, so no separator would keep them apart.
    return hashlib.sha256(msgspec.json.encode((one.module, one.capability))).hexdigest()


def program_digest(
    descriptor: Descriptor, environment: Mapping[str, str], files: FileDigests
) -> str:
    """Return a digest (hex) of the command and of the bytes of the files it names; may block."""
    with contextlib.suppress(UnsetVariableError):  # then it cannot be run
        descriptor, environment = resolved(descriptor, environment, "")
    paths = set(program_files(descriptor))
    with contextlib.suppress(SpawnError):  # then it cannot be run either
        paths.add(find_program(descriptor, environment))
    digests = [(path, files.digest(path)) for path in sorted(paths)]
    return hashlib.sha256(encode((descriptor.transport.command, digests))).hexdigest()
