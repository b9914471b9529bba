"""Files that do not answer keep those who need them, and nobody else; row 36."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.kernel.assets.files import CHECKS_AT_ONCE
from supervisor.runtime.containment.spawn import AT_ONCE
from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon, command
from tests.system.dead_mount import dead_mount
from tests.system.descriptors import descriptor, misbehaving, write
from tests.system.liveness import BOUND_S


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
                f"looking at the program of {daemon.modules / 'watched.json'}",
            }
            until(lambda: both <= stuck(daemon), "the looks that are stuck")
            write(daemon.modules, misbehaving("late"))
            daemon.op("reload")  # whatever is stuck is left out
            assert daemon.usable("late").ok
            os.kill(daemon.pid("live"), signal.SIGKILL)
            assert daemon.usable("live").ok
            assert daemon.client.op("logs", module="live", lines=1).ok
            assert daemon.client.op("events", last=1).ok
    until(lambda: not stuck(daemon), "nothing being stuck")


@pytest.mark.fault(36)
def test_a_daemon_starts_whatever_of_its_directories_and_programs_does_not_answer(
    folder: Path, start_daemon: StartDaemon
) -> None:
    modules, mount = folder / "modules", folder / "mount"
    late, whole = folder / "late", folder / "whole"
    for one, name in ((late, "late"), (whole, "whole")):
        write(one, misbehaving(name))
    modules.mkdir()
    (modules / "late").symlink_to(mount / "late")  # a module's folder
    watched = misbehaving("watched", watch=True)
    watched["transport"]["command"].append(str(mount / "program"))
    with dead_mount(mount):
        daemon = start_daemon(misbehaving("live"), watched, options=(str(mount / "whole"),))
        assert daemon.usable("live").ok
        bad = {one["descriptor"]: one["reason"] for one in daemon.op("status")["quarantined"]}
        assert set(bad) == {str(modules / "late" / "module.json"), str(mount / "whole")}
        assert all("does not answer" in reason for reason in bad.values())
        named = {
            f"reading the directory {mount / 'whole'}",
            f"reading {modules / 'late'}",
            f"looking at the program of {modules / 'watched.json'}",
        }
        until(lambda: named <= stuck(daemon), "all that does not answer")
        pid = daemon.pid("watched")
        # What comes is seen although so much else does not answer.
        write(modules, misbehaving("new"))
        until(lambda: daemon.invoke("new").ok, "the watch seeing a new module")
    # It answers now, and what is there is what its files say.
    late.joinpath("late.json").rename(late / "module.json")
    for one in (late, whole):
        one.rename(mount / one.name)
    until(lambda: daemon.invoke("late").ok, "the module of the folder")
    until(lambda: daemon.invoke("whole").ok, "the module of the directory")
    assert daemon.pid("watched") == pid
    assert daemon.op("status")["quarantined"] == []


@pytest.mark.fault(36)
def test_a_daemon_that_cannot_do_without_what_does_not_answer_says_so_and_ends(
    folder: Path,
) -> None:
    write(folder / "modules")
    mount = folder / "mount"

    def run(name: str, *options: str) -> list[str]:
        data = mount / name if name == "data" else folder / name
        socket = mount / name if name == "socket" else folder / f"{name}.socket"
        return command(folder / "modules", socket, data, *options)

    up = [*run("data")]
    up[up.index("run")] = "up"
    del up[up.index("--log-format") :]
    commands = {
        mount / "config": run("config", "--config", str(mount / "config")),
        mount / "policy": run("policy", "--policy", str(mount / "policy")),
        mount / "data": run("data"),
        mount / "socket": run("socket"),
        mount / "data" / "stdiod.log": up,
    }
    with dead_mount(mount):
        # Side by side: each waits for some seconds.
        begun = [
            subprocess.Popen(words, stderr=subprocess.PIPE, stdout=sys.stdout, text=True)
            for words in commands.values()
        ]
        for path, process in zip(commands, begun, strict=True):
            _, said = process.communicate(timeout=BOUND_S)
            assert process.returncode == 2, said
            assert str(path) in said
            assert "does not answer" in said


@pytest.mark.fault(36)
def test_a_log_that_does_not_answer_and_logs_of_modules_on_a_dead_mount_are_named(
    folder: Path, start_daemon: StartDaemon
) -> None:
    own_log = folder / "own-log"
    os.mkfifo(own_log)
    with dead_mount(folder / "mount") as mount:
        daemon = start_daemon(misbehaving("live"), options=("--log-file", str(own_log)))
        logs, link = daemon.data_dir / "logs", daemon.data_dir / "link"
        link.symlink_to(mount)
        former = itertools.count()

        def replaced() -> bool:
            # The daemon makes the folder anew when it has a line to write.
            logs.rename(daemon.data_dir / f"former-logs-{next(former)}")
            with contextlib.suppress(IsADirectoryError):
                link.rename(logs)
            return logs.is_symlink()

        until(replaced, "a link in the place of the logs")
        expected = {"writing the daemon's own log", "writing and reading the modules' logs"}

        def named() -> bool:
            assert daemon.invoke("live", fault="stderr", bytes=1000).ok
            assert daemon.op("restart", module="live")
            assert daemon.usable("live").ok
            return expected <= stuck(daemon)

        until(named, "the threads that are stuck")
        assert daemon.op("status")["daemon"]["own_log"]["lost_lines"] == 0
    with own_log.open("rb") as reader:
        assert b'"event"' in reader.readline()
        daemon.end()


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


@pytest.mark.fault(36)
def test_assets_and_a_policy_that_do_not_answer_are_named_and_keep_no_other_module(
    folder: Path, start_daemon: StartDaemon
) -> None:
    policy = folder / "policy"
    policy.mkdir()
    (policy / "policy.toml").write_text("")
    link = folder / "policy.toml"
    link.symlink_to(policy / "policy.toml")
    picture = folder / "picture"
    picture.write_bytes(b"x")
    with dead_mount(folder / "mount") as mount:
        daemon = start_daemon(
            misbehaving("dead", concurrency=2 * CHECKS_AT_ONCE),
            misbehaving("live"),
            options=("--policy", str(link)),
        )
        paths = [str(mount / f"picture{n}") for n in range(CHECKS_AT_ONCE + 2)]
        asked = [daemon.client.send_invoke("dead", fault="asset", path=one) for one in paths]
        until(lambda: "looking at an asset of dead" in stuck(daemon), "its assets being named")
        answer = daemon.invoke("live", fault="asset", path=str(picture))
        assert answer.events[0]["registered"]["bytes"] == 1
        link.unlink()
        link.symlink_to(mount / "policy.toml")
        with daemon.connect() as other:
            other.send("supervisor", "invoke", {"op": "reload", "args": {}})
            until(lambda: "reading the policy" in stuck(daemon), "the policy being named")
            assert daemon.invoke("live", word="on").result["word"] == "on"
        assert {daemon.client.answer(one).verdict for one in asked} == {"ok"}  # without its asset
    until(lambda: not stuck(daemon), "nothing being stuck")


@pytest.mark.fault(36)
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(
    folder: Path, start_daemon: StartDaemon
) -> None:
    modules, policy, pipe = folder / "modules", folder / "policy.toml", folder / "pipe"
    modules.mkdir()
    os.mkfifo(modules / "half.json")
    os.mkfifo(pipe)
    policy.write_text("")
    logs = folder / "data" / "logs"
    logs.mkdir(parents=True)
    os.mkfifo(logs / "live.log")
    daemon = start_daemon(
        misbehaving("live"), misbehaving("other"), options=("--policy", str(policy))
    )
    (bad,) = daemon.op("status")["quarantined"]
    assert (bad["descriptor"], bad["reason"]) == (
        str(modules / "half.json"),
        "is not a regular file",
    )
    assert daemon.invoke("other", fault="stderr", bytes=1000).ok
    (said,) = daemon.client.op("logs", module="other", lines=1).events
    assert said["message"] == "the last words"
    (warning,) = daemon.invoke("live", fault="stderr+asset", bytes=9, path=str(pipe)).done[
        "warnings"
    ]
    assert "is not a regular file" in warning["message"]
    assert not daemon.client.op("logs", module="live", lines=1).events
    assert str(logs / "live.log") in daemon.op("status")["daemon"]["log_error"]
    for path in (policy, modules / "other.json"):
        beside = path.with_name(f".{path.name}.new")
        os.mkfifo(beside)
        beside.replace(path)
    found = daemon.op("reload")
    assert "is not a regular file" in found["policy_problem"]
    assert {one["descriptor"] for one in found["quarantined"]} == {
        str(modules / "half.json"),
        str(modules / "other.json"),
    }
    assert found["unchanged"] == ["live", "other"]
    assert daemon.invoke("live").ok
    assert daemon.invoke("other").ok
    assert not stuck(daemon)
