"""A debugger that has stopped a process and has gone to lunch: ptrace(2) by ctypes.

    tracer.py PID [exit]

Attaches to all threads of PID, says `attached`, and holds them until its stdin ends. With `exit` it
has them stop once more on their way out, where a SIGKILL has no effect any more.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

ATTACH, SETOPTIONS, TRACEEXIT, WALL = 16, 0x4200, 0x40, 0x40000000


class Tracer:
    """Holds a process until `release`."""

    def __init__(self, pid: int, *words: str) -> None:
        """Return once it is held; `exit` is the only word there is."""
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(pid), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        assert self._popen.stdout is not None
        said = self._popen.stdout.readline().decode().strip()
        if said != "attached":
            self.release()
            assert said, f"process {pid} could not be held"
            import pytest  # noqa: PLC0415 - the program itself runs without it

            pytest.skip(f"no process may be traced here: {said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let go of it."""
        with self._popen:
            pass  # closes the pipes, waits


def hold(pid: int, *words: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    for thread in [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]:
        if libc.ptrace(ATTACH, thread, 0, 0) != 0:
            print(os.strerror(ctypes.get_errno()), flush=True)  # noqa: T201
            sys.exit(1)
        os.waitpid(thread, WALL)
        if "exit" in words:
            libc.ptrace(SETOPTIONS, thread, 0, TRACEEXIT)
    print("attached", flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    hold(int(sys.argv[1]), *sys.argv[2:])
