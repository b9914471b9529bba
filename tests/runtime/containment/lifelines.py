"""Know which processes live, by sockets: each connects to the test, and EOF is its death."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from pathlib import Path
from typing import Any

import trio

from tests.bounds import until

PATIENCE_S = 60.0
"""The bound of every wait: far beyond what any of them takes."""

STUBBORN = Path(__file__).with_name("stubborn.py")


class Lifelines:
    """The listening end of the lifelines."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "life"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(4096)
        self._listener.settimeout(PATIENCE_S)
        self._lines: list[tuple[str, int, socket.socket]] = []

    def take(self, *labels: str) -> list[int]:
        """Wait until processes with these labels have connected; returns their pids."""
        wanted = list(labels)
        pids: list[int] = []
        while wanted:
            line, _ = self._listener.accept()
            line.settimeout(PATIENCE_S)
            label, pid = line.recv(100).decode().split()
            wanted.remove(label)
            pids.append(int(pid))
            self._lines.append((label, int(pid), line))
        return pids

    def take_all(self, count: int) -> None:
        """Wait for so many processes, whatever their labels."""
        for _ in range(count):
            line, _ = self._listener.accept()
            line.settimeout(PATIENCE_S)
            self._lines.append(("", 0, line))

    def wait_dead(self) -> None:
        """Wait until everybody who connected is dead."""
        for label, pid, line in self._lines:
            try:
                assert line.recv(1) == b""
            except ConnectionResetError:
                pass
            except TimeoutError:
                raise AssertionError(f"{label} (pid {pid}) still lives") from None
            line.close()
        self._lines.clear()

    def dead_already(self) -> bool:
        """Whether everybody is dead now, without waiting."""
        for _, _, line in self._lines:
            line.setblocking(False)
            try:
                line.recv(1)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                pass
            finally:
                line.settimeout(PATIENCE_S)
        return True

    def close(self) -> None:
        for _, _, line in self._lines:
            line.close()
        self._listener.close()

    # The same, for tests under trio.

    async def taken(self, *labels: str) -> list[int]:
        return await trio.to_thread.run_sync(self.take, *labels)

    async def all_dead(self) -> None:
        await trio.to_thread.run_sync(self.wait_dead)


def describe(
    folder: Path, lifelines: Lifelines, *vices: str, name: str = "stubborn", **supervision: Any
) -> Path:
    """Write the descriptor of a stubborn module; returns its path."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    command = [sys.executable, "-I", "-S", str(STUBBORN), name, str(lifelines.path), *vices]
    document = {
        "name": name,
        "kind": "tool",
        "capabilities": [],
        "transport": {"type": "stdio", "command": command},
        "supervision": {
            "restart": "temporary",
            "timeouts": {"start_s": PATIENCE_S, "exit_s": 0.05, "stop_s": 0.05},
            **supervision,
        },
    }
    path.write_text(json.dumps(document))
    return path


def letter(pid: int) -> str:
    """Return the state of a process's main thread, as /proc has it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def gone(pid: int) -> bool:
    """Whether nothing of a process is left, no zombie either, once its parent has reaped it."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    finally:
        os.close(pidfd)
    if not ended:
        return False
    # The kernel tells nobody but the parent of what is left to do: to reap it. If that is the first
    # process, it may take a second.
    return until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} being reaped")
