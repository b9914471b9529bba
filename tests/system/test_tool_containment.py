"""A process per invocation is in a cgroup if it has a memory limit, or if one is asked for."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.containment.conftest import why_not
from tests.runtime.containment.lifelines import Lifelines, describe, gone
from tests.system.daemon_process import DaemonProcess

RUNAWAYS = ("child", "setsid", "double", "bare")


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sd") as folder:
        yield Path(folder)


def tool(home: Path, lifelines: Lifelines, *vices: str, name: str = "tool", **limits: int) -> None:
    """Describe a tool that goes on when its input has ended."""
    path = describe(home / "modules", lifelines, "ignores_term", *vices, name=name, limits=limits)
    document = json.loads(path.read_text())
    document["transport"]["lifecycle"] = "per-invocation"
    path.write_text(json.dumps(document))


def cgroup(pid: int) -> str:
    """Return the last name in the path of a process's cgroup."""
    return Path(f"/proc/{pid}/cgroup").read_text().strip().rpartition("/")[2]


@pytest.mark.fault(7)
@pytest.mark.skipif(why_not("cgroup2") is not None, reason=str(why_not("cgroup2")))
@pytest.mark.parametrize("asked", [None, "cgroup2"])
def test_a_tool_has_a_cgroup_if_the_configuration_asks_for_it(
    home: Path, lifelines: Lifelines, asked: str | None
) -> None:
    tool(home, lifelines)
    tool(home, lifelines, name="limited", memory_bytes=1 << 30)
    describe(home / "modules", lifelines, name="persistent")
    daemon = DaemonProcess(home / "modules", home, asked)
    try:
        (persistent,) = lifelines.take("leader")
        pids = {"persistent#1": persistent}
        for name in ("tool", "limited"):
            daemon.begin(name, "hang").detach()
            (pids[f"{name}#1"],) = lifelines.take("leader")
        shown = daemon.status()["daemon"]
        held = {name for name, pid in pids.items() if cgroup(pid) == name}
    finally:
        daemon.close()
    assert shown["containment"] == "cgroup2"
    assert shown["tool_containment"] == (asked or "subreaper")
    assert held == {"persistent#1", "limited#1"} | ({"tool#1"} if asked else set())
    lifelines.wait_dead()


def containment_of_tools(rung: str) -> str | None:
    """Return the configuration by which a tool without a memory limit is on this rung."""
    if rung == "subreaper" and why_not("cgroup2") is None:
        return None
    return rung


@pytest.mark.fault(2)
def test_a_daemon_that_is_killed_leaves_nothing_of_a_tool(
    home: Path, lifelines: Lifelines, rung: str
) -> None:
    tool(home, lifelines, *RUNAWAYS)
    daemon = DaemonProcess(home / "modules", home, containment_of_tools(rung))
    daemon.begin("tool", "hang").detach()
    pids = lifelines.take("leader", *RUNAWAYS)
    daemon.kill()
    lifelines.wait_dead()
    assert all(map(gone, pids))


@pytest.mark.fault(7)
def test_the_end_of_a_tool_is_that_of_all_it_started(
    home: Path, lifelines: Lifelines, rung: str
) -> None:
    tool(home, lifelines, *RUNAWAYS)
    daemon = DaemonProcess(home / "modules", home, containment_of_tools(rung))
    try:
        daemon.begin("tool", "hang").detach()
        leader, *_ = lifelines.take("leader", *RUNAWAYS)
        os.kill(leader, signal.SIGKILL)
        lifelines.wait_dead()
    finally:
        daemon.close()
