"""Hot reload of a real daemon: what changed is replaced, the rest keeps its processes.

No test waits for a time: the daemon counts its reloads, and `reloaded` waits for the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.descriptors import descriptor, misbehaving, per_invocation, write
from tests.system.reloading import A, B, pids, quarantined, reload_of, rename, replace, text, touch


def rewrite(path: Path) -> None:
    path.write_text(path.read_text())


def reformat(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4, sort_keys=True))


def say_defaults(path: Path) -> None:
    document = json.loads(path.read_text())
    document["supervision"]["concurrency"] = 1
    path.write_text(json.dumps(document))


def copy_over(path: Path) -> None:
    replace(path, path.read_text())


def chmod(path: Path) -> None:
    path.chmod(0o600)


@pytest.mark.fault(22)
def test_a_change_that_changes_nothing_touches_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A, B)
    before = pids(daemon)
    for do in (touch, rewrite, reformat, say_defaults, copy_over, chmod, rename):
        with reload_of(daemon) as last:
            do(daemon.modules / "a.json")
        assert pids(daemon) == before, do
        assert quarantined(daemon) == {}, do
        assert last["unchanged"] == 2, do
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
    assert daemon.status("a")["quarantined"] == quarantined(daemon)["a.json"]
    assert daemon.status("b")["quarantined"] is None
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


def test_a_per_invocation_module_is_reloaded_too(start_daemon: StartDaemon) -> None:
    module = per_invocation("a")
    daemon = start_daemon(module)
    assert daemon.invoke("a").ok
    with reload_of(daemon):
        (daemon.modules / "a.json").write_text(text(module, description="new"))
    assert daemon.invoke("a").ok
    assert daemon.status("a")["description"] == "new"


def with_command(*command: str) -> str:
    transport = {**A["transport"], "command": list(command)}
    return text({**A, "transport": transport})


@pytest.mark.fault(32)
def test_a_change_to_a_program_that_is_missing_leaves_the_module_running_until_it_is_there(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(A)
    before = pids(daemon)
    program = daemon.modules / "program"
    with reload_of(daemon):
        (daemon.modules / "a.json").write_text(with_command("./program"))
    assert pids(daemon) == before
    for plan in (daemon.op("reload", dry_run=True), daemon.op("reload")):
        (refused,) = plan["quarantined"]
        assert f"{program} is not there. The last good version stays in use." in refused["reason"]
        assert plan["changed"] == []
    with reload_of(daemon):
        program.symlink_to("/usr/bin/env")
        through_it = with_command("./program", *A["transport"]["command"])
        (daemon.modules / "a.json").write_text(through_it)
    assert pids(daemon)["a"] != before["a"]
    assert quarantined(daemon) == {}


def test_a_dry_run_names_a_program_that_is_missing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A, options=("--no-watch",))
    write(daemon.modules, descriptor("b", ["./nothing"]))
    (one,) = daemon.op("reload", dry_run=True)["unrunnable"]
    assert "nothing is not there" in one["reason"]


@pytest.mark.fault(32)
def test_a_successor_that_fails_is_refused_with_its_last_words(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A, options=("--no-watch",))
    before = pids(daemon)
    (daemon.modules / "a.json").write_text(with_command("sh", "-c", "echo no cheese >&2; exit 3"))
    (refused,) = daemon.op("reload")["quarantined"]
    assert "exited with code 3; its last line on stderr: no cheese" in refused["reason"]
    assert pids(daemon) == before
    assert daemon.status("a")["quarantined"] == refused["reason"]
    assert daemon.invoke("a").ok


@pytest.mark.fault(32)
def test_fifty_edits_under_load_lose_nothing_and_leave_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    path = daemon.modules / "a.json"
    bad = ['{"name": "a", ', with_command("./missing"), with_command("sh", "-c", "exit 1")]
    with daemon.connect() as client:
        asked: list[str] = []
        for number in range(50):
            replace(path, [text(A, description=f"edit {number}"), *bad][number % 4])
            asked += [client.send("supervisor", "invoke", {"op": "reload"})]
            asked += [client.send_invoke("a") for _ in range(4)]
        replace(path, text(A, description="the last one"))
        asked += [client.send("supervisor", "invoke", {"op": "reload"})]
        for one in asked:
            assert client.answer(one).ok
    assert daemon.status("a")["description"] == "the last one"
    assert quarantined(daemon) == {}
    until(
        lambda: len(daemon.status("a")["instances"]) == 1, "the last of the former ones being gone"
    )
    assert len(daemon.processes()) == 1


MANY = 10_000


@pytest.mark.bound(600)
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
