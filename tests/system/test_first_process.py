"""The daemon as the first process of a container: a pid namespace of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import until
from tests.system.client import Client
from tests.system.daemon import MARKER, command, marked
from tests.system.descriptors import misbehaving, per_invocation, write
from tests.system.liveness import BOUND_S, Liveness, Member

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _why_not() -> str | None:
    try:
        tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no unshare(1)"
    return None if tried.returncode == 0 else f"no pid namespace: {tried.stderr.strip()}"


WHY_NOT = _why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


class Container:
    """A daemon that is PID 1, and the process that made its namespace."""

    def __init__(self, folder: Path, *documents: dict[str, object]) -> None:
        write(folder / "modules", *documents)
        self.marker = folder.name
        self.log = folder / "log"
        words = [*UNSHARE, *command(folder / "modules", folder / "socket", folder / "data")]
        reading, writing = os.pipe()
        with self.log.open("wb") as log, os.fdopen(reading, "rb") as ready:
            self.unshare = subprocess.Popen(
                [*words, "--ready-fd", str(writing)],
                stdout=log,
                stderr=log,
                env={**os.environ, MARKER: self.marker},
                pass_fds=[writing],
            )
            os.close(writing)
            # A line and not the end: unshare(1) has inherited the pipe and keeps it.
            assert ready.readline() == b"ready\n", self.log.read_text()
        self.client = Client(folder / "socket")
        self.pid = peer(self.client.socket)

    def reaped(self) -> int:
        """Return how many orphans it has reaped."""
        number: int = self.client.op("status").result["daemon"]["reaped_orphans"]
        return number

    def end(self) -> int:
        """End it as a container's runtime would; returns its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.unshare.wait(BOUND_S)


@pytest.fixture
def liveness_variable(liveness: Liveness) -> dict[str, str]:
    return {"LIVENESS": str(liveness.path)}


@pytest.fixture
def container(folder: Path, liveness_variable: dict[str, str]) -> Iterator[Container]:
    made = Container(
        folder,
        misbehaving("one", env=liveness_variable),
        per_invocation("once", concurrency=4),
    )
    yield made
    if made.unshare.poll() is None:
        made.unshare.kill()  # takes PID 1 along, and so the whole namespace
        made.unshare.wait()
    made.client.close()
    sys.stdout.write(made.log.read_text())


def peer(connection: socket.socket) -> int:
    """Return the pid of the other side as we know it, whatever its own namespace calls it."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", data)[0])


def kill(member: Member) -> None:
    """Kill a process of the container from outside."""
    os.kill(peer(member.connection), signal.SIGKILL)
    member.wait_gone()


def zombies(parent: int) -> int:
    """Return how many zombies a process has not reaped."""
    number = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, ppid = path.read_text().rpartition(")")[2].split()[:2]
            number += state == "Z" and int(ppid) == parent
    return number


def test_it_is_the_first_process(container: Container) -> None:
    assert container.client.op("status").result["daemon"]["pid"] == 1


@pytest.mark.fault(25)
def test_sigterm_ends_it_in_order_though_it_has_no_default_actions(
    container: Container, liveness: Liveness
) -> None:
    (module,) = liveness.wait_for("module")
    assert container.end() == 0
    module.wait_gone()
    assert not marked(container.marker)
    assert '"event": "stopped"' in container.log.read_text()


@pytest.mark.fault(25)
def test_adopted_orphans_are_reaped_and_no_module_loses_its_exit_status(
    container: Container, liveness: Liveness
) -> None:
    client = container.client
    for _ in range(5):
        assert client.invoke("one", fault="escapee").ok
    escapees = liveness.wait_for("escapee", 5)
    before = container.reaped()
    open_requests = [client.send_invoke("once", fault="exit", code=n) for n in range(1, 21)]
    for escapee in escapees:
        kill(escapee)
    codes = [client.answer(one).details["exit_code"] for one in open_requests]
    assert codes == list(range(1, 21))
    until(lambda: container.reaped() >= before + 5, "five orphans being reaped")
    # The leader dies, and leaves the zombies of those that stood between it and its escapees.
    died = client.invoke("one", fault="exit", code=7)
    assert died.details["exit_code"] == 7
    until(lambda: container.reaped() >= before + 10, "ten orphans being reaped")
    assert zombies(container.pid) == 0
    assert container.end() == 0


def test_a_signal_before_there_is_anything_to_stop_ends_it_too() -> None:
    # What `serve` begins with; the rest of the daemon is a wait that nothing else would end.
    program = """
import sys
from supervisor.daemon.daemon_signals import Edges
Edges()
print("begun", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [*UNSHARE, sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            (first,) = map(int, children.split())
            os.kill(first, signal.SIGTERM)
            assert process.wait(BOUND_S) == 128 + signal.SIGTERM
        finally:
            process.kill()
