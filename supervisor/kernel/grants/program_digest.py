"""What a module's program is, as one digest: an answer about one program is not about another."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping

from protocol.descriptor import Descriptor
from protocol.frames import encode
from supervisor.runtime.file_digest import FileDigests
from supervisor.runtime.program import SpawnError, find_program, program_files


def program_digest(
    descriptor: Descriptor, environment: Mapping[str, str], files: FileDigests
) -> str:
    """Return a digest (hex) of the command and of the bytes of the files it names; may block."""
    paths = set(program_files(descriptor))
    with contextlib.suppress(SpawnError):  # then it cannot be run either
        paths.add(find_program(descriptor, environment))
    digests = [(path, files.digest(path)) for path in sorted(paths)]
    return hashlib.sha256(encode((descriptor.transport.command, digests))).hexdigest()
