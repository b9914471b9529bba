"""A number is free for another process once its owner is reaped: nobody signals it after that.

No pid has to come round for that: each signal is looked at when it is sent. What it hits must be
the process that was spawned (the same start time in /proc), alive or a zombie, never reaped.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from supervisor.policy.lifecycle import State
from tests.factories import actor, children
from tests.runtime.conftest import Running
from tests.runtime.process.test_process import door
from tests.runtime.supervision.test_persistent import submit

SOON = {"initial_s": 0.001, "factor": 1, "max_s": 0.001, "jitter": 0}

Sent = tuple[str, int, str]
"""What was done (`kill` or `reap`), to which leader, and the leader's state at that moment."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    """Record each signal to a group, and each reaping."""
    done: list[Sent] = []
    killpg, waitid = os.killpg, os.waitid

    def recorded_killpg(group: int, number: int) -> None:
        if number == signal.SIGKILL:
            done.append(("kill", group, state(group)))
        killpg(group, number)

    def recorded_waitid(kind: int, identity: int, options: int) -> Any:
        found = waitid(kind, identity, options | os.WNOWAIT)
        if found is not None and not options & os.WNOWAIT:
            done.append(("reap", found.si_pid, state(found.si_pid)))
        return waitid(kind, identity, options)

    monkeypatch.setattr(os, "killpg", recorded_killpg)
    monkeypatch.setattr(os, "waitid", recorded_waitid)
    return done


def state(pid: int) -> str:
    """Return the letter of a process's state, or `gone`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


@pytest.mark.fault(24)
@pytest.mark.parametrize(("op", "args"), [("exit", {"code": 0}), ("kill", {"signal": 9})])
async def test_the_group_is_killed_while_its_leader_is_a_zombie_and_never_after(
    running: Running, tmp_path: Path, done: list[Sent], op: str, args: dict[str, Any]
) -> None:
    module = await running.ready(actor(tmp_path))
    (leader,) = children()
    with door(tmp_path / "door") as listener:
        # A grandchild holds the group's number too.
        await submit(module, "fork", socket=str(tmp_path / "door")).success()
        link, _ = await listener.accept()
        with link:
            assert await link.recv(10) == b"here\n"
            await submit(module, op, **args).failure()
            await running.until(lambda: module.state is State.READY)
            assert await link.recv(10) == b""
    of_leader = [(what, was) for what, pid, was in done if pid == leader.pid]
    assert of_leader[-1] == ("reap", "Z")
    assert ("kill", "Z") in of_leader
    assert [what for what, _ in of_leader].count("reap") == 1
    await running.down()


@pytest.mark.fault(24)
async def test_many_ends_never_signal_a_number_that_was_given_back(
    running: Running, tmp_path: Path, done: list[Sent]
) -> None:
    module = await running.ready(actor(tmp_path, supervision={"intensity": 1000, "backoff": SOON}))
    for number in range(30):
        if number % 2:
            module.restart("the test")
            await running.until(lambda: module.state is not State.READY)
        else:
            await submit(module, "exit", code=1).failure()
        await running.until(lambda: module.state is State.READY)
    await running.down()
    assert "gone" not in {was for _, _, was in done}
    reaped: set[int] = set()
    for what, pid, _ in done:
        assert pid not in reaped or what == "reap"
        if what == "reap":
            reaped.add(pid)
