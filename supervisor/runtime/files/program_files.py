"""Where the files of a module's program are, by its descriptor; nothing is looked at."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.descriptor.model import Descriptor

PATH_CHARS = 1024
"""A longer argument is not looked for as a file."""


def module_folder(descriptor: Descriptor) -> str:
    """Return the absolute folder a module runs in, whether it is there or not."""
    return os.path.normpath(os.path.join(descriptor.folder, descriptor.transport.cwd))  # noqa: PTH118


def program_files(descriptor: Descriptor) -> list[str]:
    """Return the absolute paths of the files that may be a module's program, there or not.

    These are `command[0]` if it is a path, and every argument, since which ones are files shows
    only when they are there: `["python3","dice.py"]` is `dice.py` in the module's folder.
    """
    if not descriptor.transport.command:
        return []  # a service
    program, *arguments = descriptor.transport.command
    folder = module_folder(descriptor)
    paths = [Path(descriptor.folder, program)] if "/" in program else []
    # An option is no file, and a long text is a script in itself.
    paths += [
        Path(folder, argument)
        for argument in arguments
        if not argument.startswith("-") and len(argument) <= PATH_CHARS
    ]
    return [str(path) for path in paths]
