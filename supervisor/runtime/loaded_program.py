"""What a process has loaded, to be told from what it would load were it started now.

The files are those that `watch` looks at, and the program that the first word of the command leads
to. What these load in turn is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from protocol.descriptor import Descriptor
from supervisor.runtime.environment import UnsetVariableError, module_environment
from supervisor.runtime.file_digest import FileDigests
from supervisor.runtime.program import SpawnError, find_program, program_files, working_folder


class LoadedProgram(msgspec.Struct, frozen=True):
    """A program as it was found; equal ones make equal processes."""

    path: str
    """What is executed, absolute."""
    folder: tuple[int, int]
    """Device and inode of the working folder: a link may lead to another one by now."""
    digests: dict[str, str | None]
    """By path; None for an argument that is no file."""


def find_loaded(
    descriptor: Descriptor, host: Mapping[str, str], digests: FileDigests
) -> LoadedProgram | None:
    """Look at a module's program, or return None if it could not be started now.

    `host` is the daemon's environment. Reads files, so it is for a thread.
    """
    try:
        path = find_program(descriptor, module_environment(descriptor.transport, host, ""))
        folder = os.stat(working_folder(descriptor))  # noqa: PTH116 - before each warm invocation
    except (OSError, SpawnError, UnsetVariableError):
        return None
    files = [path, *program_files(descriptor)]
    found = {file: digests.digest(file) for file in files}
    return LoadedProgram(path, (folder.st_dev, folder.st_ino), found)
