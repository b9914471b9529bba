"""A lone call gets a process that was born in its cgroup, and which is like any other otherwise."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Failure, Success
from supervisor.kernel.kernel import Kernel
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import cgroup_folder, procfs, spawner
from supervisor.runtime.containment.blanks import Blank, Blanks
from supervisor.runtime.files.sources import scan
from tests.factories import open_files, opened_since
from tests.runtime.containment.conftest import why_not
from tests.runtime.containment.in_process import ask, until, until_removed
from tests.runtime.containment.lifelines import PATIENCE_S, gone

pytestmark = pytest.mark.skipif(why_not("cgroup2") is not None, reason=str(why_not("cgroup2")))

FACTS = """
import json, os, resource, signal, sys
asked = json.loads(sys.stdin.readline())
with open("/proc/self/cgroup") as file:
    cgroup = file.read().splitlines()[-1]
with open("/proc/self/status") as file:
    status = dict(line.rstrip("\\n").split(":", 1) for line in file)
facts = {
    "cgroup": cgroup.rpartition("/")[2],
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:3],
    "mark": os.path.lexists("/proc/self/fd/1000"),
    "folder": os.getcwd(),
    "argv": sys.argv,
    "branded": resource.getrlimit(10)[0] != resource.getrlimit(10)[1],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "environment": {k: v for k, v in os.environ.items() if k != "STDIOD_INSTANCE"},
    "instance": os.environ["STDIOD_INSTANCE"],
    "signals": [status[key] for key in ("SigBlk", "SigIgn", "SigCgt", "ShdPnd", "Umask")],
    "nice": os.nice(0),
    "pid": os.getpid(),
}
print(json.dumps({"version": "0", "type": "done", "ok": True, "result": facts}))
"""

With = Callable[..., AbstractAsyncContextManager[Kernel]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody given up because the machine is slow."""
    for bound in ("blanks.ANSWERS_WITHIN_S", "spawn_threads.SPAWN_S"):
        monkeypatch.setattr(f"supervisor.runtime.containment.{bound}", 3600.0)


@pytest.fixture
def with_tools(tmp_path: Path) -> With:
    """Run a daemon with per-invocation tools: `facts`, and what else is given by its command."""

    @asynccontextmanager
    async def begin(
        limits: dict[str, Any] | None = None, **commands: list[str]
    ) -> AsyncIterator[Kernel]:
        folder = tmp_path / "modules"
        (folder / "work").mkdir(parents=True)
        commands["facts"] = [sys.executable, "-I", "-S", "-c", FACTS, "a word", "\N{SNOWMAN}", ""]
        for name, command in commands.items():
            transport = {
                "type": "stdio", "protocol": "narratoria", "command": command, "cwd": "work",
                "env": {"SNOW": "\N{SNOWMAN}"},
            }  # fmt: skip
            document = {"name": name, "kind": "tool", "version": "1", "description": "",
                        "capabilities": [], "inputs": {}, "outputs": {}, "transport": transport,
                        "supervision": {"limits": limits or {}, "concurrency": 2}}  # fmt: skip
            (folder / f"{name}.json").write_text(json.dumps(document))
        async with Kernel(
            scan([folder]),
            data_dir=tmp_path / "data",
            containment="cgroup2",
            whole_process=True,
        ) as daemon:
            for name in commands:
                await until(daemon, State.READY, name)
            yield daemon

    return begin


def blanks(daemon: Kernel) -> Blanks:
    found = daemon.facts.custody._blanks
    assert found is not None
    return found


async def waiting(daemon: Kernel) -> Blank:
    """Return the blank once there is one; the first call asks for it."""
    with trio.fail_after(PATIENCE_S):
        while (blank := blanks(daemon)._blank) is None:
            await trio.lowlevel.checkpoint()
    return blank


async def result(daemon: Kernel, module: str = "facts") -> dict[str, Any]:
    response = await ask(daemon, "run", module).response()
    assert isinstance(response.outcome, Success), response.outcome
    found: dict[str, Any] = response.outcome.result
    return found


