"""Hot reload of a real daemon: what changed is replaced, the rest keeps its processes.

No test waits for a time: the daemon counts its reloads, and `reloaded` waits for the next one.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor, misbehaving, per_invocation, write
from tests.system.liveness import BOUND_S, Liveness


@contextmanager
def reload_of(daemon: Daemon) -> Iterator[dict[str, Any]]:
    """Have the daemon notice what is done in the block; gives what it did about it, in numbers."""
    before = daemon.op("status")["daemon"]["reloads"]
    last: dict[str, Any] = {}
    yield last
    last |= daemon.op("reloaded", number=before + 1)
    # On a slow machine it may have looked when half of the block was done.
    daemon.op("reload")


def pids(daemon: Daemon) -> dict[str, list[int]]:
    return {
        one["name"]: [instance["pid"] for instance in one["instances"]]
        for one in daemon.op("status")["modules"]
    }


def quarantined(daemon: Daemon) -> dict[str, str]:
    found = daemon.op("status")["quarantined"]
    return {Path(one["descriptor"]).name: one["reason"] for one in found}


def replace(path: Path, text: str) -> None:
    """Put a file in the place of another one, as careful programs do."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def text(document: dict[str, Any], **fields: Any) -> str:
    return json.dumps({**document, **fields})


A, B = misbehaving("a"), misbehaving("b")


def touch(path: Path) -> None:
    os.utime(path)


def rewrite(path: Path) -> None:
    path.write_text(path.read_text())


def reformat(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4, sort_keys=True))


def say_defaults(path: Path) -> None:
    document = json.loads(path.read_text())
    document["supervision"]["concurrency"] = 1
    path.write_text(json.dumps(document))


def rename(path: Path) -> None:
    path.rename(path.with_name("renamed.json"))


def copy_over(path: Path) -> None:
    replace(path, path.read_text())


def chmod(path: Path) -> None:
    path.chmod(0o600)


@pytest.mark.fault(22)
@pytest.mark.parametrize("do", [touch, rewrite, reformat, say_defaults, rename, copy_over, chmod])
def test_a_change_that_changes_nothing_touches_nothing(
    start_daemon: StartDaemon, do: Callable[[Path], None]
) -> None:
    daemon = start_daemon(A, B)
    before = pids(daemon)
    with reload_of(daemon) as last:
        do(daemon.modules / "a.json")
    assert pids(daemon) == before
    assert quarantined(daemon) == {}
    assert last["unchanged"] == 2


