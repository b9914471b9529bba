"""A module with several processes grows, shrinks and is renewed, and loses no request by it."""

from __future__ import annotations

import os
import signal

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving
from tests.system.liveness import Liveness


def ids(daemon: Daemon) -> list[str]:
    return [one["id"] for one in daemon.status("many")["instances"]]


def test_it_grows_while_requests_wait_and_shrinks_when_they_are_served(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving(
            "many",
            env={"LIVENESS": str(liveness.path)},
            instances={"max": 4, "idle_stop_s": 0.2},
        )
    )
    assert ids(daemon) == ["many#1"]
    held = [daemon.client.send_invoke("many", fault="gate") for _ in range(4)]
    gates = liveness.wait_for("gate", 4)
    assert len({gate.pid for gate in gates}) == 4
    status = daemon.status("many")
    assert (status["state"], status["in_flight"], status["queued"]) == ("ready", 4, 0)
    assert [one["in_flight"] for one in status["instances"]] == [1, 1, 1, 1]
    waiting = daemon.client.send_invoke("many", word="waiting")
    for gate in gates:
        gate.release()
    assert all(daemon.client.answer(one).ok for one in [*held, waiting])
    until(lambda: len(ids(daemon)) == 1, "only one")
    assert len([one for one in liveness.take_in() if one.role == "module"]) == 1
    status = daemon.status("many")
    assert (status["state"], status["restarts"], status["last_exit"]) == ("ready", 0, None)


def test_with_min_0_it_goes_and_its_next_request_starts_it(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving(
            "many",
            env={"LIVENESS": str(liveness.path)},
            instances={"min": 0, "idle_stop_s": 0.1},
        )
    )
    for number in range(1, 4):
        liveness.wait_for("module", number)[-1].wait_gone()
        answer = daemon.invoke("many", word=number)
        assert answer.result == {"word": number}
    assert daemon.status("many")["restarts"] == 0


def test_processes_are_renewed_under_load_and_no_request_fails(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(
        misbehaving(
            "many",
            concurrency=4,
            instances={"min": 2, "max": 2, "max_requests": 20, "max_age_s": 600},
        )
    )
    client = daemon.client

    def renewed_often() -> bool:
        sent = [client.send_invoke("many", n=number) for number in range(32)]
        for number, request_id in enumerate(sent):
            answer = client.answer(request_id)
            assert answer.ok, answer
            assert answer.result == {"n": number}
        found = ids(daemon)
        assert 1 <= len(found) <= 3
        return max(int(one.partition("#")[2]) for one in found) >= 8

    until(renewed_often, "each one replaced often")
    status = daemon.status("many")
    assert (status["restarts"], status["counters"]["failures"]) == (0, 0)


def test_a_kill_of_one_fails_its_own_requests_only(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving("many", env={"LIVENESS": str(liveness.path)}, instances={"min": 4, "max": 4})
    )
    held = [daemon.client.send_invoke("many", fault="gate") for _ in range(4)]
    gates = liveness.wait_for("gate", 4)
    victim, *others = gates
    os.kill(victim.pid, signal.SIGKILL)
    for gate in others:
        gate.release()
    answers = [daemon.client.answer(one) for one in held]
    (failed,) = (one for one in answers if not one.ok)
    assert (failed.verdict, failed.details["instance"]) == ("unreachable/signaled", victim.instance)
    until(lambda: len(ids(daemon)) == 4 and daemon.status("many")["state"] == "ready", "four ready")
    status = daemon.status("many")
    assert victim.instance not in ids(daemon)
    assert (status["restarts"], status["last_exit"]["signal"]) == (1, signal.SIGKILL)


def test_commands_and_the_end_are_for_all_processes(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving("many", env={"LIVENESS": str(liveness.path)}, instances={"min": 3, "max": 3})
    )
    first = liveness.wait_for("module", 3)
    daemon.op("restart", module="many")
    for one in first:
        one.wait_gone()
    second = liveness.wait_for("module", 6)[3:]
    daemon.op("stop", module="many")
    for one in second:
        one.wait_gone()
    status = daemon.status("many")
    assert (status["state"], status["instances"]) == ("down", [])
    daemon.op("start", module="many")
    liveness.wait_for("module", 9)
