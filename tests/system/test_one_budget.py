"""What holds up a daemon, fills it or outlives it, played to one daemon one after the other.

On each rung that the machine has, as whoever runs the tests and, if that is root, as another user.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from supervisor.runtime.held_bytes import PARTY_BYTES
from tests.bounds import until
from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, describe
from tests.runtime.containment.tracer import Tracer
from tests.system.client import Client
from tests.system.daemon_process import DaemonProcess
from tests.system.descriptors import AT_ONCE, misbehaving, write
from tests.system.liveness import Liveness
from tests.system.other_user import BECOME, interpreter, own_cgroup
from tests.system.test_slow_readers import (
    ANSWER_BYTES,
    PEAK_BYTES,
    READ_LATE,
    ask_together,
    read_all,
    streaming,
)
from tests.system.test_suspension import passed, suspend

ALWAYS: dict[str, Any] = {"restart": "permanent", "intensity": 1000, "backoff": AT_ONCE}
ARGS, REQUESTS = "x" * (10 << 20), 6
"""In all more than a party may have held, and what is read and begun beyond that."""
OPEN_FILES = 256


@contextlib.contextmanager
def delegated(rung: str, uid: int) -> Iterator[str]:
    """Have a cgroup that belongs to another user, if the rung needs one."""
    if rung != "cgroup2":
        yield ""
        return
    folder = own_cgroup() / f"stdiod-test-{os.getpid()}"
    folder.mkdir()
    try:
        for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
            os.chown(path, uid, uid)
        yield str(folder)
    finally:
        folder.rmdir()


class Scene:
    """The daemon, its modules, and who knows which of their processes live."""

    def __init__(self, home: Path, rung: str, uid: int | None, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.lifelines = Lifelines(home)
        stack.callback(self.lifelines.close)
        self.liveness = stack.enter_context(Liveness(home / "liveness"))
        modules = home / "modules"
        describe(modules, self.lifelines, "traceable", name="held", **ALWAYS)
        describe(modules, self.lifelines, "ignores_term", "beheaded", name="parent", **ALWAYS)
        environment = {"LIVENESS": str(self.liveness.path)}
        busy = streaming("busy", "cancel")
        busy["supervision"]["concurrency"] = 1
        write(modules, streaming("shared"), busy, misbehaving("gate", "ids=no", env=environment))
        prefix = ["sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh"]
        python = sys.executable
        paths: dict[str, str] = {}
        if uid is not None:
            python, paths = interpreter(uid)
            for path in (home, *home.rglob("*")):
                os.chown(path, uid, uid)
            for path in modules.iterdir():
                path.write_text(path.read_text().replace(json.dumps(sys.executable)[1:-1], python))
            cgroup = stack.enter_context(delegated(rung, uid))
            prefix += [sys.executable, "-c", BECOME, str(uid), cgroup]
        self.daemon = DaemonProcess(
            modules, home, rung, prefix=prefix, python=python, environment=paths
        )
        stack.callback(self.daemon.close)
        self.pid = self.daemon.popen.pid
        self.lifelines.take("leader", "leader", "beheaded")
        self.client = stack.enter_context(Client(self.daemon.socket))
        self.client.op("wait", **{"for": "verdict"})
        self.held: int = self.module("held")["instances"][0]["pid"]

    def module(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.op("status", module=name).result
        return found

    def others_are_served(self) -> None:
        for n in range(20):
            assert self.client.invoke("shared", "echo", n=n).result == {"n": n}

    def held_bytes(self) -> int:
        total: int = self.client.op("status").result["daemon"]["held_bytes"]["total"]
        return total

    def holds_no_more(self) -> bool:
        """Whether nothing more is held once others have been served."""
        before = self.held_bytes()
        self.others_are_served()
        return self.held_bytes() <= before

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def slow(self) -> Client:
        slow = self.stack.enter_context(Client(self.daemon.socket))
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        return slow


def does_not_read(scene: Scene) -> None:
    """Point 10, and 5: a stream and large answers that nobody reads."""
    stream = scene.slow()
    stream.send_invoke("shared", "stream")
    assert next(stream.lines())["type"] == "log"
    other = scene.client.send_invoke("shared", "stream", **READ_LATE)
    scene.others_are_served()
    assert scene.client.answer(other).result == {"events": READ_LATE["count"], "pauses": 0}
    (*_, done) = read_all(stream)
    assert done["error"]["details"]["reason"] == "slow_reader"
    answers = scene.slow()
    asked = ask_together(answers, scene.client, "shared")
    scene.others_are_served()
    assert scene.held_bytes() <= PARTY_BYTES + ANSWER_BYTES
    assert {answers.answer(one).verdict for one in asked} == {"ok", "unreachable/slow_reader"}
    assert scene.peak_bytes() < PEAK_BYTES


def asks_much(scene: Scene) -> None:
    """Point 5: large requests that wait for others."""
    first = scene.client.send_invoke("busy", "hold")
    asker = scene.stack.enter_context(Client(scene.daemon.socket))
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(
            lambda: [asker.send_invoke("busy", "size", text=ARGS) for _ in range(REQUESTS)]
        )
        try:
            until(lambda: scene.held_bytes() > PARTY_BYTES, "a client that is not read from")
            until(scene.holds_no_more, "no more being read from it")
            assert scene.held_bytes() <= PARTY_BYTES + 2 * len(ARGS) < REQUESTS * len(ARGS)
        finally:
            scene.client.cancel(first)
        for one in written.result():
            assert asker.answer(one).result == {"size": len(ARGS)}
    assert scene.peak_bytes() < 2 * PEAK_BYTES


def is_suspended(scene: Scene) -> None:
    """Point 4: what was answered meanwhile counts, and nobody is replaced."""
    (asked,), (gate,), deadline_s = suspend(scene.pid, scene.client, scene.liveness, ["gate"])
    gate.release()
    passed(deadline_s + 0.5)
    os.kill(scene.pid, signal.SIGCONT)
    assert scene.client.answer(asked).ok
    (instance,) = scene.module("gate")["instances"]
    assert instance["pid"] == gate.pid


def is_traced(scene: Scene) -> None:
    """Point 1: a debugger holds one that is killed."""
    with Tracer(scene.held) as tracer:
        os.kill(scene.held, signal.SIGKILL)

        def named() -> bool:
            scene.others_are_served()
            (instance,) = scene.module("held")["instances"]

            return instance["traced_by"] is not None and instance["traced_by"]["pid"] == tracer.pid

        until(named, "the tracer being named")
    (scene.held,) = scene.lifelines.take("leader")
    assert scene.client.op("wait", modules=["held"]).ok


def is_headless(scene: Scene) -> None:
    """Point 2: a grandchild whose main thread has ended dies with its module."""
    assert scene.client.op("stop", module="parent").ok
    assert scene.client.op("stop", module="held").ok
    scene.lifelines.wait_dead()
    assert scene.client.op("start", module="held").ok
    (scene.held,) = scene.lifelines.take("leader")


def is_crowded_and_ends(scene: Scene) -> None:
    """Point 6: more idle clients than there are descriptors, when it is told to end, too."""
    with contextlib.ExitStack() as crowd:
        for _ in range(OPEN_FILES - 20):
            crowd.enter_context(scene.daemon.connect())
        os.kill(scene.held, signal.SIGKILL)
        (scene.held,) = scene.lifelines.take("leader")
        assert scene.daemon.ask("supervisor", "wait", modules=["held"])["ok"]
        assert scene.daemon.status()["daemon"]["connections"]["refused"]
        scene.others_are_served()
        os.kill(scene.pid, signal.SIGTERM)
        assert scene.daemon.popen.wait(PATIENCE_S) == 0
        scene.lifelines.wait_dead()
        assert not scene.liveness.take_in()


PLAYS = (does_not_read, asks_much, is_suspended, is_traced, is_headless, is_crowded_and_ends)


@pytest.mark.fault(26, 27, 28, 30, 31, 37)
@pytest.mark.parametrize("as_user", ["whoever runs it", "another user"])
def test_one_daemon_keeps_its_budget_on_each_rung_and_as_another_user(
    rung: str, as_user: str, folder: Path
) -> None:
    uid = None
    if as_user == "another user":
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam("nobody").pw_uid
        if uid is None:
            pytest.skip("there is no user `nobody`")
    with contextlib.ExitStack() as stack:
        scene = Scene(folder, rung, uid, stack)
        facts = scene.daemon.status()["daemon"]
        assert facts["containment"] == rung
        owner = Path(f"/proc/{scene.pid}").stat().st_uid
        assert owner == (os.geteuid() if uid is None else uid)
        for play in PLAYS:
            play(scene)
