"""What was found out about programs, such as that one is prepared: for the next time it starts.

A note is about a program as it is: it stands under a digest of all that makes it another one.

What the connections of a descriptor leave to those that follow, and to those of later daemons, is
noted under a digest of the command, its folder, and the files that may be its program as `stat` has
them: an edited program is another one. Not under that of their bytes: an interpreter of 100 MB
would be read at each start of the daemon, and what is remembered may be wrong anyway.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import trio

from protocol.connection import Memory
from protocol.descriptor.model import Descriptor
from protocol.dialects.registry import DIALECTS
from protocol.frames import encode
from supervisor.runtime.files.file_digest import signature_or_none
from supervisor.runtime.files.program_files import module_folder, program_files

if TYPE_CHECKING:
    from supervisor.runtime.supervision.life import Setting

LOOK_S = 1.0
"""How long a start waits for the look at its program; without it, it begins as if new."""


class Notes:
    """The notes of one daemon, in memory."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, Any]] = {}

    def find(self, digest: str) -> dict[str, Any] | None:
        return self._all.get(digest)

    def put(self, digest: str, note: dict[str, Any] | None) -> None:
        """Replace a note; None removes it."""
        self._all.pop(digest, None)
        if note is not None:
            self._all[digest] = note


def digest_of(*facts: Any) -> str:
    """Return a digest (hex) of values as JSON."""
    return hashlib.sha256(encode(facts)).hexdigest()


class Recollection:
    """The memory that the lives of one descriptor share."""

    def __init__(self) -> None:
        self.memory: Memory = {}
        self.digest: str | None = None
        """What it is noted under, once the program was looked at."""
        self.was_looked_for = False


async def recall(setting: Setting) -> None:
    """Take over what was noted of the program, before the first process is started."""
    recollection, descriptor = setting.recollection, setting.descriptor
    if recollection.was_looked_for or not DIALECTS[descriptor.transport.protocol].remembers:
        return
    recollection.was_looked_for = True
    with trio.move_on_after(LOOK_S):
        recollection.digest = await setting.host.registry.threads.run(
            f"looking at the program of {descriptor.name}", lambda: _digest(descriptor)
        )
        noted = setting.host.notes.find(recollection.digest) or {}
        if not recollection.memory:
            recollection.memory.update(noted.get("memory", {}))


def keep(setting: Setting) -> None:
    """Note what is remembered by now, if that is not noted yet."""
    digest, memory = setting.recollection.digest, setting.recollection.memory
    if digest is None:
        return
    notes = setting.host.notes
    noted = notes.find(digest)
    if memory != ({} if noted is None else noted["memory"]):
        notes.put(digest, {"memory": dict(memory)} if memory else None)


def _digest(descriptor: Descriptor) -> str:
    """Look at the files; it may block."""
    found = []
    for path in program_files(descriptor):
        one = signature_or_none(path)
        found.append(None if one is None else (path, one.size, one.mtime_ns))
    command, folder = descriptor.transport.command, module_folder(descriptor)
    return digest_of("memory", command, folder, found)
