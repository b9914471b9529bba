"""Files that do not answer keep those who need them, and nobody else; row 36."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from supervisor.runtime.process.spawn_threads import AT_ONCE
from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.dead_mount import dead_mount
from tests.system.descriptors import descriptor, misbehaving, write


def stuck(daemon: Daemon) -> set[str]:
    return {one["doing"] for one in daemon.op("status")["daemon"]["stuck"]}


@pytest.mark.fault(36)
def test_looks_at_files_that_do_not_answer_hold_up_nobody_else_and_are_named(
    folder: Path, start_daemon: StartDaemon
) -> None:
    with dead_mount(folder / "mount") as mount:
        daemon = start_daemon(misbehaving("live"))
        searched = {"PATH": f"{mount}:/usr/bin:/bin"}
        write(
            daemon.modules, descriptor("probed", ["sh"], lifecycle="per-invocation", env=searched)
        )
        daemon.op("reload")
        watched = descriptor("watched", ["sh", str(mount / "x")], supervision={"watch": True})
        write(daemon.modules, watched)
        with daemon.connect() as other:
            other.send("supervisor", "invoke", {"op": "reload", "args": {}})
            both = {
                "finding the program of probed",
                "reading the descriptors and their programs",
            }
            until(lambda: both <= stuck(daemon), "the looks that are stuck")
            os.kill(daemon.pid("live"), signal.SIGKILL)
            assert daemon.usable("live").ok
            assert daemon.client.op("logs", module="live", lines=1).ok
            assert daemon.client.op("events", last=1).ok
    until(lambda: not stuck(daemon), "nothing being stuck")


@pytest.mark.fault(36)
def test_spawns_that_wait_for_a_dead_mount_leave_their_places_to_others(
    folder: Path, start_daemon: StartDaemon
) -> None:
    names = [f"dead{number}" for number in range(AT_ONCE + 2)]
    with dead_mount(folder / "mount") as mount:
        daemon = start_daemon(misbehaving("live"))
        path = f"{mount}:/usr/bin:/bin"
        write(
            daemon.modules,
            *(descriptor(name, [str(mount / "program")]) for name in names),
            descriptor("sought", ["program"], env={"PATH": path}),
            misbehaving("late"),
        )
        daemon.op("reload")
        assert daemon.usable("late").ok
        os.kill(daemon.pid("live"), signal.SIGKILL)
        assert daemon.usable("live").ok
        expected = {f"spawning {name}#1" for name in [*names, "sought"]}
        until(lambda: expected <= stuck(daemon), "all that is stuck")
    until(lambda: not stuck(daemon), "nothing being stuck")
