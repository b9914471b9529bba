"""Find the program a descriptor names, and say in words why one cannot be run.

`exec` answers with one errno for many causes: ENOENT is a missing file, a missing interpreter, or
an interpreter whose name ends in a carriage return. The reader of the message wants the cause.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from protocol.descriptor.model import Descriptor
from protocol.problem import without_password
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.files.program_files import module_folder, program_files
from supervisor.runtime.process.environment import UnsetVariableError, resolved

SHEBANG_BYTES = 256
"""Linux reads no more of a `#!` line (BINPRM_BUF_SIZE)."""


class SpawnError(Exception):
    """A process could not be started; the message says why, in words for a person."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(without_password(message))
        self.code = code


def working_folder(descriptor: Descriptor) -> str:
    """Return the folder a module runs in; raises `SpawnError` if there is none."""
    folder = module_folder(descriptor)
    if os.path.isdir(folder):  # noqa: PTH112
        return folder
    if os.path.exists(folder):  # noqa: PTH110
        raise SpawnError(f"its working folder {folder} is not a folder", errno.ENOTDIR)
    raise SpawnError(f"its working folder {folder} is not there", errno.ENOENT)


def of_prepare(descriptor: Descriptor) -> Descriptor:
    """Return a descriptor whose command is what prepares it, which must be there."""
    transport = descriptor.transport
    transport = msgspec.structs.replace(transport, command=transport.prepare)
    return msgspec.structs.replace(descriptor, transport=transport)


def find_program(descriptor: Descriptor, environment: Mapping[str, str]) -> str:
    """Return the absolute path of `command[0]`; raises `SpawnError` if it cannot be executed.

    With a slash it is a path, relative to the descriptor's folder; else it is looked up in PATH.
    """
    path = named_program(descriptor)
    if path is not None:
        reason = refusal(Path(path))
        if reason is not None:
            raise SpawnError(reason)
        return path
    name = descriptor.transport.command[0]
    search = environment.get("PATH", os.defpath)
    found = shutil.which(name, path=search)
    if found is None:
        message = f"there is no program {name!r:.100} in its PATH"
        raise SpawnError(message, errno.ENOENT)
    return os.path.abspath(found)  # noqa: PTH100 - PATH may hold relative folders


def named_program(descriptor: Descriptor) -> str | None:
    """Return the absolute path of `command[0]`, there or not; None if it is no path."""
    name = descriptor.transport.command[0]
    return str(Path(descriptor.folder, name)) if "/" in name else None


def refusal(path: Path) -> str | None:
    """Say why a file cannot be executed, or None if nothing seems to speak against it."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"{path} is a dangling link" if path.is_symlink() else f"{path} is not there"
    except OSError as error:
        return f"{path} cannot be executed: {error.strerror}"
    except ValueError:
        return f"{str(path)!r} is not a path"
    if stat.S_ISDIR(mode):
        return f"{path} is a folder"
    if not stat.S_ISREG(mode):  # a FIFO, say: whoever opened it would wait
        return f"{path} is not a regular file"
    if not os.access(path, os.X_OK):
        return f"{path} is not executable (chmod +x would make it so)"
    return None


def explain(error: OSError, program: str) -> str:
    """Put what `exec` or `fork` answered into words."""
    match error.errno:
        case errno.ENOENT | errno.EACCES | errno.ENOTDIR | errno.ELOOP | errno.ENAMETOOLONG:
            return refusal(Path(program)) or explain_interpreter(Path(program)) or _plain(error)
        case errno.ENOEXEC:
            return f"{program} has no #! line and is not a program for this machine"
        case errno.E2BIG:
            return "its command and environment are larger than the system allows"
        case errno.ETXTBSY:
            return f"{program} is being written by another process"
        case errno.EAGAIN:
            return "the system allows no more processes for this user (ulimit -u)"
        case errno.ENOMEM:
            return "the system has no memory for another process"
        case errno.EMFILE | errno.ENFILE:
            return "the daemon has no file descriptor left for another process (ulimit -n)"
        case _:
            return _plain(error)


def explain_interpreter(path: Path, search: str | None = None) -> str | None:
    """Say what is wrong with the `#!` line of a program, or None if nothing is, or it has none.

    `search` is the PATH of the process that runs it, in which `env` looks.
    """
    try:
        with path.open("rb") as file:
            first = file.readline(SHEBANG_BYTES)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    if first.rstrip(b"\n").endswith(b"\r"):
        return f"the #! line of {path} ends in a carriage return (Windows line ending); remove it"
    words = first[2:].split()
    interpreter = words[0].decode(errors="replace") if words else ""
    if not interpreter:
        return f"the #! line of {path} names no interpreter"
    reason = refusal(Path(interpreter))
    if reason is not None:
        return f"the #! line of {path} names {interpreter}: {reason}"
    if Path(interpreter).name != "env" or search is None:
        return None
    # The kernel hands over all that follows as one word.
    rest = first[2:].strip().decode(errors="replace").partition(interpreter)[2].strip()
    wrong = env_problem([rest] if rest else [], search)
    return None if wrong is None else f"the #! line of {path} runs env, and {wrong}"


_QUOTING = frozenset("/$\"'\\")
_ENV_OPTIONS_WITH_VALUE = frozenset({"-u", "-C", "--unset", "--chdir"})


def env_problem(words: list[str], search: str | None) -> str | None:
    """Say, as a clause, why `env` with these words would find no program; None if it may."""
    if words and words[0].startswith("-S"):
        words = [*filter(None, [words[0].removeprefix("-S")]), *words[1:]]
        words = [*words[0].split(), *words[1:]] if words else []
    while words and (words[0].startswith("-") or "=" in words[0].partition("/")[0]):
        if words[0].startswith("-S") or words[0].startswith("--split-string"):
            return None
        words = words[2:] if words[0] in _ENV_OPTIONS_WITH_VALUE else words[1:]
    # With quotes and `$` in it, only env knows what it means.
    if not words or not _QUOTING.isdisjoint(words[0]) or shutil.which(words[0], path=search):
        return None
    name, _, options = words[0].partition(" ")
    if options and shutil.which(name, path=search):
        return f"it is given {words[0]!r:.100} as one word: write `env -S {words[0]:.100}`"
    return f"there is no program {words[0]!r:.100} in its PATH"


def _plain(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


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
        descriptor, environment = resolved(descriptor, host, "")
        path = find_program(descriptor, environment)
        folder = os.stat(working_folder(descriptor))  # noqa: PTH116 - before each warm invocation
    except (OSError, SpawnError, UnsetVariableError):
        return None
    files = [path, *program_files(descriptor)]
    found = {file: digests.digest(file) for file in files}
    return LoadedProgram(path, (folder.st_dev, folder.st_ino), found)