def test_a_renamed_descriptor_is_shown_where_it_is(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    with reload_of(daemon):
        rename(daemon.modules / "a.json")
    assert Path(daemon.status("a")["descriptor"]).name == "renamed.json"


@pytest.mark.fault(22)
@pytest.mark.parametrize("put", [Path.write_text, replace])
def test_changing_one_descriptor_replaces_one_module(
    start_daemon: StartDaemon, put: Callable[[Path, str], object]
) -> None:
    daemon = start_daemon(A, B)
    daemon.invoke("a")
    before = pids(daemon)
    with reload_of(daemon):
        put(daemon.modules / "a.json", text(A, description="new"))
    assert daemon.invoke("a").ok
    after = daemon.status("a")
    assert after["description"] == "new"
    assert after["instances"][0]["id"] == "a#2"  # generations go on
    assert after["counters"]["invocations"] == 2  # and so do counters
    assert pids(daemon)["a"] != before["a"]
    assert pids(daemon)["b"] == before["b"]


@pytest.mark.fault(22)
def test_a_half_written_descriptor_leaves_its_module_running(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A, B)
    before = pids(daemon)
    whole = text(A, description="new")
    path = daemon.modules / "a.json"
    with reload_of(daemon):
        path.write_text(whole[: len(whole) // 2])
    assert pids(daemon) == before
    assert "last good version" in quarantined(daemon)["a.json"]
    with reload_of(daemon), path.open("a") as file:
        file.write(whole[len(whole) // 2 :])
    assert quarantined(daemon) == {}
    assert daemon.invoke("a").ok
    assert daemon.status("a")["description"] == "new"
    assert pids(daemon)["b"] == before["b"]


def test_a_bad_descriptor_that_becomes_good_starts_its_module(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    path = daemon.modules / "b.json"
    with reload_of(daemon):
        path.write_text("{")
    assert "b.json" in quarantined(daemon)
    assert daemon.invoke("b").verdict == "bad_request/unknown_module"
    with reload_of(daemon):
        path.write_text(text(B))
    assert quarantined(daemon) == {}
    assert daemon.invoke("b").ok


def test_a_module_that_failed_is_tried_again_once_its_descriptor_changes(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(descriptor("a", ["./missing"], supervision={"intensity": 0}))
    assert daemon.status("a")["state"] == "failed"
    with reload_of(daemon):
        (daemon.modules / "a.json").write_text(text(A))
    assert daemon.invoke("a").ok


def test_an_unsupported_change_is_quarantined_and_the_module_stays(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(A)
    before = pids(daemon)
    with reload_of(daemon):
        write(daemon.modules, misbehaving("a", depends_on=["nobody"]))
    assert pids(daemon) == before
    assert "'nobody'" in quarantined(daemon)["a.json"]


@pytest.mark.fault(22)
def test_a_second_descriptor_with_a_taken_name_disturbs_nobody(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    before = pids(daemon)
    second = daemon.modules / "0.json"  # read before the first one
    with reload_of(daemon):
        second.write_text(text(A, description="second"))
    assert pids(daemon) == before
    assert "is taken by" in quarantined(daemon)["0.json"]
    with reload_of(daemon):
        second.unlink()
    assert pids(daemon) == before
    assert quarantined(daemon) == {}


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


def test_a_folder_with_a_module_json_comes_and_goes(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    inside = daemon.modules / "b"
    with reload_of(daemon):
        inside.mkdir()
    with reload_of(daemon):
        (inside / "module.json").write_text(text(B))
    assert daemon.invoke("b").ok
    before = pids(daemon)
    with reload_of(daemon):
        (inside / "module.json").write_text(text(B, description="new"))
    assert daemon.invoke("b").ok
    assert pids(daemon)["a"] == before["a"]
    assert pids(daemon)["b"] != before["b"]
    with reload_of(daemon):
        inside.rename(daemon.folder / "away")
    assert list(pids(daemon)) == ["a"]


@pytest.mark.fault(22)
def test_a_links_target_is_watched(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    target = daemon.folder / "elsewhere" / "b.json"
    target.parent.mkdir()
    target.write_text(text(B))
    with reload_of(daemon):
        (daemon.modules / "b.json").symlink_to(target)
    assert daemon.invoke("b").ok
    before = pids(daemon)
    with reload_of(daemon):
        replace(target, text(B, description="new"))
    assert daemon.invoke("b").ok
    assert daemon.status("b")["description"] == "new"
    assert pids(daemon)["a"] == before["a"]


def test_a_directory_may_be_deleted_and_made_again(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    before = pids(daemon)
    with reload_of(daemon):
        daemon.modules.rename(daemon.folder / "old")
    assert pids(daemon) == before
    assert str(daemon.modules.name) in quarantined(daemon)
    # What comes back is looked at from its first file on.
    new = daemon.folder / "new"
    write(new, A, B)
    with reload_of(daemon):
        new.rename(daemon.modules)
    assert daemon.invoke("b").ok
    assert pids(daemon)["a"] == before["a"]
    assert quarantined(daemon) == {}


PROGRAM = Path(__file__).with_name("misbehave.py")


def test_a_changed_program_replaces_its_module_if_that_is_wanted(
    start_daemon: StartDaemon,
) -> None:
    def with_program(name: str, *, watch: bool) -> dict[str, Any]:
        command = [sys.executable, "-I", "-S", "program.py"]
        return descriptor(name, command, supervision={"watch": watch})

    watched, other = with_program("a", watch=True), with_program("b", watch=False)
    program = PROGRAM.read_text()
    daemon = start_daemon(A)
    (daemon.modules / "program.py").write_text(program)
    with reload_of(daemon):
        write(daemon.modules, watched, other)
    daemon.op("wait", modules=["a", "b"])
    before = pids(daemon)
    with reload_of(daemon):
        touch(daemon.modules / "program.py")
    assert pids(daemon) == before
    with reload_of(daemon):
        (daemon.modules / "program.py").unlink()
    assert pids(daemon) == before
    with reload_of(daemon):
        replace(daemon.modules / "program.py", program + "# new\n")
    assert daemon.invoke("a").ok
    assert pids(daemon)["a"] != before["a"]
    assert pids(daemon)["b"] == before["b"]


def test_a_dry_run_says_what_would_happen_and_does_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A, B, options=("--no-watch",))
    before = pids(daemon)
    (daemon.modules / "a.json").write_text(text(A, description="new"))
    (daemon.modules / "b.json").unlink()
    write(daemon.modules, misbehaving("c"))
    (daemon.modules / "d.json").write_text("{")
    plan = daemon.op("reload", dry_run=True)
    (changed,) = plan["changed"]
    assert changed["changes"] == [{"pointer": "/description", "old": None, "new": "new"}]
    assert [one["name"] for one in plan["removed"]] == ["b"]
    assert [one["name"] for one in plan["added"]] == ["c"]
    assert [Path(one["descriptor"]).name for one in plan["quarantined"]] == ["d.json"]
    assert pids(daemon) == before
    status = daemon.op("status")["daemon"]
    assert status["reloads"] == 0
    assert status["watch"]["mode"] == "off"
    done = daemon.op("reload")
    assert {**done, "dry_run": True, "reloads": 0} == plan
    assert daemon.invoke("c").ok
    assert daemon.op("status")["daemon"]["last_reload"]["cause"] == "a command"
    assert daemon.op("reload")["changed"] == []


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
    daemon.op("wait", modules=["a", "b"])
    assert len(daemon.processes()) == 2


def test_a_per_invocation_module_is_reloaded_too(start_daemon: StartDaemon) -> None:
    module = per_invocation("a")
    daemon = start_daemon(module)
    assert daemon.invoke("a").ok
    with reload_of(daemon):
        (daemon.modules / "a.json").write_text(text(module, description="new"))
    assert daemon.invoke("a").ok
    assert daemon.status("a")["description"] == "new"


MANY = 10_000


@pytest.mark.fault(22)
def test_of_ten_thousand_lazy_modules_a_change_touches_one(start_daemon: StartDaemon) -> None:
    many = [misbehaving(f"m{number}", start="lazy") for number in range(MANY)]
    daemon = start_daemon(A, *many)
    assert daemon.invoke("m1").ok
    assert daemon.invoke("m2").ok
    before = {name: found for name, found in pids(daemon).items() if found}
    assert sorted(before) == ["a", "m1", "m2"]
    with reload_of(daemon) as last:
        (daemon.modules / "m1.json").write_text(text(many[1], description="new"))
    assert (last["changed"], last["unchanged"]) == (1, MANY)
    assert daemon.invoke("m1").ok
    after = {name: found for name, found in pids(daemon).items() if found}
    assert {**after, "m1": before["m1"]} == before
    assert after["m1"] != before["m1"]


def test_a_changed_module_waits_for_a_changed_one_it_needs(start_daemon: StartDaemon) -> None:
    needing = misbehaving("a", depends_on=["b"])
    daemon = start_daemon(needing, B, options=("--no-watch",))
    replace(daemon.modules / "a.json", text(needing, description="new"))
    replace(daemon.modules / "b.json", text(B, description="new"))
    daemon.op("reload")
    daemon.op("wait", modules=["b"])
    assert daemon.usable("a").ok
    lines = map(json.loads, daemon.log().splitlines())
    states = [(one["module"], one["after"]) for one in lines if one["event"] == "module state"]
    second_start = states.index(("b", "stopping"))
    assert states[second_start:].index(("b", "ready")) < states[second_start:].index(
        ("a", "stopping")
    )


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
