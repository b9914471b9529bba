"""No process of any module is left, whatever ends it: through a real daemon."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.runtime.containment.data_dir import LOCK_FILE
from tests.bounds import WAIT_S, until
from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, describe, gone
from tests.system.daemon import command
from tests.system.daemon_process import DaemonProcess

STUBBORN = ("ignores_term", "setsid", "double", "child")
LABELS = ("leader", "setsid", "double", "child")

Start = Callable[[], DaemonProcess]


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sd") as folder:
        yield Path(folder)


@pytest.fixture
def start(rung: str, lifelines: Lifelines, home: Path) -> Iterator[Start]:
    """Start a daemon on a stubborn module and on one with an invocation in flight."""
    started: list[DaemonProcess] = []
    describe(home / "modules", lifelines, *STUBBORN)
    describe(home / "modules", lifelines, "ignores_term", name="busy")

    def begin() -> DaemonProcess:
        daemon = DaemonProcess(home / "modules", home, rung)
        started.append(daemon)
        return daemon

    yield begin
    for daemon in started:
        daemon.close()


def in_flight(daemon: DaemonProcess, lifelines: Lifelines) -> list[int]:
    """Wait until all live and one invocation is under way; returns the pids."""
    pids = lifelines.take(*LABELS, "leader")
    daemon.ask("supervisor", "wait", modules=["stubborn", "busy"])
    connection = daemon.begin("busy", "hang")
    until(
        lambda: any(one["in_flight"] for one in daemon.status()["modules"]),
        "an invocation being in flight",
    )
    connection.detach()
    return pids


@pytest.mark.fault(2)
def test_a_killed_daemon_leaves_nobody_and_its_guardian_goes_too(
    start: Start, lifelines: Lifelines
) -> None:
    daemon = start()
    pids = in_flight(daemon, lifelines)
    guardian = daemon.status()["daemon"]["guardian_pid"]
    killed_at = time.monotonic()
    daemon.kill()
    lifelines.wait_dead()
    took_s = time.monotonic() - killed_at
    assert all(gone(pid) for pid in (*pids, guardian))
    if os.environ.get("STDIOD_TEST_FIGURES"):
        print(f"\nkill -9 to the last death: {took_s * 1000:.0f} ms")  # noqa: T201


@pytest.mark.fault(2)
def test_a_daemon_killed_together_with_its_guardian_is_followed_by_one_that_clears_up(
    start: Start, lifelines: Lifelines
) -> None:
    daemon = start()
    pids = in_flight(daemon, lifelines)
    # Stopped, it cannot replace the guardian.
    daemon.popen.send_signal(signal.SIGSTOP)
    os.kill(_guardian(daemon.popen.pid), signal.SIGKILL)
    daemon.kill()
    assert not lifelines.dead_already()
    second = start()
    assert lifelines.dead_already()
    lifelines.wait_dead()
    lifelines.take(*LABELS, "leader")
    words = "killed what a former daemon left"
    until(lambda: words in second.log.read_text(), "a word in the log")
    assert all(gone(pid) for pid in pids)
    second.close()
    lifelines.wait_dead()


def test_a_signalled_daemon_leaves_nobody(start: Start, lifelines: Lifelines) -> None:
    daemon = start()
    in_flight(daemon, lifelines)
    daemon.popen.send_signal(signal.SIGTERM)
    assert daemon.popen.wait(PATIENCE_S) == 0
    assert lifelines.dead_already()


def test_a_signal_to_the_whole_group_leaves_the_guardian_to_its_work(
    start: Start, lifelines: Lifelines
) -> None:
    daemon = start()
    in_flight(daemon, lifelines)
    os.killpg(daemon.popen.pid, signal.SIGKILL)
    daemon.popen.wait(PATIENCE_S)
    lifelines.wait_dead()


@pytest.mark.fault(7)
def test_a_stopped_and_a_restarted_module_leave_nobody(start: Start, lifelines: Lifelines) -> None:
    daemon = start()
    lifelines.take(*LABELS, "leader")
    daemon.ask("supervisor", "wait", modules=["stubborn", "busy"])
    daemon.ask("supervisor", "stop", module="busy")
    assert daemon.ask("supervisor", "restart", module="stubborn")["ok"]
    lifelines.wait_dead()
    lifelines.take(*LABELS)
    daemon.ask("supervisor", "stop", module="stubborn")
    assert lifelines.dead_already()


@pytest.mark.fault(7)
def test_modules_whose_descriptors_are_removed_leave_nobody(
    start: Start, lifelines: Lifelines, home: Path
) -> None:
    daemon = start()
    in_flight(daemon, lifelines)
    for name in ("stubborn", "busy"):
        (home / "modules" / f"{name}.json").unlink()
    lifelines.wait_dead()
    assert daemon.popen.poll() is None


def test_a_killed_guardian_is_replaced_and_the_new_one_does_its_work(
    start: Start, lifelines: Lifelines
) -> None:
    daemon = start()
    in_flight(daemon, lifelines)
    former = daemon.status()["daemon"]["guardian_pid"]
    os.kill(former, signal.SIGKILL)
    until(
        lambda: daemon.status()["daemon"]["guardian_pid"] not in (former, None), "another guardian"
    )
    assert gone(former)
    daemon.kill()
    lifelines.wait_dead()


def test_orphans_that_end_are_reaped_while_the_daemon_runs(
    start: Start, lifelines: Lifelines, rung: str
) -> None:
    if rung == "process_group":
        pytest.skip("on the lowest rung orphans are not the daemon's")
    daemon = start()
    lifelines.take(*LABELS, "leader")
    for pid in _adopted(daemon.popen.pid):
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)


def test_status_says_what_contains(start: Start, rung: str) -> None:
    shown = start().status()["daemon"]
    assert shown["containment"] == rung
    assert (shown["why_not_higher"] is None) is (rung == "cgroup2")
    assert Path(f"/proc/{shown['guardian_pid']}").exists()


def _guardian(daemon_pid: int) -> int:
    for pid in _children(daemon_pid):
        if b"containment.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("there is no guardian")


def _adopted(daemon_pid: int) -> list[int]:
    """Return the children of the daemon that lead no session: it spawned none of those."""
    return [pid for pid in _children(daemon_pid) if os.getsid(pid) != pid]


def _children(pid: int) -> list[int]:
    return [
        int(word)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for word in (task / "children").read_text().split()
    ]


def test_the_guardian_of_a_former_daemon_leaves_the_next_one_alone(start: Start) -> None:
    former = start()
    guardian = former.status()["daemon"]["guardian_pid"]
    os.kill(guardian, signal.SIGSTOP)
    former.kill()
    following = start()
    following.ask("supervisor", "wait", modules=["stubborn", "busy"])
    pids = [one["instances"][0]["pid"] for one in following.status()["modules"]]
    watched = os.pidfd_open(guardian)
    os.kill(guardian, signal.SIGCONT)
    # It ends when nothing of its own daemon is left; the next one and its modules are not its.
    assert select.select([watched], [], [], PATIENCE_S)[0]
    os.close(watched)
    assert [one["instances"][0]["pid"] for one in following.status()["modules"]] == pids


def test_no_daemon_starts_beside_one_whose_data_was_deleted(
    start: Start, lifelines: Lifelines, home: Path
) -> None:
    daemon = start()
    lifelines.take(*LABELS, "leader")
    daemon.data_dir.rename(home / "gone")
    shutil.rmtree(home / "gone")
    problem = until(lambda: daemon.status()["daemon"]["data_dir_problem"], "a problem in status")
    assert "was deleted while the daemon ran" in problem
    words = command(home / "modules", home / "other", daemon.data_dir)
    second = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert second.returncode == 1
    assert f"in use by the daemon with pid {daemon.popen.pid}" in second.stderr
    daemon.kill()
    lifelines.wait_dead()
    assert start().status()["daemon"]["data_dir_problem"] is None


def test_a_lock_file_that_is_deleted_is_made_again_and_nothing_is_lost(
    start: Start, lifelines: Lifelines, home: Path
) -> None:
    daemon = start()
    lifelines.take(*LABELS, "leader")
    (daemon.data_dir / LOCK_FILE).unlink()
    until((daemon.data_dir / LOCK_FILE).exists, "another lock file")
    until(lambda: "was deleted, and made again" in daemon.log.read_text(), "a line of the log")
    assert daemon.status()["daemon"]["data_dir_problem"] is None
    words = command(home / "modules", home / "other", daemon.data_dir)
    second = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert f"in use by the daemon with pid {daemon.popen.pid}" in second.stderr
