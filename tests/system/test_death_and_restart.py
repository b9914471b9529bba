"""A process that dies is replaced, with a bound on how often; its death has a cause."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import AT_ONCE, misbehaving, timeouts
from tests.system.liveness import Liveness

NEVER_S = 3600.0


@pytest.mark.fault(4)
def test_a_process_killed_from_outside_is_ready_again_and_status_says_of_what_it_died(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    (first,) = liveness.wait_for("module")
    client = daemon.client
    in_flight = client.send_invoke("one", fault="stderr+gate")
    waiting = client.send_invoke("one", word="waiting")
    liveness.wait_for("gate")
    os.kill(first.pid, signal.SIGKILL)

    answer = client.answer(in_flight)
    assert answer.verdict == "unreachable/signaled"
    assert answer.details["signal"] == signal.SIGKILL
    assert answer.details["pid"] == first.pid
    assert answer.details["instance"] == "one#1"
    assert answer.details["stderr_tail"][-1] == "the last words"
    assert client.answer(waiting).result == {"word": "waiting"}

    first.wait_gone()
    status = daemon.status("one")
    assert status["state"] == "ready"
    assert status["restarts"] == 1
    assert [one["id"] for one in status["instances"]] == ["one#2"]
    assert status["last_exit"]["signal"] == signal.SIGKILL
    assert status["last_exit"]["exit_code"] is None
    assert status["last_exit"]["reason"] == "signaled"
    assert status["last_exit"]["stderr_tail"][-1] == "the last words"


@pytest.mark.fault(4)
def test_each_of_many_open_requests_is_settled_once_with_the_cause(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("one", concurrency=16), misbehaving("witness"))
    client = daemon.client
    for end, reason, name, number in (
        ("exit", "exited", "exit_code", 7),
        ("die", "signaled", "signal", signal.SIGKILL),
        ("die", "signaled", "signal", signal.SIGSEGV),
    ):
        pid = daemon.pid("one")
        open_ = [client.send_invoke("one", fault="silent") for _ in range(15)]
        args = {"code" if name == "exit_code" else "signal": number}
        open_.append(client.send_invoke("one", fault=f"stderr+{end}", **args))
        for request_id in open_:
            answer = client.answer(request_id)  # a second answer would fail there
            assert answer.verdict == f"unreachable/{reason}"
            assert answer.details[name] == number
            assert answer.details["pid"] == pid
            assert answer.details["stderr_tail"][-1] == "the last words"
        assert daemon.usable("one").ok
        assert daemon.invoke("witness").ok


@pytest.mark.fault(4)
def test_twenty_kills_in_a_row_each_have_their_cause_and_bring_the_next_generation(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving("one", env={"LIVENESS": str(liveness.path)}, intensity=100, backoff=AT_ONCE)
    )
    for generation in range(1, 21):
        process = liveness.wait_for("module", generation)[-1]
        assert process.instance == f"one#{generation}"
        daemon.usable("one")
        in_flight = daemon.client.send_invoke("one", fault="gate")
        liveness.wait_for("gate", generation)
        os.kill(process.pid, signal.SIGKILL)
        # The pipes of a killed process end before its exit can be seen: that is not the cause.
        assert daemon.client.answer(in_flight).verdict == "unreachable/signaled"
        assert daemon.status("one")["last_exit"]["reason"] == "signaled"
        process.wait_gone()
    daemon.usable("one")
    assert daemon.status("one")["restarts"] == 20
    assert [one.instance for one in liveness.take_in()] == ["one#21"]


@pytest.mark.fault(10, 11)
@pytest.mark.parametrize("words", [["start=exit", "code=3"], ["ready=exit", "code=3"]])
def test_a_crash_loop_ends_in_failed_and_requests_are_refused_with_the_time_of_the_next_try(
    start_daemon: StartDaemon, liveness: Liveness, words: list[str]
) -> None:
    daemon = start_daemon(
        misbehaving(
            "crasher",
            *words,
            env={"LIVENESS": str(liveness.path)},
            intensity=3,
            backoff=AT_ONCE,
            retry_failed_s=NEVER_S,
        ),
        misbehaving("witness"),
    )
    verdict = daemon.client.op("wait", modules=["crasher"], **{"for": "ready"})
    while verdict.ok:  # ready for a moment, before it crashes again
        verdict = daemon.client.op("wait", modules=["crasher"], **{"for": "ready"})
    assert verdict.verdict == "unreachable/failed"

    answer = daemon.invoke("crasher")
    assert answer.verdict == "unreachable/failed"
    assert 0 < answer.details["retry_in_s"] <= NEVER_S
    assert answer.details["exit_code"] == 3
    status = daemon.status("crasher")
    assert status["state"] == "failed"
    assert 0 < status["next_retry_s"] <= NEVER_S
    # The first start, and as many restarts as `intensity` allows.
    assert status["restarts"] == 3
    assert len(liveness.wait_for("module", 4)) == 4
    assert daemon.invoke("witness").ok


@pytest.mark.fault(10)
def test_in_backoff_requests_are_refused_with_the_time_of_the_next_try(
    start_daemon: StartDaemon,
) -> None:
    later = {"initial_s": NEVER_S, "max_s": NEVER_S, "jitter": 0}
    daemon = start_daemon(misbehaving("one", backoff=later), misbehaving("witness"))
    assert daemon.invoke("one", fault="exit").verdict == "unreachable/exited"  # again at once
    waiting = daemon.client.send_invoke("one", fault="exit", code=4)
    left = daemon.client.send_invoke("one")
    assert daemon.client.answer(waiting).verdict == "unreachable/exited"
    for answer in (daemon.client.answer(left), daemon.invoke("one")):
        assert answer.error["code"] == "unreachable"
        assert answer.details["exit_code"] == 4
        assert NEVER_S / 2 < answer.details["retry_in_s"] <= NEVER_S
    assert daemon.status("one")["state"] == "backoff"
    daemon.op("start", module="one")
    assert daemon.invoke("one").ok
    assert daemon.invoke("witness").ok


@pytest.mark.fault(10)
def test_a_failed_module_is_tried_again_half_open(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving("one", env={"LIVENESS": str(liveness.path)}, intensity=0, retry_failed_s=0.05)
    )
    for generation in range(2, 6):
        assert daemon.invoke("one", fault="exit", code=3).verdict == "unreachable/exited"
        liveness.wait_for("module", generation)
        daemon.usable("one")


RESTARTS = {
    "permanent": {0: True},
    "transient": {0: False, 1: True},
    "temporary": {1: False},
}
"""Whether a module comes back, by its restart type and the code it exited with."""


def test_the_restart_type_decides_what_follows_an_exit(start_daemon: StartDaemon) -> None:
    cases = [(type_, *one) for type_, codes in RESTARTS.items() for one in codes.items()]
    daemon = start_daemon(
        *(misbehaving(f"{type_}{code}", restart=type_) for type_, code, _ in cases)
    )
    for restart, code, comes_back in cases:
        name = f"{restart}{code}"
        assert daemon.invoke(name, fault="exit", code=code).verdict == "unreachable/exited"
        if comes_back:
            assert daemon.usable(name).ok
            assert daemon.status(name)["restarts"] == 1
        else:
            assert daemon.invoke(name).verdict == "unreachable/not_ready"
            status = daemon.status(name)
            assert (status["state"], status["restarts"]) == ("down", 0)
            assert status["last_exit"]["exit_code"] == code


@pytest.mark.fault(18)
def test_a_process_that_misses_its_probes_is_replaced(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(
        misbehaving(
            "one",
            env={"LIVENESS": str(liveness.path)},
            health={"interval_s": 0.05, "failures": 1},
            timeouts=timeouts(health_s=5),
        )
    )
    daemon.usable("one")
    process = liveness.wait_for("module")[-1]
    os.kill(process.pid, signal.SIGSTOP)
    process.wait_gone()
    daemon.usable("one")
    assert daemon.status("one")["last_exit"]["reason"] == "replaced"


def test_an_end_that_restart_on_names_is_restarted_though_the_restart_type_says_no(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("one", restart="temporary", restart_on=[75, "SIGKILL"]))
    assert daemon.invoke("one", fault="exit", code=75).verdict == "unreachable/exited"
    assert daemon.usable("one").ok
    os.kill(daemon.pid("one"), signal.SIGKILL)
    assert daemon.usable("one").ok
    assert daemon.invoke("one", fault="exit", code=76).verdict == "unreachable/exited"
    assert daemon.invoke("one").verdict == "unreachable/not_ready"
    assert daemon.status("one")["restarts"] == 2


def test_an_end_that_never_on_names_is_final_and_the_refusal_names_the_rule(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("one", never_on=[78]))
    assert daemon.invoke("one", fault="exit", code=3).verdict == "unreachable/exited"
    assert daemon.usable("one").ok
    assert daemon.invoke("one", fault="exit", code=78).verdict == "unreachable/exited"
    daemon.wait_state("one", "down")
    status = daemon.status("one")
    assert (status["state"], status["wanted"], status["restarts"]) == ("down", "down", 1)
    assert status["last_exit"]["exit_code"] == 78
    assert status["last_exit"]["rule"] == "/supervision/never_on/0"
    answer = daemon.invoke("one")
    assert answer.verdict == "unreachable/not_ready"
    assert "its supervision.never_on has 78" in answer.error["message"]
    assert answer.details["rule"] == "/supervision/never_on/0"
    daemon.op("start", module="one")
    assert daemon.invoke("one").ok
