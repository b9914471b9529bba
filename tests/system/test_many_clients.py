"""More clients and modules than a careless limit on open files has room for; row 31."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.containment.lifelines import Lifelines, describe
from tests.system.client import Client
from tests.system.daemon import command, start
from tests.system.daemon_process import DaemonProcess
from tests.system.descriptors import misbehaving, write
from tests.system.liveness import BOUND_S

NOFILE = resource.RLIMIT_NOFILE


@pytest.mark.fault(31)
def test_a_crowd_of_idle_clients_keeps_neither_a_module_nor_an_operator_out(
    lifelines: Lifelines, folder: Path
) -> None:
    at_once = {"initial_s": 0.01, "factor": 1, "max_s": 0.01, "jitter": 0}
    always: dict[str, Any] = {"restart": "permanent", "intensity": 1000, "backoff": at_once}
    describe(folder / "modules", lifelines, name="one", **always)
    daemon = DaemonProcess(folder / "modules", folder)
    try:
        (pid,) = lifelines.take("leader")
        daemon.ask("supervisor", "wait", modules=["one"])
        resource.prlimit(daemon.popen.pid, NOFILE, (1024, 1024))
        with contextlib.ExitStack() as crowd:
            for _ in range(990):
                crowd.enter_context(daemon.connect())
            os.kill(pid, signal.SIGKILL)
            lifelines.take("leader")
            daemon.ask("supervisor", "wait", modules=["one"])
            assert daemon.ask("one", "echo", x=1)["result"] == {"x": 1}
            facts = daemon.status()["daemon"]
            used, limit = facts["open_files"]["used"], facts["open_files"]["limit"]
            assert facts["connections"]["open"] < used < limit == 1024
            assert facts["connections"]["refused"] > 0
            assert daemon.ask("supervisor", "shutdown")["ok"]
            assert daemon.popen.wait(BOUND_S) == 0
    finally:
        daemon.close()


@pytest.mark.fault(31)
def test_a_client_there_is_no_room_for_is_told_so(folder: Path) -> None:
    write(folder / "modules")
    daemon = DaemonProcess(folder / "modules", folder)
    try:
        daemon.status()  # by then it has raised its limit
        resource.prlimit(daemon.popen.pid, NOFILE, (64, 1024))
        with contextlib.ExitStack() as crowd:
            clients = [crowd.enter_context(daemon.connect()) for _ in range(60)]
            refused = [line for one in clients if (line := _end(one))]
            assert refused
            assert all('"reason":"queue_full"' in one and "try again" in one for one in refused)
    finally:
        daemon.close()


def _end(client: socket.socket) -> str:
    """Return what the daemon said to one that it parted from, answered before that or not."""
    with contextlib.suppress(OSError):  # it has parted already
        client.sendall(b'{"requestId":"s","tool":"supervisor","operation":"health","input":{}}\n')
        client.shutdown(socket.SHUT_WR)
    said: list[str] = []
    with client.makefile("r") as lines, contextlib.suppress(ConnectionResetError):
        said.extend(line for line in lines if '"requestId":"s"' not in line)
    return "".join(said)


@pytest.mark.fault(31)
def test_the_soft_limit_is_raised_and_modules_get_theirs_back(folder: Path) -> None:
    hard = resource.getrlimit(NOFILE)[1]
    names = [f"m{number}" for number in range(16)]
    own = misbehaving("own", limits={"open_files": 99})
    write(folder / "modules", own, *(misbehaving(name) for name in names))
    words = command(folder / "modules", folder / "socket", folder / "data")
    lowered = ["sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh", *words]
    process, ready = start(lowered, os.environ, 2)
    try:
        assert ready
        with Client(folder / "socket") as client:
            client.op("wait", **{"for": "verdict"})
            modules = client.op("status").result["modules"]
            assert {one["name"]: one["state"] for one in modules} == dict.fromkeys(
                ["own", *names], "ready"
            )
            limits = {
                one["name"]: resource.prlimit(one["instances"][0]["pid"], NOFILE) for one in modules
            }
            assert limits == {"own": (99, 99), **dict.fromkeys(names, (64, hard))}
            assert resource.prlimit(process.pid, NOFILE)[0] > 64
    finally:
        process.terminate()
        process.wait(BOUND_S)
