"""Be the spawner: make processes that are born in a cgroup, and wait there for a program.

    daemon --- spawner ---clone3---> blank ---execve---> a module's process

A process that is moved into its cgroup after its start waits for the kernel until all processors
have passed a quiet point (an RCU grace period), 5 ms and more unless another was moved a moment
ago. A blank was there all its life (CLONE_INTO_CGROUP, Linux 5.7), so none of what it becomes was
ever outside. It is the daemon's child, not the spawner's (CLONE_PARENT): the daemon has a pidfd of
it and its exit status. Since a blank is made before it is needed, a request waits for `execve` and
for nothing else.

Both wait in `recvmsg`, and end with the socket they wait at, whatever the daemon dies of; both bear
the marks of its modules' processes, so they are killed as such, too. Standard library only, and few
imports: it stays, each blank is a copy of it, and what that has to give back at its `execve` is
waited for. So `_socket` and `_signal` stand for what is built upon them (`enum`, `selectors`),
which would make the copy a third larger.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # typeshed has none
import _socket
import ctypes
import errno
import gc
import marshal
import os
import resource
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

BRAND = struct.Struct("q")
"""What the spawner is told: the brand of the next blank."""

BORN = struct.Struct("i")
"""What it answers: a pid, or an errno below 0."""

TOLD = struct.Struct("4i")
"""The descriptors a blank is given: stdin, stdout, stderr, and where it complains."""

MOST_BYTES = 1 << 18
"""Of one message; the kernel's own bound on what is sent is below that (net.core.wmem_default)."""

PLAIN = (b"/", [b"word"] * 3, {b"NAME%d" % number: b"value" * 8 for number in range(32)}, b"/")
"""What a blank rehearses with: a folder, which is no program."""

_SYS_CLONE3 = 435
_CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x2_0000_0000
_RLIMIT_LOCKS = 10


class _CloneArgs(ctypes.Structure):
    """`struct clone_args` of include/uapi/linux/sched.h."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size",
            "tls", "set_tid", "set_tid_size", "cgroup",
        )
    )  # fmt: skip


def main(descriptor: int) -> None:
    """Make blanks until the socket ends."""
    # Python ignores or handles them; what a blank becomes has them as any other program.
    for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    channel = _socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - it has no names
    # With the interpreter's lock held: the copy has to have it.
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    asked = _CloneArgs(flags=_CLONE_INTO_CGROUP | _CLONE_PARENT)
    call = (ctypes.c_long(_SYS_CLONE3), ctypes.byref(asked), ctypes.c_size_t(ctypes.sizeof(asked)))
    hard = resource.getrlimit(_RLIMIT_LOCKS)[1]
    gc.collect()
    gc.freeze()  # what is not looked at is not copied
    gc.disable()
    while True:
        told, descriptors = receive(channel)
        if len(descriptors) != 2:  # noqa: PLR2004 - the blank's socket, and its cgroup
            return
        own, asked.cgroup = descriptors
        (brand,) = BRAND.unpack(told)
        if brand >= 0:
            resource.setrlimit(_RLIMIT_LOCKS, (brand, hard))
        pid = libc.syscall(*call)
        if pid == 0:
            channel.close()
            os.close(asked.cgroup)
            _wait(own)
        channel.send(BORN.pack(pid if pid > 0 else -ctypes.get_errno()))
        os.close(own)
        os.close(asked.cgroup)


def receive(channel: _socket.socket) -> tuple[memoryview, list[int]]:
    """Wait for a message and its descriptors; nothing of either is the end."""
    told = memoryview(bytearray(MOST_BYTES))
    room = _socket.CMSG_SPACE(TOLD.size)
    size, ancillary, _, _ = channel.recvmsg_into([told], room, _socket.MSG_CMSG_CLOEXEC)
    descriptors = [one for _, _, data in ancillary for one in memoryview(data).cast("i")]
    return told[:size], descriptors


def _wait(descriptor: int) -> NoReturn:
    """Be a blank: lead a session, and wait to be told what to become."""
    try:
        os.setsid()
        _rehearse()
        told, descriptors = receive(_socket.socket(fileno=descriptor))
        if descriptors:
            _become(told, descriptors)
    finally:
        os._exit(127)


def _rehearse() -> None:
    """Do it all once, in vain: what is written to is copied now, and not while a call waits."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    level, kind = _socket.SOL_SOCKET, _socket.SCM_RIGHTS
    ours.sendmsg([marshal.dumps(PLAIN)], [(level, kind, TOLD.pack(0, 0, 0, 0))])
    told, descriptors = receive(theirs)
    _become(told, descriptors)
    for one in descriptors:
        os.close(one)
    ours.close()
    theirs.close()


def _become(told: memoryview, descriptors: list[int]) -> None:
    """Become a program, or say at which step the kernel refused that, and why."""
    *streams, complaint = descriptors
    step = "chdir"
    try:
        program, arguments, environment, folder = marshal.loads(told)  # noqa: S302 - the daemon wrote it
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(folder)
        step = "exec"
        os.execve(program, arguments, environment)  # noqa: S606 - that is what it is for
    except OSError as error:
        os.write(complaint, f"{step} {error.errno}".encode())
    except ValueError:  # a NUL in a word
        os.write(complaint, f"{step} {errno.EINVAL}".encode())


def command(descriptor: int) -> list[str]:
    here = os.path.abspath(__file__)  # noqa: PTH100
    for _ in range(4):  # containment, runtime, supervisor, and the folder they are imported from
        here = os.path.dirname(here)  # noqa: PTH120
    program = (
        "import sys; sys.path.append(sys.argv[1]); "
        "from supervisor.runtime.containment.spawner import main; "
        "main(int(sys.argv[2]))"
    )
    return [sys.executable, "-I", "-S", "-c", program, here, str(descriptor)]
