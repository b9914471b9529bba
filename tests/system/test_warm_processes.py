"""Warm processes of a real daemon: shown, used, contained, replaced by a reload, gone with it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.daemon_process import DaemonProcess
from tests.system.descriptors import narratoria, per_invocation, timeouts, write
from tests.system.liveness import Liveness
from tests.system.reloading import reload_of, replace

EITHER = pytest.mark.parametrize("describe", [narratoria, per_invocation])


def waiting(daemon: Daemon, number: int = 2, without: Collection[str] = ()) -> dict[str, int]:
    """Return those that wait, once they are so many and none of the others; pids by id."""

    def found() -> dict[str, int] | None:
        instances = daemon.status("tool")["instances"]
        warm = {one["id"]: one["pid"] for one in instances if one["state"] == "warm"}
        return warm if len(warm) == number and not warm.keys() & without else None

    return until(found, f"{number} processes that wait")


@EITHER
def test_a_request_gets_one_that_waits_and_no_other_request_does(
    start_daemon: StartDaemon, describe: Callable[..., dict[str, Any]]
) -> None:
    daemon = start_daemon(describe("tool", warm=2))
    used: list[str] = []
    for _ in range(3):
        before = waiting(daemon, without=used)
        result = daemon.invoke("tool", fault="environment").result
        used.append(result["environment"]["STDIOD_INSTANCE"])
        assert used[-1] == next(iter(before))
    waiting(daemon, without=used)
    status = daemon.status("tool")
    assert all(one["rss_bytes"] > 0 for one in status["instances"])
    assert (status["in_flight"], status["restarts"], status["last_exit"]) == (0, 0, None)


@EITHER
def test_a_stop_leaves_none_nor_what_it_started_while_it_waited(
    start_daemon: StartDaemon, liveness: Liveness, describe: Callable[..., dict[str, Any]]
) -> None:
    where = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(describe("tool", "start=escapee+grandchild", env=where, warm=2))
    liveness.wait_for("module", 2)
    liveness.wait_for("escapee", 2)
    members = [*liveness.members, *liveness.wait_for("grandchild", 2)]
    daemon.op("stop", module="tool")
    for member in members:
        member.wait_gone()
    assert daemon.status("tool")["instances"] == []


def test_a_killed_daemon_leaves_none(folder: Path, liveness: Liveness) -> None:
    where = {"LIVENESS": str(liveness.path)}
    write(folder / "modules", narratoria("tool", "start=escapee+ignore_sigterm", env=where, warm=2))
    daemon = DaemonProcess(folder / "modules", folder)
    try:
        members = [*liveness.wait_for("module", 2), *liveness.wait_for("escapee", 2)]
    finally:
        daemon.kill()
    for member in members:
        member.wait_gone()


def test_those_who_ignore_a_sigterm_do_not_hold_up_the_end(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    where = {"LIVENESS": str(liveness.path)}
    stubborn = narratoria(
        "tool", "start=ignore_sigterm", env=where, warm=2, timeouts=timeouts(stop_s=0.05)
    )
    daemon = start_daemon(stubborn)
    members = liveness.wait_for("module", 2)
    waiting(daemon)
    daemon.end()
    assert all(not member.alive() for member in members)


def test_one_that_is_killed_is_a_crash_with_evidence_and_all_are_replaced(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(narratoria("tool", warm=2))
    before = waiting(daemon)
    victim, pid = next(iter(before.items()))
    os.kill(pid, signal.SIGKILL)
    waiting(daemon, without=before)
    status = daemon.status("tool")
    assert (status["state"], status["restarts"]) == ("ready", 1)
    assert status["last_exit"]["signal"] == signal.SIGKILL
    assert status["last_exit"]["message"].startswith(f"{victim} was killed by SIGKILL while it")
    assert daemon.invoke("tool").ok


@pytest.mark.parametrize(("describe", "code"), [(narratoria, 0), (per_invocation, 3)])
def test_a_program_that_does_not_wait_for_its_request_fails(
    start_daemon: StartDaemon, describe: Callable[..., dict[str, Any]], code: int
) -> None:
    words = ("start=stderr+exit", f"code={code}")
    daemon = start_daemon(describe("tool", *words, warm=1, intensity=3), wait=False)
    daemon.wait_state("tool", "failed")
    status = daemon.status("tool")
    assert (status["state"], status["restarts"], status["instances"]) == ("failed", 3, [])
    assert status["last_exit"]["exit_code"] == code
    assert status["last_exit"]["stderr_tail"][-1] == "the last words"
    assert daemon.invoke("tool").verdict == "unreachable/failed"


def test_a_reload_replaces_those_of_a_changed_descriptor_and_no_others(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(narratoria("tool", warm=2), narratoria("other"))
    before = waiting(daemon)
    path = daemon.modules / "other.json"
    with reload_of(daemon):
        replace(path, json.dumps({**json.loads(path.read_text()), "version": "2"}))
    assert waiting(daemon) == before
    with reload_of(daemon):
        replace(daemon.modules / "tool.json", json.dumps(narratoria("tool", "ids=no", warm=3)))
    waiting(daemon, 3, without=before)
    assert daemon.status("tool")["last_exit"] is None


@pytest.mark.parametrize("watch", [True, False])
def test_who_changes_the_program_and_asks_gets_the_new_one(
    start_daemon: StartDaemon, folder: Path, watch: bool
) -> None:
    text = 'import sys\nsys.stdin.read()\nprint(\'{"version":"0","type":"done","ok":true,'
    program = folder / "program.py"
    program.write_text(text + '"result":1}\')\n')
    made = narratoria("tool", warm=2, watch=watch)
    made["transport"]["command"][3:] = [str(program)]
    daemon = start_daemon(made)
    waiting(daemon)
    assert daemon.invoke("tool").result == 1
    replace(program, text + '"result":2}\')\n')
    assert daemon.invoke("tool").result == 2
    waiting(daemon)
    assert daemon.invoke("tool").result == 2
