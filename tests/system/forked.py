"""Daemons without their imports, which are most of what a start takes: forked where they are done.

    a test's process ---- a process that has imported a daemon ---- clone3 ---- a daemon
                                (this file as a program)

What is forked is `python -m supervisor.cli` from its first line on: arguments, environment, session
and descriptors are those it would have been started with, and it is the child of the test's process
(CLONE_PARENT), which waits for it as for any other. Only /proc shows the command line and the
environment of what it was forked from. Tests of starting itself start one (`daemon.start`), and a
daemon within a test that takes each child of its process for a module's has this one ended.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping

IMPORTED = ("supervisor.cli.verbs.run", "supervisor.daemon.serve", "supervisor.kernel.journal")
"""With all that these import, a daemon has next to nothing left to import until it is ready."""

READ_AT_START = ("PYTHON", "LD_", "LANG", "LC_", "GLIBC_", "MALLOC_", "TZ")
"""What variables begin with that an interpreter or its libraries read before the first line."""

MOST_BYTES = 1 << 17
"""Of what is asked, which is an environment and a command line."""

BORN = struct.Struct("i")
"""What it answers: a pid, or an errno below 0."""

_SYS_CLONE3 = 435
_CLONE_PARENT = 0x8000


class Forked(subprocess.Popen[bytes]):
    """A daemon that this process has not started, though it is its child."""

    def __init__(self, pid: int, words: list[str]) -> None:
        self.args = words
        self.pid = pid
        self.stdin = self.stdout = self.stderr = None
        self.returncode = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True


class _Source:
    """The process that daemons are forked from."""

    def __init__(self) -> None:
        self.folder = os.getcwd()  # noqa: PTH109 - compared, and no more
        self.variables = read_at_start(os.environ)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(
        self,
        words: list[str],
        environment: Mapping[str, str],
        log: int,
        ready: int,
        *,
        session: bool,
    ) -> int:
        what = {"words": words, "environment": dict(environment)}
        asked = json.dumps({**what, "session": session, "ready": ready}).encode()
        socket.send_fds(self._channel, [asked], [log, ready])
        answer = self._channel.recv(BORN.size)
        assert answer, "what daemons are forked from has ended"
        (pid,) = BORN.unpack(answer)
        return int(pid)

    def has_ended(self) -> bool:
        """Whether a test has killed it, say with all children that it found."""
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._channel.close()
        self._process.wait()


_source: _Source | None = None


def fork(
    words: list[str], environment: Mapping[str, str], log: int, ready: int, *, session: bool
) -> Forked | None:
    """Fork a daemon, or return None if it has to be started to be what is asked for.

    `log` and `ready` are descriptors: its stdout and stderr, and one that it inherits. `session`
    is whether it leads one.
    """
    global _source  # noqa: PLW0603 - one for each process of the suite
    if words[:3] != [sys.executable, "-m", "supervisor.cli"]:
        return None
    if _source is not None and _source.has_ended():
        end()
    if _source is None:
        _source = _Source()
    if _source.folder != os.getcwd() or _source.variables != read_at_start(environment):  # noqa: PTH109
        return None
    pid = _source.fork(words[3:], environment, log, ready, session=session)
    return Forked(pid, words) if pid > 0 else None


def end() -> None:
    """Have no process to fork from, until the next daemon is."""
    global _source  # noqa: PLW0603
    if _source is not None:
        _source.end()
        _source = None


def kill() -> None:
    """Kill what daemons are forked from, as a test may that kills each child that it finds."""
    assert _source is not None
    _source.kill()


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those variables that no forked process can be given any more."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


# In the process that daemons are forked from.


class _CloneArgs(ctypes.Structure):
    """`struct clone_args` of include/uapi/linux/sched.h, as it was at first."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "flags", "pidfd", "child_tid", "parent_tid",
            "exit_signal", "stack", "stack_size", "tls",
        )
    )  # fmt: skip


def wait_to_be_forked(channel: socket.socket) -> bool:
    """Fork until the channel ends; returns, as True, in each daemon."""
    libc = ctypes.PyDLL(None, use_errno=True)  # the child has to have the interpreter's lock
    libc.syscall.restype = ctypes.c_long
    clone = _CloneArgs(flags=_CLONE_PARENT)
    call = (ctypes.c_long(_SYS_CLONE3), ctypes.byref(clone), ctypes.c_size_t(ctypes.sizeof(clone)))
    gc.collect()
    gc.freeze()  # what is not looked at is not copied
    while True:
        asked, descriptors, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
        if not asked:
            return False
        ctypes.pythonapi.PyOS_BeforeFork()
        pid = libc.syscall(*call)
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            channel.close()
            _become(*descriptors, **json.loads(asked))
            return True
        number = ctypes.get_errno()
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        for one in descriptors:
            os.close(one)
        channel.send(BORN.pack(pid if pid > 0 else -number))


def _become(
    log: int,
    its_ready: int,
    *,
    words: list[str],
    environment: dict[str, str],
    session: bool,
    ready: int,
) -> None:
    """Be what an interpreter is before the first line; `ready` is the number to be inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(its_ready, ready)
    if its_ready == ready:
        os.set_inheritable(ready, True)
    else:
        os.close(its_ready)
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words


def main() -> None:
    """Import what a daemon does, the way it does, and be forked."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.path[0] = os.getcwd()  # noqa: PTH109 - as `-m` has it
    gc.disable()
    sys.modules["rich"] = None  # type: ignore[assignment] # as in supervisor.cli.main
    for name in IMPORTED:
        importlib.import_module(name)
    if wait_to_be_forked(socket.socket(fileno=int(sys.argv.pop()))):
        importlib.import_module("supervisor.cli.main").main()


if __name__ == "__main__":
    main()
