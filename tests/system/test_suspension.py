"""The daemon is stopped for a while: what was answered in time counts, and nothing is replaced."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

import pytest

from tests.bounds import until
from tests.runtime.containment.lifelines import letter
from tests.system.client import Client
from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving
from tests.system.liveness import Liveness, Member

REQUESTS = 5
PROBES = {"interval_s": 1}
"""Some are due while it is stopped."""
DEADLINES_S = (2, 4, 8, 16)
"""How long a request may take, if the daemon could not be stopped within half of the one before."""
AFTER_S = 2
"""So long after the deadline it goes on. The fault itself takes time; nothing is waited for."""


def suspend(
    pid: int, client: Client, liveness: Liveness, modules: list[str]
) -> tuple[list[str], list[Member], float]:
    """Stop a daemon while each of these modules is at a gate.

    Returns their requests, the gates, and the deadline of the requests, half of which is left.
    """
    for deadline_s in DEADLINES_S:
        asked_at, former = time.monotonic(), len(liveness.wait_for("gate", 0))
        sent = [client.send_invoke(one, timeout_s=deadline_s, fault="gate+done") for one in modules]
        gates = liveness.wait_for("gate", former + len(modules))[former:]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: letter(pid) == "T", "the daemon being stopped")
        if time.monotonic() - asked_at < deadline_s / 2:
            return sent, gates, deadline_s
        os.kill(pid, signal.SIGCONT)
        for gate in gates:
            gate.connection.shutdown(socket.SHUT_RDWR)
        for request_id in sent:
            client.answer(request_id)
        client.op("wait", modules=modules)
    raise AssertionError("the daemon could not be stopped before a deadline had passed")


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
    began_at = time.monotonic()
    daemon = start_daemon(
        *(
            # Without ids on its answers, and so one that is replaced when a deadline passes.
            misbehaving(name, "ids=no", env=environment, health=PROBES)
            for name in names
        ),
        misbehaving("later", env=environment),
    )
    client = daemon.client
    hanging = client.send_invoke("later", timeout_s=DEADLINES_S[0], fault="hang")
    sent, gates, deadline_s = suspend(daemon.process.pid, client, liveness, names)
    for gate in gates:
        gate.release()  # they answer while nobody reads
    passed(deadline_s + AFTER_S)
    daemon.process.send_signal(signal.SIGCONT)
    assert [client.answer(one).verdict for one in sent] == ["ok"] * REQUESTS
    # What has no answer still ends: with what it had left.
    assert client.answer(hanging).verdict == "timeout/deadline"
    for name in names:
        assert daemon.status(name)["state"] == "ready"
    assert {daemon.pid(name) for name in names} == {gate.pid for gate in gates}

    def told() -> list[float] | None:
        """Return how long it was suspended, once its log and its status tell the same."""
        whole, _, _ = daemon.log().rpartition("\n")
        lines = [line for line in whole.splitlines() if "the daemon was suspended" in line]
        seconds = [float(json.loads(line)["seconds"]) for line in lines]
        shown = daemon.op("status")["daemon"]["suspensions"]
        told_alike = (shown["count"], [shown["last_s"]]) == (len(seconds), seconds[-1:])
        return seconds if told_alike else None

    seconds = until(told, "a word in the log")
    assert max(seconds) > AFTER_S
    assert len(set(seconds)) == len(seconds)  # each is told of once
    assert sum(seconds) < time.monotonic() - began_at
