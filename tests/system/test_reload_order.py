"""Hot reload of modules that are in use, needed by others, or being stopped.

No test waits for a time: the daemon counts its reloads, and `reloaded` waits for the next one.
"""

from __future__ import annotations

import json
import os
import select
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, write
from tests.system.liveness import BOUND_S, Liveness
from tests.system.reloading import A, B, pids, quarantined, reload_of, replace, text


@pytest.mark.fault(22)
def test_the_process_of_a_removed_descriptor_ends_and_its_name_is_unknown(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(A, B, environment={"XDG_LIVENESS": str(liveness.path)})
    before = pids(daemon)
    pidfd = os.pidfd_open(before["a"][0])
    with reload_of(daemon):
        (daemon.modules / "a.json").unlink()
    assert daemon.invoke("a").verdict == "bad_request/unknown_module"
    wait_exited(pidfd)
    assert pids(daemon) == {"b": before["b"]}
    with reload_of(daemon):
        write(daemon.modules, A)
    assert daemon.invoke("a").ok
    assert daemon.status("a")["instances"][0]["id"] == "a#2"  # an id is not given twice
    assert pids(daemon)["b"] == before["b"]


def wait_exited(pidfd: int) -> None:
    readable, _, _ = select.select([pidfd], [], [], BOUND_S)
    os.close(pidfd)
    assert readable


def gated(name: str, liveness: Liveness, **fields: Any) -> dict[str, Any]:
    return {**misbehaving(name, env={"LIVENESS": str(liveness.path)}), **fields}


@pytest.mark.fault(22)
@pytest.mark.parametrize("removed", [False, True])
def test_requests_in_flight_drain_before_the_module_goes(
    start_daemon: StartDaemon, liveness: Liveness, removed: bool
) -> None:
    module = gated("a", liveness)
    daemon = start_daemon(module)
    path = daemon.modules / "a.json"
    (process,) = liveness.wait_for("module")
    with daemon.connect() as client:
        in_flight = client.send_invoke("a", fault="gate")
        (gate,) = liveness.wait_for("gate")
        with reload_of(daemon):
            path.unlink() if removed else path.write_text(text(module, description="new"))
        waiting = client.send_invoke("a")
        if removed:
            assert client.answer(waiting).verdict == "bad_request/unknown_module"
        assert process.alive()
        gate.release()
        assert client.answer(in_flight).ok
        process.wait_gone()
        if not removed:
            assert client.answer(waiting).ok
            assert daemon.status("a")["instances"][0]["id"] == "a#2"


@pytest.mark.fault(12)
def test_a_removed_module_that_comes_back_before_it_is_gone_is_never_there_twice(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    module = gated("a", liveness)
    daemon = start_daemon(module)
    path = daemon.modules / "a.json"
    (process,) = liveness.wait_for("module")
    with daemon.connect() as client:
        in_flight = client.send_invoke("a", fault="gate")
        (gate,) = liveness.wait_for("gate")
        with reload_of(daemon):
            path.unlink()
        assert [one["name"] for one in daemon.op("status")["daemon"]["leaving"]] == ["a"]
        with reload_of(daemon):
            path.write_text(text(module))
        assert len(daemon.processes()) == 1
        gate.release()
        assert client.answer(in_flight).ok
        process.wait_gone()
        assert daemon.invoke("a").ok
        assert daemon.op("status")["daemon"]["leaving"] == []
        assert len(daemon.processes()) == 1


def test_what_an_operator_stopped_stays_stopped(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    daemon.op("stop", module="a")
    with reload_of(daemon):
        (daemon.modules / "a.json").write_text(text(A, description="new"))
    assert daemon.status("a")["state"] == "down"
    daemon.op("start", module="a")
    assert daemon.status("a")["description"] == "new"


def test_a_lazy_module_that_sleeps_is_not_woken(start_daemon: StartDaemon) -> None:
    lazy = misbehaving("a", start="lazy")
    daemon = start_daemon(lazy)
    with reload_of(daemon):
        (daemon.modules / "a.json").write_text(text(lazy, description="new"))
    assert daemon.status("a")["state"] == "down"
    assert daemon.invoke("a").ok


def test_modules_that_are_added_start_after_what_they_need(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    before = pids(daemon)
    with reload_of(daemon):
        write(daemon.modules, misbehaving("b", depends_on=["c"]), misbehaving("c"))
    daemon.op("wait", modules=["a", "b", "c"])
    assert pids(daemon)["a"] == before["a"]


def test_a_module_runs_on_when_what_it_needs_is_removed(start_daemon: StartDaemon) -> None:
    needing = misbehaving("b", depends_on=["a"])
    daemon = start_daemon(A, needing)
    before = pids(daemon)
    with reload_of(daemon):
        (daemon.modules / "a.json").unlink()
    assert pids(daemon)["b"] == before["b"]
    assert "'a'" in quarantined(daemon)["b.json"]
    with reload_of(daemon):
        write(daemon.modules, A)
    daemon.op("wait", modules=["a"])
    assert pids(daemon)["b"] == before["b"]
    assert quarantined(daemon) == {}


@pytest.mark.fault(12)
def test_many_reloads_at_once_come_one_after_the_other(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A, B)
    with daemon.connect() as client:
        asked: list[str] = []
        for number in range(20):
            write(daemon.modules, misbehaving("a", queue=number))
            asked += [client.send("supervisor", "invoke", {"op": "reload", "args": {}})]
            asked += [client.send_invoke("b")]
        for one in asked:
            assert client.answer(one).ok
    daemon.op("reload")
    until(
        lambda: len(daemon.status("a")["instances"]) == 1, "the last of the former ones being gone"
    )
    assert len(daemon.processes()) == 2


def test_a_changed_module_waits_for_a_changed_one_it_needs(start_daemon: StartDaemon) -> None:
    needing = misbehaving("a", depends_on=["b"])
    daemon = start_daemon(needing, B, options=("--no-watch",))
    replace(daemon.modules / "a.json", text(needing, description="new"))
    replace(daemon.modules / "b.json", text(B, description="new"))
    daemon.op("reload")
    daemon.op("wait", modules=["b"])
    assert daemon.usable("a").ok
    daemon.end()  # all that was logged is written then
    lines = map(json.loads, daemon.log().splitlines())
    states = [(one["instance"], one["after"]) for one in lines if "instance" in one]
    assert states.index(("b#2", "ready")) < states.index(("a#2", "ready"))


@pytest.mark.parametrize("hurried", [False, True])
def test_a_reload_while_the_daemon_stops_is_safe(start_daemon: StartDaemon, hurried: bool) -> None:
    daemon = start_daemon(A, B)
    (daemon.modules / "a.json").unlink()
    write(daemon.modules, misbehaving("b", queue=1), misbehaving("c"))
    with daemon.connect() as client:
        asked = [client.send("supervisor", "invoke", {"op": "reload"}) for _ in range(3)]
        if not hurried:
            client.answer(asked[0])
        daemon.end()  # asserts an orderly end that leaves nothing
