"""Whoever runs from a module is ended with it while another module runs on.

A `bare` process has left the session, lost its parent, wiped its environment and closed all that it
inherited. A `hidden` one has set its RLIMIT_LOCKS anew besides, which nobody does by accident.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, describe
from tests.system.daemon_process import DaemonProcess


class Scene:
    """A daemon, `runaway` and the `other` module, which nothing is done to."""

    def __init__(self, daemon: DaemonProcess, home: Path, other: int) -> None:
        self.daemon = daemon
        self.home = home
        self.other = other

    def module(self, name: str) -> dict[str, Any]:
        modules: list[dict[str, Any]] = self.daemon.status()["modules"]
        (found,) = [one for one in modules if one["name"] == name]
        return found

    def other_is_unharmed(self) -> bool:
        return [one["pid"] for one in self.module("other")["instances"]] == [self.other]


@pytest.fixture
def scene(rung: str, lifelines: Lifelines) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="sd") as folder:
        home = Path(folder)
        # The other one has a lifeline of its own that nobody looks at: it is told by its pid.
        others = Lifelines(home)
        describe(home / "modules", others, name="other")
        describe(home / "modules", lifelines, "ignores_term", name="runaway")
        daemon = DaemonProcess(home / "modules", home, rung)
        try:
            daemon.ask("supervisor", "wait", modules=["other", "runaway"])
            lifelines.take("leader")
            (other,) = [one for one in daemon.status()["modules"] if one["name"] == "other"]
            yield Scene(daemon, home, other["instances"][0]["pid"])
        finally:
            daemon.close()
            others.close()


def stop(scene: Scene) -> None:
    assert scene.daemon.ask("supervisor", "stop", module="runaway")["ok"]


def restart(scene: Scene) -> None:
    assert scene.daemon.ask("supervisor", "restart", module="runaway")["ok"]


def take_away(scene: Scene) -> None:
    (scene.home / "modules" / "runaway.json").unlink()
    assert scene.daemon.ask("supervisor", "reload")["ok"]


def exit_by_itself(scene: Scene) -> None:
    scene.daemon.ask("runaway", "leave")


def kill_the_daemon(scene: Scene) -> None:
    scene.daemon.kill()


def interrupt(scene: Scene) -> None:
    scene.daemon.popen.send_signal(signal.SIGINT)
    assert scene.daemon.popen.wait(PATIENCE_S) == 0


OF_THE_DAEMON = [kill_the_daemon, interrupt]


@pytest.mark.fault(7)
@pytest.mark.parametrize("ends", [(stop, restart, take_away), (exit_by_itself,)])
def test_a_bare_process_ends_with_its_module_and_the_other_module_runs_on(
    scene: Scene, lifelines: Lifelines, ends: tuple[Callable[[Scene], None], ...]
) -> None:
    for end in ends:
        scene.daemon.ask("runaway", "spawn", vice="bare")
        lifelines.take("bare")
        end(scene)
        lifelines.wait_dead()
        assert scene.other_is_unharmed()
        if end is stop:
            assert scene.daemon.ask("supervisor", "start", module="runaway")["ok"]
        if end in (stop, restart):
            lifelines.take("leader")


@pytest.mark.fault(2)
@pytest.mark.parametrize("end", OF_THE_DAEMON)
def test_a_bare_process_ends_with_the_daemon(
    scene: Scene, lifelines: Lifelines, end: Callable[[Scene], None]
) -> None:
    scene.daemon.ask("runaway", "spawn", vice="bare")
    lifelines.take("bare")
    end(scene)
    lifelines.wait_dead()


@pytest.mark.fault(2)
def test_the_next_daemon_ends_a_bare_process_if_the_guardian_was_killed_too(
    scene: Scene, lifelines: Lifelines, rung: str
) -> None:
    scene.daemon.ask("runaway", "spawn", vice="bare")
    lifelines.take("bare")
    guardian = scene.daemon.status()["daemon"]["guardian_pid"]
    scene.daemon.popen.send_signal(signal.SIGSTOP)  # it cannot replace the guardian
    os.kill(guardian, signal.SIGKILL)
    scene.daemon.kill()
    assert not lifelines.dead_already()
    following = DaemonProcess(scene.home / "modules", scene.home, rung)
    lifelines.wait_dead()
    following.close()


@pytest.mark.fault(7)
def test_a_hidden_process_ends_with_its_cgroup_or_with_the_daemon(
    scene: Scene, lifelines: Lifelines, rung: str
) -> None:
    if rung == "process_group":
        pytest.skip("on the lowest rung nothing tells that it is there")
    scene.daemon.ask("runaway", "spawn", vice="hidden")
    lifelines.take("hidden")
    stop(scene)
    if rung == "cgroup2":
        lifelines.wait_dead()
    assert scene.other_is_unharmed()
    interrupt(scene)
    lifelines.wait_dead()


@pytest.mark.fault(2)
def test_a_killed_daemon_takes_a_hidden_process_of_a_cgroup_with_it(
    scene: Scene, lifelines: Lifelines, rung: str
) -> None:
    if rung != "cgroup2":
        pytest.skip("without a cgroup it lives on (docs/limits.md)")
    scene.daemon.ask("runaway", "spawn", vice="hidden")
    lifelines.take("hidden")
    kill_the_daemon(scene)
    lifelines.wait_dead()
