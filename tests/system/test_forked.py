"""A daemon that is forked is what it would have been if it had been started."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system import forked
from tests.system.conftest import StartDaemon
from tests.system.daemon import MARKER, Daemon
from tests.system.daemon_process import DaemonProcess
from tests.system.descriptors import misbehaving, write

STATUS = ["PPid", "Uid", "Gid", "Groups", "NoNewPrivs", "CapEff", "Seccomp", "Cpus_allowed"]
STATUS += ["SigBlk", "SigIgn", "SigCgt"]

OF_ONE_RUN = re.compile(r"/stdiod\.[^/]*|[-.][0-9a-f-]{32,}|[0-9]+")
"""What names a cgroup, a log, a process or an inode."""


def seen(daemon: Daemon) -> dict[str, Any]:
    """Return what the kernel tells of a daemon, and what its modules get of it."""
    proc = Path("/proc", str(daemon.process.pid))
    lines = proc.joinpath("status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    stat = proc.joinpath("stat").read_text().rpartition(")")[2].split()
    limits = proc.joinpath("limits").read_text().splitlines()
    files = []
    for one in proc.joinpath("fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.append(str(one.readlink()))
    environment = daemon.invoke("one", fault="environment").result["environment"]
    of_this_one = (*(name for name in environment if name.startswith("STDIOD_")), MARKER)
    return {
        "status": {name: status[name] for name in STATUS},
        "group, session, terminal": stat[2:5],
        "nice": stat[16],
        "limits": [line for line in limits if "file locks" not in line],  # a daemon's brand
        "cgroup": proc.joinpath("cgroup").read_text(),
        "cwd": proc.joinpath("cwd").readlink(),
        "out of memory": proc.joinpath("oom_score_adj").read_text(),
        "files": sorted(OF_ONE_RUN.sub("", one) for one in files),
        "status of itself": daemon.op("status")["daemon"].keys(),
        "environment": {**environment, **dict.fromkeys(of_this_one)},
    }


def settled(daemon: Daemon) -> dict[str, Any]:
    """Return what is seen twice in a row: a thread may have a file open for a moment."""
    before: dict[str, Any] = {}

    def same() -> dict[str, Any] | None:
        nonlocal before
        former, before = before, seen(daemon)
        return before if former == before else None

    return until(same, "the same twice")


def test_neither_the_kernel_nor_a_module_tells_one_from_the_other(
    start_daemon: StartDaemon,
) -> None:
    given = {"SOME": "words", "HOME": "/", "XDG_ONE": "1"}
    found = []
    for anew in (False, True):
        daemon = start_daemon(misbehaving("one"), environment=given, anew=anew)
        assert isinstance(daemon.process, forked.Forked) is not anew
        found.append(settled(daemon))
        daemon.end()
    assert found[0] == found[1]


def test_what_an_interpreter_reads_at_its_start_has_it_started(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(environment={"PYTHONUTF8": "1"})
    assert not isinstance(daemon.process, forked.Forked)
    names = Path(f"/proc/{daemon.process.pid}/environ").read_bytes().split(b"\0")
    assert b"PYTHONUTF8=1" in names


def test_one_leads_a_session_if_that_is_asked_for(folder: Path) -> None:
    write(folder / "modules")
    daemon = DaemonProcess(folder / "modules", folder)
    try:
        assert isinstance(daemon.popen, forked.Forked)
        assert os.getsid(daemon.popen.pid) == os.getpgid(daemon.popen.pid) == daemon.popen.pid
    finally:
        daemon.close()
    assert daemon.popen.returncode == 0


def test_who_has_lost_what_it_forks_from_has_another(start_daemon: StartDaemon) -> None:
    start_daemon().end()
    forked.kill()
    assert isinstance(start_daemon().process, forked.Forked)


def test_one_that_does_not_answer_as_the_test_begins_is_not_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(daemon: Daemon, op: str, **args: Any) -> None:
        daemon.client.close()
        raise AssertionError(daemon.process)

    monkeypatch.setattr(Daemon, "op", unanswered)
    with pytest.raises(AssertionError) as raised:
        Daemon(folder)
    assert raised.value.args[0].returncode == -9
