"""Requests that take their time to be looked at delay nobody but who sent them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving
from tests.system.liveness import BOUND_S

SLOW = "a" * 60 + "!"
BACKTRACKING = {"go": {"properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}}
FORTY = 40


def backtracking(name: str) -> dict[str, Any]:
    return {**misbehaving(name), "inputs": BACKTRACKING}


def checkers(daemon: Daemon) -> list[int]:
    """Return the pids of the processes that check args."""
    below = psutil.Process(daemon.process.pid).children()
    return [one.pid for one in below if any("runtime.checking" in word for word in one.cmdline())]


@contextlib.contextmanager
def held_checker(daemon: Daemon) -> Iterator[None]:
    """Have the process that checks hold still: what it is given takes as long as the block."""
    assert daemon.invoke("evil", text="aaa").ok
    (pid,) = checkers(daemon)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def gone(pid: int) -> Iterator[None]:
    """Wait until a process that the block has killed is gone."""
    pidfd = os.pidfd_open(pid)
    try:
        yield
        ended, _, _ = select.select([pidfd], [], [], BOUND_S)
        assert ended, f"{pid} still lives"
    finally:
        os.close(pidfd)


@pytest.mark.fault(29)
def test_forty_slow_patterns_delay_neither_others_nor_the_same_clients_other_modules(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(backtracking("evil"), misbehaving("healthy"))
    with daemon.connect() as attacker, daemon.connect() as victim:
        slow = [attacker.send_invoke("evil", text=SLOW) for _ in range(FORTY)]
        passing = attacker.send_invoke("healthy", n=1)
        assert attacker.answer(passing).result == {"n": 1}
        assert victim.invoke("healthy", n=2).result == {"n": 2}
        # The very same op, with args that are good, and with such that are not.
        assert victim.invoke("evil", text="aaa").result == {"text": "aaa"}
        assert victim.invoke("evil", text="b").verdict == "bad_request/invalid_args"
        for one in slow:
            attacker.cancel(one)
        verdicts = [attacker.answer(one).verdict for one in slow]
        assert set(verdicts) <= {"cancelled/client", "bad_request/invalid_args"}
        assert verdicts.count("cancelled/client") > FORTY / 2  # the others have not waited for them


@pytest.mark.fault(29)
def test_what_is_behind_a_slow_one_begins_in_order_and_each_has_one_answer(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(backtracking("evil"))
    client = daemon.client
    slow = client.send_invoke("evil", text=SLOW)
    behind = client.send_invoke("evil", text="aaa")
    stop = client.send("supervisor", "invoke", {"op": "stop", "args": {"module": "evil"}})
    too_late = client.send_invoke("evil", text="aaa")
    refused = client.answer(slow)
    assert refused.verdict == "bad_request/invalid_args"
    assert "could not be checked by its schema: it took more than 1 s" in refused.error["message"]
    assert client.answer(behind).result == {"text": "aaa"}
    assert client.answer(stop).result["state"] == "down"
    # It is being stopped, or has been by the time that it is asked.
    assert client.answer(too_late).verdict in ("unreachable/stopping", "unreachable/not_ready")


@pytest.mark.fault(29)
def test_a_deadline_and_a_hang_up_end_what_is_being_looked_at(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(backtracking("evil"), misbehaving("healthy"))
    with held_checker(daemon):
        answer = daemon.client.invoke("evil", timeout_s=0.01, text=SLOW)
    assert answer.verdict == "timeout/deadline"
    assert answer.error["message"].endswith("its args were still being checked")
    with held_checker(daemon):
        with daemon.connect() as other:
            other.send_invoke("evil", text=SLOW)
            assert other.invoke("healthy").ok  # and so what is before it is being looked at
            other.send("supervisor", "invoke", {"op": "stop", "args": {"module": "evil"}})
        assert daemon.invoke("evil", text="aaa").result == {"text": "aaa"}
    assert daemon.status("evil")["state"] == "ready"  # the stop went with its client


@pytest.mark.fault(2, 29)
def test_a_daemon_that_is_killed_leaves_no_process_that_checks(folder: Path) -> None:
    daemon = Daemon(folder, backtracking("evil"))
    try:
        assert daemon.invoke("evil", text="aaa").ok
        (pid,) = checkers(daemon)
        with gone(pid):
            daemon.client.send_invoke("evil", text=SLOW)
            assert daemon.client.op("status").ok
            daemon.process.kill()
            daemon.process.wait(BOUND_S)
    finally:
        daemon.process.kill()
        daemon.process.wait(BOUND_S)
        daemon.client.close()
        daemon.kill_left()


def test_what_checks_is_no_module_and_goes_with_the_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(backtracking("evil"))
    assert daemon.invoke("evil", text="aaa").ok
    (pid,) = checkers(daemon)
    assert pid not in daemon.processes()
    status = daemon.op("status")
    assert status["daemon"]["possible_survivors"] == []
    assert [one["name"] for one in status["modules"]] == ["evil"]
    with gone(pid):
        os.kill(pid, signal.SIGKILL)
    assert daemon.invoke("evil", text="aaa").ok  # another one takes its place