async def failure(daemon: Kernel, module: str) -> Failure:
    response = await ask(daemon, "run", module).response()
    assert isinstance(response.outcome, Failure)
    return response.outcome


def stopped(pid: int) -> None:
    """Wait until a signal has stopped a process."""
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


async def test_a_call_that_comes_alone_gets_one_that_was_born_in_its_cgroup(
    with_tools: With,
) -> None:
    async with with_tools(limits={"open_files": 77}) as daemon:
        usual = await result(daemon)
        blank = await waiting(daemon)
        lone = await result(daemon)
        assert (lone.pop("cgroup"), usual.pop("cgroup")) == ("blank.1", "facts#1")
        assert (lone.pop("instance"), usual.pop("instance")) == ("facts#2", "facts#1")
        assert (lone.pop("pid"), usual.pop("pid") == blank.pid) == (blank.pid, False)
        assert lone == usual
        assert lone["leads"] == [True, True]
        assert lone["files"] == [77, 77]
        await until_removed(daemon, "blank.2")


async def test_calls_that_come_one_upon_the_other_are_spawned_in_the_usual_way(
    with_tools: With,
) -> None:
    async with with_tools() as daemon:
        await result(daemon)
        await waiting(daemon)
        asked = [ask(daemon, "run", "facts") for _ in range(2)]
        outcomes = [(await one.response()).outcome for one in asked]
        cgroups = [one.result["cgroup"] for one in outcomes if isinstance(one, Success)]
        assert [name.partition(".")[0] for name in cgroups].count("blank") == 1


async def test_what_cannot_be_run_is_told_in_the_same_words(
    with_tools: With, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "crlf").write_text("#!/bin/sh\n")
    (tmp_path / "crlf").chmod(0o755)
    tools = {
        "plain": [str(tmp_path / "plain")],
        "crlf": [str(tmp_path / "crlf")],
        "gone": [str(tmp_path / "soon gone")],
        "homeless": ["true"],
    }
    (tmp_path / "plain").chmod(0o755)
    (tmp_path / "soon gone").symlink_to("/bin/true")
    async with with_tools(**tools) as daemon:
        (tmp_path / "soon gone").unlink()
        (tmp_path / "crlf").write_text("#!/bin/sh\r\n")
        await result(daemon)
        for name in tools:
            if name == "homeless":
                (tmp_path / "modules" / "work").rmdir()
            blank = await waiting(daemon)
            lone = await failure(daemon, name)
            assert gone(blank.pid)
            usual = await failure(daemon, name)
            assert lone.message == usual.message
            assert lone.details["reason"] == "spawn_failed"
        await until_removed(daemon, "blank")


async def test_a_program_that_is_being_written_is_tried_again(
    with_tools: With, tmp_path: Path
) -> None:
    program = tmp_path / "written"
    shutil.copyfile("/bin/true", program)
    program.chmod(0o755)
    async with with_tools(written=[str(program)]) as daemon:
        await result(daemon)
        await waiting(daemon)
        with program.open("ab"):
            asked = ask(daemon, "run", "written")
            with trio.fail_after(PATIENCE_S):
                while blanks(daemon)._blank is not None:
                    await trio.lowlevel.checkpoint()
        response = await asked.response()
        assert isinstance(response.outcome, Failure)
        assert response.outcome.details["reason"] == "missing_done"


async def test_a_request_too_large_for_a_message_is_served_in_the_usual_way(
    with_tools: With,
) -> None:
    large = [sys.executable, "-I", "-S", "-c", FACTS, *("x" * 100_000 for _ in range(10))]
    async with with_tools(large=large) as daemon:
        await result(daemon)
        blank = await waiting(daemon)
        assert (await result(daemon, "large"))["cgroup"].startswith("large#")
        assert gone(blank.pid)


