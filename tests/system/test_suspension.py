"""The daemon is stopped for a while: what was answered in time counts, and nothing is replaced."""

from __future__ import annotations

import json
import os
import select
import signal
import time

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving
from tests.system.liveness import Liveness

REQUESTS = 5
PROBES = {"interval_s": 1}
"""Some are due while it is stopped."""
DEADLINE_S = 4
STOPPED_S = 6
"""The fault itself takes time; nothing is waited for in it."""


def stopped(daemon: Daemon) -> None:
    """Return when the kernel has stopped it."""
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED | os.WNOWAIT)


def passed(seconds: float) -> None:
    """Let time pass for a process that is stopped."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        select.select([], [], [], left)


@pytest.mark.fault(28)
def test_answers_that_lay_in_the_pipe_count_and_nobody_is_replaced(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    environment = {"LIVENESS": str(liveness.path)}
    names = [f"m{number}" for number in range(REQUESTS)]
    daemon = start_daemon(
        *(
            # Without ids on its answers, and so one that is replaced when a deadline passes.
            misbehaving(name, "ids=no", env=environment, health=PROBES)
            for name in names
        ),
        misbehaving("later", env=environment),
    )
    client = daemon.client
    sent = [client.send_invoke(name, timeout_s=DEADLINE_S, fault="gate+done") for name in names]
    gates = liveness.wait_for("gate", REQUESTS)
    hanging = client.send_invoke("later", timeout_s=DEADLINE_S, fault="hang")
    assert client.op("status").ok
    stopped(daemon)
    for gate in gates:
        gate.release()  # they answer while nobody reads
    passed(STOPPED_S)
    daemon.process.send_signal(signal.SIGCONT)
    assert [client.answer(one).verdict for one in sent] == ["ok"] * REQUESTS
    # What has no answer still ends: with what it had left.
    assert client.answer(hanging).verdict == "timeout/deadline"
    for name in names:
        status = daemon.status(name)
        assert (status["state"], status["restarts"], status["last_exit"]) == ("ready", 0, None)
    suspensions = daemon.op("status")["daemon"]["suspensions"]
    assert suspensions["count"] == 1
    assert suspensions["last_s"] > STOPPED_S - DEADLINE_S
    words = "the daemon was suspended"
    until(lambda: words in daemon.log(), "a word in the log")
    lines = [line for line in daemon.log().splitlines() if words in line]
    assert [json.loads(line)["seconds"] for line in lines] == [suspensions["last_s"]]
