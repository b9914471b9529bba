"""A daemon that is killed leaves nobody whose main thread has ended either (docs/faults.md, 27)."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import until
from tests.runtime.containment.lifelines import Lifelines, describe, gone, letter
from tests.system.daemon_process import DaemonProcess


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sd") as folder:
        yield Path(folder)


@pytest.fixture
def daemon(rung: str, lifelines: Lifelines, home: Path) -> Iterator[DaemonProcess]:
    """Run a headless leader, and another one with a headless grandchild."""
    describe(home / "modules", lifelines, "headless", "ignores_term", name="leader")
    describe(home / "modules", lifelines, "ignores_term", "beheaded", name="parent")
    made = DaemonProcess(home / "modules", home, rung)
    made.ask("supervisor", "wait", modules=["leader", "parent"])
    pids = lifelines.take("leader", "leader", "beheaded")
    until(lambda: [letter(pid) for pid in pids].count("Z") == 2, "two main threads having ended")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.fault(27, 2)
def test_the_guardian_kills_those_whose_main_thread_has_ended(
    daemon: DaemonProcess, lifelines: Lifelines
) -> None:
    guardian = daemon.status()["daemon"]["guardian_pid"]
    daemon.kill()
    lifelines.wait_dead()
    assert gone(guardian)  # it writes to the data's folder


@pytest.mark.fault(27, 2)
def test_the_next_daemon_kills_them_if_the_guardian_died_too(
    daemon: DaemonProcess, lifelines: Lifelines, home: Path, rung: str
) -> None:
    guardian = daemon.status()["daemon"]["guardian_pid"]
    daemon.popen.send_signal(signal.SIGSTOP)  # it cannot replace the guardian
    os.kill(guardian, signal.SIGKILL)
    daemon.kill()
    assert not lifelines.dead_already()
    following = DaemonProcess(home / "modules", home, rung)
    lifelines.wait_dead()
    following.close()
