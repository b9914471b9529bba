"""A request that the client or the clock ends: answered once, and its slot is free again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.daemon import Daemon, shared
from tests.system.descriptors import misbehaving, narratoria, per_invocation
from tests.system.fleet import SHORT_S
from tests.system.liveness import Liveness


def modules(liveness: Liveness) -> list[dict[str, object]]:
    env = {"LIVENESS": str(liveness.path)}
    once, tool = per_invocation("once"), narratoria("tool")
    for document in (once, tool):
        document["transport"]["env"] = env
    return [
        misbehaving("steady", env=env),
        misbehaving("nameless", "ids=no", env=env),
        once,
        tool,
        misbehaving("witness"),
    ]


@pytest.fixture(scope="module")
def register() -> Iterator[Liveness]:
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-") as folder,
        Liveness(Path(folder, "liveness")) as register,
    ):
        yield register


@pytest.fixture(scope="module")
def daemon(register: Liveness) -> Iterator[Daemon]:
    with shared(*modules(register)) as running:
        yield running


@pytest.fixture
def liveness(register: Liveness) -> Liveness:
    """Return the register without those whom other tests have waited for."""
    register.take_in()
    for member in register.members:
        member.connection.close()
    register.members.clear()
    return register


def pids(status: dict[str, Any]) -> list[int]:
    return [one["pid"] for one in status["instances"]]


@pytest.mark.parametrize("module", ["steady", "nameless", "once", "tool"])
def test_a_cancel_ends_the_request_and_frees_the_slot(
    daemon: Daemon, liveness: Liveness, module: str
) -> None:
    client = daemon.client
    request_id = client.send_invoke(module, fault="gate")
    (gate,) = liveness.wait_for("gate")
    # It may be there before the daemon has heard that it is.
    until(lambda: gate.pid in pids(daemon.status(module)), "the daemon knowing of the process")
    client.cancel(request_id)
    answer = client.answer(request_id)
    assert answer.verdict == "cancelled/client"
    assert answer.details["pid"] == gate.pid
    if module == "steady":
        gate.release()  # its probes are patient: it keeps the slot
    daemon.usable(module)
    if module != "steady":
        gate.wait_gone()
    assert daemon.invoke("witness").ok


def hung_up(daemon: Daemon) -> int:
    """Return of how many requests it is logged that their client hung up."""
    return daemon.log().count('"reason": "disconnect"')


@pytest.mark.parametrize("module", ["steady", "nameless", "once", "tool"])
def test_a_client_that_hangs_up_cancels_what_it_had_open(
    daemon: Daemon, liveness: Liveness, module: str
) -> None:
    before = hung_up(daemon)
    with daemon.connect() as client:
        client.send_invoke(module, fault="gate")
        queued = [client.send_invoke(module) for _ in range(10)]
        (gate,) = liveness.wait_for("gate")
        assert queued
    # Before the gate is open: a module that answers at once may answer all before it is noticed.
    until(lambda: hung_up(daemon) > before, "a word in the log")
    if module == "steady":
        gate.release()
    else:
        gate.wait_gone()
    daemon.usable(module)
    status = daemon.status(module)
    assert (status["in_flight"], status["queued"]) == (0, 0)
    assert daemon.invoke("witness").ok


def test_a_client_that_only_ends_its_side_still_gets_its_answers(
    daemon: Daemon, liveness: Liveness
) -> None:
    with daemon.connect() as client:
        request_id = client.send_invoke("steady", fault="gate", word="hello")
        (gate,) = liveness.wait_for("gate")
        client.socket.shutdown(1)
        gate.release()
        assert client.answer(request_id).result["word"] == "hello"
        assert list(client.lines()) == []


def test_a_cancel_of_a_waiting_request_leaves_the_one_in_flight_alone(
    daemon: Daemon, liveness: Liveness
) -> None:
    client = daemon.client
    serving = client.send_invoke("nameless", fault="gate", word="hello")
    (gate,) = liveness.wait_for("gate")
    waiting = client.send_invoke("nameless")
    client.cancel(waiting)
    answer = client.answer(waiting)
    assert answer.verdict == "cancelled/client"
    assert "pid" not in answer.details
    gate.release()
    assert client.answer(serving).result["word"] == "hello"


def test_a_cancel_of_nothing_changes_nothing(daemon: Daemon, liveness: Liveness) -> None:
    daemon.client.cancel("never-asked")
    request_id = daemon.client.send_invoke("steady", word="hello")
    assert daemon.client.answer(request_id).ok
    daemon.client.cancel(request_id)
    assert daemon.invoke("steady", word="next").result == {"word": "next"}


@pytest.mark.fault(5)
def test_the_late_lines_of_a_request_that_timed_out_are_dropped_and_counted(
    daemon: Daemon, liveness: Liveness
) -> None:
    client = daemon.client
    before = daemon.status("steady")["counters"]["late_lines"]
    request_id = client.send_invoke(
        "steady", timeout_s=SHORT_S, fault="gate+event+event+done", word="late"
    )
    (gate,) = liveness.wait_for("gate")
    answer = client.answer(request_id)
    assert answer.verdict == "timeout/deadline"
    assert answer.details["pid"] == gate.pid
    next_id = client.send_invoke("steady", word="next")
    gate.release()
    following = client.answer(next_id)
    assert following.result == {"word": "next"}
    assert following.events == []
    status = daemon.status("steady")
    assert status["counters"]["late_lines"] == before + 3
    assert status["instances"][0]["pid"] == gate.pid


@pytest.mark.fault(5)
@pytest.mark.parametrize("module", ["once", "tool"])
def test_a_request_that_timed_out_costs_its_process(
    daemon: Daemon, liveness: Liveness, module: str
) -> None:
    answer = daemon.invoke(module, timeout_s=SHORT_S, fault="grandchild+hang")
    assert answer.verdict == "timeout/deadline"
    for member in liveness.take_in():
        if member.pid == answer.details.get("pid") or member.role == "grandchild":
            member.wait_gone()
    daemon.usable(module)
    assert daemon.status(module)["in_flight"] == 0


def test_the_deadline_holds_for_a_request_that_waits_its_turn(
    daemon: Daemon, liveness: Liveness
) -> None:
    client = daemon.client
    serving = client.send_invoke("nameless", fault="gate", word="hello")
    (gate,) = liveness.wait_for("gate")
    answer = client.invoke("nameless", timeout_s=SHORT_S)
    assert answer.verdict == "timeout/deadline"
    assert "waiting for its turn" in answer.error["message"]
    gate.release()
    assert client.answer(serving).result["word"] == "hello"


def test_answers_deadlines_and_cancels_at_once_end_each_request_exactly_once(
    daemon: Daemon, liveness: Liveness
) -> None:
    client = daemon.client
    ids = []
    for n in range(300):
        ids.append(client.send_invoke("witness", timeout_s=0.001 * (n % 30 + 1), n=n))
        if n % 3 == 0:
            client.cancel(ids[-1])
    verdicts = {client.answer(request_id).verdict for request_id in ids}  # asserts: once
    assert verdicts <= {"ok", "timeout/deadline", "cancelled/client"}
    daemon.usable("witness")
    status = daemon.status("witness")
    assert (status["in_flight"], status["queued"]) == (0, 0)
