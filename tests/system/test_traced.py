"""A debugger holds a module: whoever is killed then stays a zombie for as long as it likes.

On the event loop nobody waits for that; whoever can't be reaped keeps its slot, and the tracer is
named. Row 26 of docs/faults.md.
"""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, describe, gone
from tests.runtime.containment.tracer import Tracer
from tests.system.daemon_process import DaemonProcess

PATIENT = {"start_s": PATIENCE_S, "exit_s": 0.05, "stop_s": 0.05}
AT_ONCE = {"initial_s": 0.01, "factor": 1, "max_s": 0.01, "jitter": 0}
SUPERVISION: dict[str, Any] = {"restart": "permanent", "intensity": 1000, "backoff": AT_ONCE}


class Stage:
    """A daemon with a module `other`, for one scene after the other until one has ended it."""

    def __init__(self, rung: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sd")
        self.home = Path(self._folder.name)
        self.others = Lifelines(self.home)
        describe(self.home / "modules", self.others, "setsid", name="other")
        self.daemon = DaemonProcess(self.home / "modules", self.home, rung)
        self.others.take("leader", "setsid")

    def clear(self) -> bool:
        """Remove the module `held`; False if the daemon has ended."""
        if self.daemon.popen.poll() is not None:
            return False
        (self.home / "modules" / "held.json").unlink()
        self.daemon.ask("supervisor", "reload")
        until(
            lambda: [one["name"] for one in self.daemon.status()["modules"]] == ["other"],
            "the module being gone",
        )
        return True

    def close(self) -> None:
        self.daemon.close()
        self.others.close()
        self._folder.cleanup()


class Scene:
    """A daemon with a `held` module, once `begin` was called, and another one."""

    def __init__(self, stage: Stage, lifelines: Lifelines, tracers: ExitStack) -> None:
        self.home = stage.home
        self.others = stage.others
        self.daemon = stage.daemon
        self.lifelines = lifelines
        self._tracers = tracers
        self._logged_before = len(self.daemon.log.read_text())

    def begin(self, *vices: str, **supervision: Any) -> int:
        """Start the module; returns its pid."""
        words = {"timeouts": PATIENT, **SUPERVISION, **supervision}
        describe(self.home / "modules", self.lifelines, "traceable", *vices, name="held", **words)
        self.daemon.ask("supervisor", "reload")
        (pid,) = self.lifelines.take("leader")
        return pid

    def hold(self, pid: int, *words: str) -> Tracer:
        """Have a process held; the tracer is gone at the end of the test."""
        return self._tracers.enter_context(Tracer(pid, *words))

    def module(self, name: str = "held") -> dict[str, Any]:
        modules: list[dict[str, Any]] = self.daemon.status()["modules"]
        (found,) = [one for one in modules if one["name"] == name]
        return found

    def until_held_by(self, tracer: Tracer, pid: int) -> dict[str, Any]:
        """Wait until status shows that a dead process is held; everybody else is served."""

        def held() -> dict[str, Any] | None:
            assert self.daemon.ask("other", "echo", x=1)["result"] == {"x": 1}
            instances: list[dict[str, Any]] = self.module()["instances"]
            for one in instances:
                if one["traced_by"] is not None and one["state"] == "stopping":
                    assert (one["pid"], one["traced_by"]["pid"]) == (pid, tracer.pid)
                    assert one["traced_by"]["name"].startswith("python")
                    return one
            return None

        return until(held, "a dead process that is held")

    def log(self) -> list[dict[str, Any]]:
        logged = self.daemon.log.read_text()[self._logged_before :]
        whole, _, _ = logged.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def until_logged(self, event: str) -> dict[str, Any]:
        def logged() -> dict[str, Any] | None:
            return next((line for line in self.log() if line["event"] == event), None)

        return until(logged, f"{event!r} in the log")


@pytest.fixture(scope="module")
def stages() -> Iterator[dict[str, Stage]]:
    """Those that the last scenes on each rung have left as they were."""
    left: dict[str, Stage] = {}
    yield left
    for stage in left.values():
        stage.close()


@pytest.fixture
def scene(rung: str, lifelines: Lifelines, stages: dict[str, Stage]) -> Iterator[Scene]:
    stage = stages.pop(rung, None) or Stage(rung)
    try:
        with ExitStack() as tracers:
            yield Scene(stage, lifelines, tracers)
        if stage.clear():
            stages[rung] = stage
    finally:
        if rung not in stages:
            stage.close()


def kill_it(scene: Scene, pid: int) -> None:
    del scene
    os.kill(pid, signal.SIGKILL)


def restart_it(scene: Scene, pid: int) -> None:
    del pid
    scene.daemon.begin("supervisor", "restart", module="held").detach()


def let_it_miss_its_probes(scene: Scene, pid: int) -> None:
    """Do nothing: held, it answers none."""


@pytest.mark.fault(26)
@pytest.mark.parametrize(
    ("end", "vices"),
    [(kill_it, ()), (kill_it, ("threads",)), (restart_it, ()), (let_it_miss_its_probes, ())],
    ids=["killed", "killed with threads", "restarted", "misses its probes"],
)
def test_who_is_killed_while_it_is_traced_keeps_its_slot_and_the_others_are_served(
    scene: Scene,
    lifelines: Lifelines,
    vices: tuple[str, ...],
    end: Callable[[Scene, int], None],
) -> None:
    probes: dict[str, Any] = {}
    if end is let_it_miss_its_probes:
        probes["timeouts"] = {**PATIENT, "health_s": 5}
        probes["health"] = {"interval_s": 0.1, "failures": 1}
    pid = scene.begin(*vices, **probes)
    scene.daemon.ask("supervisor", "wait", modules=["held"])
    tracer = scene.hold(pid)
    end(scene, pid)
    scene.until_held_by(tracer, pid)
    logged = scene.until_logged("a dead process cannot be reaped")
    assert logged["traced_by"].endswith(f"(pid {tracer.pid})")
    assert len(scene.module()["instances"]) == 1
    tracer.release()
    (successor,) = lifelines.take("leader")
    scene.daemon.ask("supervisor", "wait", modules=["held"])
    (instance,) = scene.module()["instances"]
    assert (instance["pid"], instance["traced_by"]) == (successor, None)


@pytest.mark.fault(26)
def test_its_calls_are_answered_when_it_dies_and_not_when_it_is_reaped(scene: Scene) -> None:
    pid = scene.begin("threads")
    with scene.daemon.begin("held", "hang") as call, call.makefile("rb") as lines:
        until(lambda: scene.module()["in_flight"], "the call being in flight")
        tracer = scene.hold(pid)
        os.kill(pid, signal.SIGKILL)
        done = json.loads(lines.readline())
    details = done["error"]["details"]
    assert (details["reason"], details["signal"]) == ("signaled", signal.SIGKILL)
    assert details["traced_by"]["pid"] == tracer.pid


@pytest.mark.fault(26)
def test_a_stop_that_a_tracer_holds_up_is_refused_with_its_name(scene: Scene) -> None:
    pid = scene.begin()
    scene.daemon.ask("supervisor", "wait", modules=["held"])
    (instance,) = scene.module()["instances"]
    tracer = scene.hold(pid)
    answer = scene.daemon.ask("supervisor", "stop", module="held")
    assert answer["error"]["details"]["reason"] == "stopping"
    assert f"{instance['id']} (pid {pid})" in answer["error"]["message"]
    assert f"(pid {tracer.pid}) traces" in answer["error"]["message"]
    tracer.release()
    assert scene.daemon.ask("supervisor", "stop", module="held")["result"]["state"] == "down"


@pytest.mark.fault(26)
@pytest.mark.parametrize("warm", [0, 1])
def test_a_process_per_invocation_keeps_its_place_too(
    scene: Scene, lifelines: Lifelines, warm: int
) -> None:
    vices = ("traceable", "ignores_term")  # with that it goes on when its input has ended
    path = describe(scene.home / "modules", lifelines, *vices, name="held")
    document = json.loads(path.read_text())
    document["transport"]["lifecycle"] = "per-invocation"
    document["supervision"] = {**SUPERVISION, "timeouts": PATIENT, "concurrency": 1, "warm": warm}
    path.write_text(json.dumps(document))
    scene.daemon.ask("supervisor", "reload")
    first = scene.daemon.begin("held", "hang")
    with first, first.makefile("rb") as lines:
        serving = until(
            lambda: [one for one in scene.module()["instances"] if one["in_flight"]],
            "the call being in flight",
        )
        pid = serving[0]["pid"]
        while pid not in lifelines.take("leader"):
            pass
        tracer = scene.hold(pid)
        os.kill(pid, signal.SIGKILL)
        assert json.loads(lines.readline())["error"]["details"]["signal"] == signal.SIGKILL
    second = scene.daemon.begin("held", "leave")
    with second, second.makefile("rb") as lines:
        scene.until_held_by(tracer, pid)
        until(lambda: scene.module()["queued"] == 1, "the second call waiting")
        tracer.release()
        assert json.loads(lines.readline())["error"]["details"]["exit_code"] == 0


@pytest.mark.fault(26)
def test_the_end_of_the_daemon_does_not_wait_for_a_tracer_and_names_it(scene: Scene) -> None:
    pid = scene.begin("threads")
    scene.daemon.ask("supervisor", "wait", modules=["held"])
    (instance,) = scene.module()["instances"]
    tracer = scene.hold(pid)
    scene.daemon.popen.send_signal(signal.SIGTERM)
    assert scene.daemon.popen.wait(PATIENCE_S) == 0
    scene.others.wait_dead()
    scene.lifelines.wait_dead()
    events = {line["event"]: line for line in scene.log()}
    left = events["left behind: a dead process that could not be reaped"]
    assert (left["pid"], left["instance"]) == (pid, instance["id"])
    assert left["traced_by"].endswith(f"(pid {tracer.pid})")


@pytest.mark.fault(26)
@pytest.mark.parametrize("rung", ["subreaper"], indirect=True)  # known by its number
def test_the_end_of_the_daemon_does_not_wait_for_one_that_cannot_die(scene: Scene) -> None:
    pid = scene.begin()
    scene.daemon.ask("supervisor", "wait", modules=["held"])
    tracer = scene.hold(pid, "exit")
    scene.daemon.popen.send_signal(signal.SIGTERM)
    assert scene.daemon.popen.wait(PATIENCE_S) == 0
    scene.others.wait_dead()
    events = {line["event"]: line for line in scene.log()}
    left = events["left behind: a killed process that a tracer keeps from dying"]
    assert left["pid"] == pid
    assert left["traced_by"].endswith(f"(pid {tracer.pid})")
    tracer.release()  # and the guardian ends with what it waited for
    scene.lifelines.wait_dead()


@pytest.mark.fault(26)
def test_one_that_cannot_even_die_is_named_and_delays_no_death_of_others(scene: Scene) -> None:
    # Stopped on its way out, a process does not hear SIGKILL any more.
    pid = scene.begin()
    scene.daemon.ask("supervisor", "wait", modules=["held"])
    tracer = scene.hold(pid, "exit")
    scene.daemon.begin("supervisor", "restart", module="held").detach()
    logged = scene.until_logged("process cannot be killed")
    assert logged["traced_by"].endswith(f"(pid {tracer.pid})")
    scene.until_held_by(tracer, pid)
    guardian = scene.daemon.status()["daemon"]["guardian_pid"]
    ended = os.pidfd_open(guardian)
    scene.daemon.kill()
    scene.others.wait_dead()
    assert not scene.lifelines.dead_already()
    tracer.release()
    scene.lifelines.wait_dead()
    assert select.select([ended], [], [], PATIENCE_S)[0]
    os.close(ended)


@pytest.mark.fault(26)
def test_a_guardian_that_is_held_is_replaced(scene: Scene) -> None:
    scene.begin()
    former = scene.daemon.status()["daemon"]["guardian_pid"]
    tracer = scene.hold(former)
    os.kill(former, signal.SIGKILL)

    def replaced() -> bool:
        assert scene.daemon.ask("other", "echo", x=1)["ok"]
        return scene.daemon.status()["daemon"]["guardian_pid"] not in (former, None)

    until(replaced, "another guardian")
    logged = scene.until_logged("the guardian cannot be reaped")
    assert logged["traced_by"].endswith(f"(pid {tracer.pid})")
    guardian = scene.daemon.status()["daemon"]["guardian_pid"]
    scene.daemon.kill()
    scene.others.wait_dead()
    scene.lifelines.wait_dead()
    assert gone(guardian)
