"""SIGSTOP: alive for the kernel, dead for everyone else."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, timeouts
from tests.system.fleet import SHORT_S
from tests.system.liveness import Liveness

PATIENT_PROBES = {"interval_s": 3600}


@pytest.mark.fault(18)
def test_the_health_of_a_stopped_process_is_a_timeout(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving(
            "one",
            env={"LIVENESS": str(liveness.path)},
            health=PATIENT_PROBES,
            timeouts=timeouts(health_s=SHORT_S),
        ),
        misbehaving("witness"),
    )
    (process,) = liveness.wait_for("module")
    os.kill(process.pid, signal.SIGSTOP)
    answer = daemon.client.ask("one", "health")
    assert answer.error["code"] == "timeout"
    assert daemon.client.ask("witness", "health").ok


@pytest.mark.fault(18)
@pytest.mark.parametrize("rude", [False, True])
def test_a_stopped_process_can_be_stopped_and_a_later_sigcont_raises_no_ghost(
    start_daemon: StartDaemon, liveness: Liveness, rude: bool
) -> None:
    daemon = start_daemon(
        misbehaving(
            "one",
            *(["start=ignore_sigterm"] if rude else []),
            env={"LIVENESS": str(liveness.path)},
            health=PATIENT_PROBES,
            timeouts=timeouts(exit_s=SHORT_S, stop_s=SHORT_S),
        )
    )
    (process,) = liveness.wait_for("module")
    pidfd = os.pidfd_open(process.pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        status = daemon.op("stop", module="one")
        assert (status["state"], status["restarts"]) == ("down", 0)
        # Continued by its SIGTERM, a rude one ends with its input.
        assert status["last_exit"]["reason"] == "stopped"
        process.wait_gone()
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    finally:
        os.close(pidfd)
    assert daemon.processes() == []
    assert daemon.status("one")["state"] == "down"
    daemon.op("start", module="one")
    assert daemon.invoke("one", word="hello").result == {"word": "hello"}
