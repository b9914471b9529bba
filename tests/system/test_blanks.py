"""The spawner and the processes it made die with the daemon, before and after they are asked."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import until
from tests.runtime.containment.conftest import why_not
from tests.runtime.containment.lifelines import Lifelines, describe, gone
from tests.system.daemon_process import DaemonProcess

pytestmark = pytest.mark.skipif(why_not("cgroup2") is not None, reason=str(why_not("cgroup2")))


@pytest.fixture
def daemon(lifelines: Lifelines) -> Iterator[DaemonProcess]:
    """Run a daemon with a tool that goes on when its input has ended."""
    with tempfile.TemporaryDirectory(prefix="sd") as folder:
        home = Path(folder)
        path = describe(home / "modules", lifelines, "ignores_term", name="tool")
        document = json.loads(path.read_text())
        document["transport"]["lifecycle"] = "per-invocation"
        document["supervision"]["concurrency"] = 2
        path.write_text(json.dumps(document))
        made = DaemonProcess(home / "modules", home, "cgroup2")
        yield made
        made.close()


def helpers(daemon: DaemonProcess) -> list[int]:
    """Wait until a blank waits; returns the pids of the spawner, of that, and of the guardian."""

    def found() -> list[int] | None:
        shown = daemon.status()["daemon"]
        pids = [shown[f"{one}_pid"] for one in ("spawner", "blank", "guardian")]
        return None if None in pids else pids

    return until(found, "a blank that waits")


@pytest.mark.fault(2)
@pytest.mark.parametrize("stopped", [False, True])
def test_they_die_with_a_daemon_that_is_killed(
    daemon: DaemonProcess, lifelines: Lifelines, stopped: bool
) -> None:
    daemon.begin("tool", "hang").detach()
    lifelines.take("leader")
    pids = helpers(daemon)
    if stopped:  # it does not even see that the daemon is gone
        for pid in pids[:2]:
            os.kill(pid, signal.SIGSTOP)
    daemon.kill()
    lifelines.wait_dead()
    assert all(gone(pid) for pid in pids)


@pytest.mark.fault(2)
def test_what_it_became_dies_with_a_daemon_that_is_killed(
    daemon: DaemonProcess, lifelines: Lifelines
) -> None:
    daemon.begin("tool", "hang").detach()
    lifelines.take("leader")
    pids = helpers(daemon)
    daemon.begin("tool", "hang").detach()
    (lone,) = lifelines.take("leader")
    assert lone == pids[1]
    daemon.kill()
    lifelines.wait_dead()
    assert all(gone(pid) for pid in pids)


@pytest.mark.fault(2)
def test_they_see_a_daemon_end_that_is_killed_together_with_its_guardian(
    daemon: DaemonProcess, lifelines: Lifelines
) -> None:
    daemon.begin("tool", "leave").detach()
    lifelines.take("leader")
    pids = helpers(daemon)
    daemon.popen.send_signal(signal.SIGSTOP)  # it cannot replace the guardian
    os.kill(pids[2], signal.SIGKILL)
    daemon.kill()
    assert all(gone(pid) for pid in pids)
