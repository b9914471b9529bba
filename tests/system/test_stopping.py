"""Stop and restart: a bounded ladder, the whole group, and never two processes of one module."""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, narratoria, per_invocation, timeouts
from tests.system.liveness import Liveness, Member

BRIEF = timeouts(exit_s=0.2, stop_s=0.2)


def test_a_stop_ends_the_input_first(start_daemon: StartDaemon, liveness: Liveness) -> None:
    daemon = start_daemon(
        misbehaving("one", "start=ignore_sigterm", env={"LIVENESS": str(liveness.path)})
    )
    (process,) = liveness.wait_for("module")
    status = daemon.op("stop", module="one")
    process.wait_gone()
    assert (status["state"], status["last_exit"]["exit_code"]) == ("down", 0)
    assert status["last_exit"]["reason"] == "stopped"
    assert daemon.processes() == []


@pytest.mark.fault(6, 18)
def test_what_does_not_end_with_its_input_is_terminated_then_killed(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    env = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(
        misbehaving("one", env=env, timeouts=timeouts(exit_s=0.2)),
        misbehaving("stubborn", env=env, timeouts=BRIEF),
        misbehaving("witness"),
    )
    ends = {
        "hang": signal.SIGTERM,
        "spin": signal.SIGTERM,
        "stop_self": signal.SIGTERM,  # which it takes only once it is continued
        "ignore_sigterm+hang": signal.SIGKILL,
        "ignore_sigterm+stop_self+hang": signal.SIGKILL,
    }
    for begun, (how, number) in enumerate(ends.items(), 2):
        name = "stubborn" if number is signal.SIGKILL else "one"
        pid = daemon.pid(name)
        (process,) = (one for one in liveness.wait_for("module", begun) if one.pid == pid)
        assert daemon.invoke(name, fault=f"done+{how}").ok
        status = daemon.op("stop", module=name)
        process.wait_gone()
        assert status["last_exit"]["signal"] == number, how
        assert daemon.invoke("witness").ok
        daemon.op("start", module=name)
        assert daemon.invoke(name).ok


@pytest.mark.fault(1)
def test_a_grandchild_that_holds_the_pipes_goes_with_its_leader(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving("one", env={"LIVENESS": str(liveness.path)}, timeouts=BRIEF),
        misbehaving("witness"),
    )
    for times, end in enumerate(("exit", "die", "hang"), 1):
        assert daemon.invoke("one", fault=f"grandchild+done+{end}").ok
        grandchild = liveness.wait_for("grandchild", times)[-1]
        if end == "hang":
            daemon.op("restart", module="one")
        grandchild.wait_gone()
        daemon.usable("one")
        assert daemon.invoke("witness").ok


@pytest.mark.fault(1)
def test_a_grandchild_of_an_invocation_is_gone_with_the_answer(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    documents = [narratoria("tool"), per_invocation("once")]
    for document in documents:
        document["transport"]["env"] = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(*documents)
    for times, module in enumerate(("tool", "once"), 1):
        assert daemon.invoke(module, fault="ignore_sigterm+grandchild+done+exit").ok
        liveness.wait_for("grandchild", times)[-1].wait_gone()


@pytest.mark.fault(7)
def test_a_grandchild_in_a_session_of_its_own_is_gone_too(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    assert daemon.invoke("one", fault="escapee+done+exit").ok
    (escapee,) = liveness.wait_for("escapee")
    daemon.usable("one")
    daemon.op("stop", module="one")
    escapee.wait_gone()


def test_a_request_in_flight_may_finish_before_a_stop(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    client = daemon.client
    request_id = client.send_invoke("one", fault="gate", word="hello")
    (gate,) = liveness.wait_for("gate")
    stop = client.send("supervisor", "invoke", {"op": "stop", "args": {"module": "one"}})
    daemon.wait_state("one", "stopping")
    assert client.invoke("one").verdict == "unreachable/stopping"
    gate.release()
    assert client.answer(request_id).result["word"] == "hello"
    assert client.answer(stop).result["state"] == "down"


def test_a_request_that_does_not_finish_is_ended_by_a_stop(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    env = {"LIVENESS": str(liveness.path)}
    once = per_invocation("once", timeouts=BRIEF)
    once["transport"]["env"] = env
    daemon = start_daemon(misbehaving("one", env=env, timeouts=BRIEF), once)
    for times, module in enumerate(("one", "once"), 1):
        request_id = daemon.client.send_invoke(module, fault="gate")
        gate = liveness.wait_for("gate", times)[-1]
        daemon.op("stop", module=module)
        gate.wait_gone()
        answer = daemon.client.answer(request_id)
        assert answer.verdict == "unreachable/stopping"
        assert answer.details["pid"] == gate.pid
        daemon.op("start", module=module)
        assert daemon.invoke(module).ok


def test_requests_that_wait_go_on_waiting_over_a_restart(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    client = daemon.client
    serving = client.send_invoke("one", fault="gate")
    (gate,) = liveness.wait_for("gate")
    waiting = [client.send_invoke("one", n=n) for n in range(10)]
    restart = client.send("supervisor", "invoke", {"op": "restart", "args": {"module": "one"}})
    daemon.wait_state("one", "stopping")
    gate.release()
    assert client.answer(serving).ok
    assert [client.answer(one).result["n"] for one in waiting] == list(range(10))
    assert client.answer(restart).result["instances"][0]["id"] == "one#2"


def kill(member: Member) -> None:
    """Kill it, unless it has died meanwhile and its pid may be another's."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(member.pid)
        try:
            if member.alive():
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


@pytest.mark.fault(12)
def test_a_hundred_starts_stops_restarts_and_kills_at_once_leave_one_process(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}, timeouts=BRIEF))
    drawn = random.Random(5)  # the order is odd, and the same each time
    with daemon.connect() as client:
        asked = []
        for _ in range(100):
            op = drawn.choice(["start", "stop", "restart", "invoke", "kill"])
            alive = [one for one in liveness.take_in() if one.role == "module"]
            assert len(alive) <= 1, alive
            if op == "invoke":
                asked.append(client.send_invoke("one"))
            elif op == "kill" and alive:
                kill(alive[0])
            elif op != "kill":
                content = {"op": op, "args": {"module": "one"}}
                asked.append(client.send("supervisor", "invoke", content))
            if drawn.random() < 0.3 and asked:
                client.answer(asked.pop(0))
        for request_id in asked:
            client.answer(request_id)  # each is answered, one way or the other
    daemon.op("restart", module="one")
    assert daemon.invoke("one", word="hello").result == {"word": "hello"}
    (survivor,) = [one for one in liveness.take_in() if one.role == "module"]
    assert daemon.processes() == [survivor.pid] == [daemon.pid("one")]
    daemon.op("stop", module="one")
    survivor.wait_gone()
    assert daemon.processes() == []


@pytest.mark.fault(12, 24)
def test_each_process_is_gone_before_the_next_one_lives(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving("one", "start=ignore_sigterm", env={"LIVENESS": str(liveness.path)})
    )
    for generation in range(1, 20):
        process = liveness.wait_for("module", generation)[-1]
        assert process.instance == f"one#{generation}"
        assert [one.pid for one in liveness.take_in()] == [process.pid]
        daemon.op("restart", module="one")
        assert not process.alive()