@pytest.mark.fault(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_spawner_that_dies_is_followed_by_another(
    with_tools: With, number: signal.Signals
) -> None:
    async with with_tools() as daemon:
        await result(daemon)
        await waiting(daemon)
        former = daemon.facts.custody.spawner_pid
        assert former is not None
        os.kill(former, number)
        first = await result(daemon)
        with trio.fail_after(PATIENCE_S):
            while daemon.facts.custody.spawner_pid in (former, None):
                await result(daemon)
        await waiting(daemon)
        assert (await result(daemon))["cgroup"].startswith("blank.")
        assert first["leads"] == [True, True]
        assert await trio.to_thread.run_sync(gone, former)


async def test_a_blank_that_is_killed_is_not_asked(with_tools: With) -> None:
    async with with_tools() as daemon:
        await result(daemon)
        blank = await waiting(daemon)
        os.kill(blank.pid, signal.SIGKILL)
        assert await trio.to_thread.run_sync(gone, blank.pid)
        assert (await result(daemon))["cgroup"].startswith("facts#")
        await waiting(daemon)
        await until_removed(daemon, "blank.2")


@pytest.mark.fault(26)
async def test_one_that_is_held_is_not_asked_and_nobody_waits_for_it(with_tools: With) -> None:
    async with with_tools() as daemon:
        await result(daemon)
        blank = await waiting(daemon)
        os.kill(blank.pid, signal.SIGSTOP)
        await trio.to_thread.run_sync(stopped, blank.pid)
        assert (await result(daemon))["cgroup"].startswith("facts#")
        assert await trio.to_thread.run_sync(gone, blank.pid)
        await waiting(daemon)
        assert (await result(daemon))["cgroup"].startswith("blank.2")


@pytest.mark.fault(26)
async def test_a_spawner_that_is_held_is_replaced_long_before_it_would_be_given_up(
    with_tools: With,
) -> None:
    async with with_tools() as daemon:
        await result(daemon)
        await waiting(daemon)
        former = daemon.facts.custody.spawner_pid
        assert former is not None
        os.kill(former, signal.SIGSTOP)
        await trio.to_thread.run_sync(stopped, former)
        with trio.fail_after(PATIENCE_S):
            while daemon.facts.custody.spawner_pid in (former, None):
                await result(daemon)
        assert await trio.to_thread.run_sync(gone, former)


async def test_where_no_process_can_be_born_in_a_cgroup_all_goes_the_usual_way(
    with_tools: With, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import socket, struct, sys\n"
        "channel = socket.socket(fileno=int(sys.argv[1]))\n"
        "while channel.recv(100):\n"
        f"    channel.send(struct.pack('i', -{errno.ENOSYS}))"
    )
    started: list[int] = []

    def command(descriptor: int) -> list[str]:
        started.append(descriptor)
        return [sys.executable, "-I", "-S", "-c", program, str(descriptor)]

    monkeypatch.setattr(spawner, "command", command)
    async with with_tools() as daemon:
        await result(daemon)
        with trio.fail_after(PATIENCE_S):
            await blanks(daemon)._over.wait()
        assert (await result(daemon))["cgroup"].startswith("facts#")
        assert daemon.facts.custody.spawner_pid is None
        assert len(started) == 1
        await until_removed(daemon)


async def test_nothing_is_left_when_the_daemon_ends(with_tools: With) -> None:
    before, folder, pids = open_files(), "", list[int]()
    async with with_tools() as daemon:
        await result(daemon)
        pids.append((await waiting(daemon)).pid)
        pids.append(daemon.facts.custody.spawner_pid or 0)
        folder = daemon.facts.custody._rung.folder or ""
    assert all(gone(pid) for pid in pids)
    assert not cgroup_folder.subtree(folder)
    assert not opened_since(before)


async def test_one_that_waits_is_no_owner_of_what_others_leave(with_tools: With) -> None:
    async with with_tools() as daemon:
        await result(daemon)
        blank = await waiting(daemon)
        custody = daemon.facts.custody
        stray = blank.containment.leader._replace(pid=1, start=procfs.now_ticks() + 100)
        assert custody._orphans.ownerless([stray]) == [stray]
        assert custody.strays.possible_survivors() == ()
