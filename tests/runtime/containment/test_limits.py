"""Limits of the whole tree, and `oom` with evidence only: row 17 of docs/faults.md."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Code, Failure, Reason
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import cgroup_folder, procfs
from supervisor.runtime.containment.cgroup2 import Cgroup
from supervisor.runtime.containment.ledger import NO_BRAND
from supervisor.runtime.containment.orphans import Orphans, Subtree
from tests.runtime.containment.in_process import ask, until
from tests.runtime.containment.lifelines import Lifelines

MIB = 1 << 20
Make = Callable[..., Any]


@pytest.mark.fault(17)
async def test_the_memory_of_a_grandchild_counts_and_the_failure_has_figures(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with(limits={"memory_bytes": 64 * MIB}) as daemon:
        await lifelines.taken("leader")
        await until(daemon, State.READY)
        response = await ask(daemon, "hog", bytes=128 * MIB).response()
        failure = response.outcome
        assert isinstance(failure, Failure)
        assert (failure.code, failure.details["reason"]) == (Code.OOM, Reason.MEMORY_LIMIT)
        evidence = failure.details["limit"]
        assert evidence["allowed"] == 64 * MIB < evidence["used"]
        await lifelines.taken("hog")
        await lifelines.all_dead()
        await until(daemon, State.DOWN)
        last = daemon.fleet.modules["stubborn"].last_exit
        assert last is not None
        assert last.reason == "memory_limit"
        assert str(64 * MIB) in last.message
        # Review: `status` had the figures in words only.
        assert last.shown()["limit"] == evidence


async def test_too_many_processes_are_ended_with_words(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with("child", limits={"processes": 3}, concurrency=2) as daemon:
        await lifelines.taken("leader", "child")
        await until(daemon, State.READY)
        hanging = ask(daemon, "hang")
        await ask(daemon, "bomb").response()
        failure = (await hanging.response()).outcome
        assert isinstance(failure, Failure)
        assert failure.details["reason"] == Reason.SIGNALED
        assert failure.details["limit"]["limit"] == "processes"
        assert failure.details["limit"]["allowed"] == 3
        await lifelines.all_dead()


@pytest.mark.fault(17)
async def test_a_kill_without_evidence_is_no_oom(daemon_with: Make, lifelines: Lifelines) -> None:
    async with daemon_with(limits={"memory_bytes": 512 * MIB}) as daemon:
        (leader,) = await lifelines.taken("leader")
        await until(daemon, State.READY)
        hanging = ask(daemon, "hang")
        os.kill(leader, signal.SIGKILL)
        failure = (await hanging.response()).outcome
        assert isinstance(failure, Failure)
        assert (failure.code, failure.details["reason"]) == (Code.UNREACHABLE, Reason.SIGNALED)


@pytest.mark.fault(17)
async def test_exit_137_is_no_oom(daemon_with: Make, lifelines: Lifelines) -> None:
    async with daemon_with(limits={"memory_bytes": 512 * MIB}) as daemon:
        await lifelines.taken("leader")
        await until(daemon, State.READY)
        failure = (await ask(daemon, "leave", code=137).response()).outcome
        assert isinstance(failure, Failure)
        assert failure.details["reason"] == Reason.EXITED


async def test_over_the_ceiling_the_biggest_goes_first_and_the_others_stay(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with(modules=("small", "big"), memory_ceiling_bytes=160 * MIB) as daemon:
        await lifelines.taken("leader", "leader")
        await until(daemon, State.READY, "small")
        await until(daemon, State.READY, "big")
        failure = (await ask(daemon, "hog", "big", bytes=256 * MIB).response()).outcome
        assert isinstance(failure, Failure)
        assert failure.code == Code.OOM
        assert failure.details["limit"]["limit"] == "memory_ceiling_bytes"
        assert failure.details["limit"]["allowed"] == 160 * MIB
        assert "their ceiling" in failure.message
        assert daemon.fleet.modules["small"].state is State.READY


async def test_kernel_limits_are_set_on_the_process(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    async with daemon_with(limits={"open_files": 64, "cpu_s": 7}) as daemon:
        (leader,) = await lifelines.taken("leader")
        await until(daemon, State.READY)
        assert resource.prlimit(leader, resource.RLIMIT_NOFILE) == (64, 64)
        assert resource.prlimit(leader, resource.RLIMIT_CPU) == (7, 8)


async def test_a_limit_that_cannot_be_set_refuses_the_start_and_says_why(
    daemon_with: Make, lifelines: Lifelines
) -> None:
    highest = int(procfs.read_bytes("/proc/sys/fs/nr_open"))
    async with daemon_with(start="lazy", limits={"open_files": highest + 1}) as daemon:
        failure = (await ask(daemon, "echo").response()).outcome
        assert isinstance(failure, Failure)
        assert "the limit open_files" in failure.message
        assert "cannot be set: Operation not permitted" in failure.message
        assert failure.details["reason"] in (Reason.SPAWN_FAILED, Reason.NOT_READY)


@pytest.mark.parametrize("killed", [0, 2])
def test_what_the_kernel_counted_is_evidence(tmp_path: Path, killed: int) -> None:
    # A folder that looks like a cgroup with the memory controller, which few machines delegate.
    for file in ("memory.max", "memory.oom.group"):
        (tmp_path / file).write_text("")
    me = procfs.stat(os.getpid())
    assert me is not None
    orphans = Orphans("d", whole_process=False)
    cgroup = Cgroup(str(tmp_path), Subtree("m#1", me, NO_BRAND, orphans), memory_counted=True)
    cgroup.limit_memory(1000)
    assert cgroup.counts_memory
    assert (tmp_path / "memory.max").read_text() == "1000"
    assert (tmp_path / "memory.oom.group").read_text() == "1"
    (tmp_path / "memory.events").write_text(f"low 0\noom 3\noom_kill {killed}\n")
    (tmp_path / "memory.peak").write_text("999\n")
    assert cgroup.memory_breach() == ((1000, 999) if killed else None)
    assert cgroup_folder.number(str(tmp_path), "memory.none") == 0
