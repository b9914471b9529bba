"""A module that closes its stdin or never reads it, while the host writes 1 MiB to it."""

from __future__ import annotations

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, narratoria, per_invocation, timeouts
from tests.system.fleet import SHORT_S
from tests.system.liveness import Liveness

MEGABYTE = 1 << 20


@pytest.mark.fault(15)
@pytest.mark.parametrize("ids", [[], ["ids=no"]])
def test_a_megabyte_for_a_closed_stdin_is_a_broken_pipe_and_no_crash(
    start_daemon: StartDaemon, ids: list[str]
) -> None:
    daemon = start_daemon(misbehaving("one", *ids), misbehaving("witness"))
    witness, pid = daemon.pid("witness"), daemon.pid("one")
    assert daemon.invoke("one", fault="close_stdin+done+hang").ok
    answer = daemon.invoke("one", big="x" * MEGABYTE)
    assert answer.verdict == "unreachable/broken_pipe"
    assert answer.details["pid"] == pid
    daemon.usable("one")
    assert daemon.invoke("one", big="x" * MEGABYTE).result == {"big": "x" * MEGABYTE}
    assert daemon.pid("witness") == witness


@pytest.mark.fault(15)
@pytest.mark.parametrize("form", [per_invocation, narratoria])
def test_a_process_that_closes_its_stdin_before_it_is_written_to_may_still_answer(
    start_daemon: StartDaemon, form: type[object]
) -> None:
    documents = [
        narratoria("tool", "start=close_stdin+no_newline+exit"),
        per_invocation("once", "start=close_stdin+exit", "code=3"),
    ]
    daemon = start_daemon(*documents, misbehaving("witness"))
    if form is narratoria:
        assert daemon.invoke("tool", big="x" * MEGABYTE).result == "whole"
    else:
        answer = daemon.invoke("once", big="x" * MEGABYTE)
        assert answer.verdict == "internal/exited"
        assert answer.details["exit_code"] == 3
    assert daemon.invoke("witness").ok


@pytest.mark.fault(15)
def test_a_request_that_is_never_read_has_a_deadline_and_costs_its_own_instance_only(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    env = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(
        misbehaving("deaf", env=env, timeouts=timeouts(exit_s=SHORT_S, stop_s=SHORT_S)),
        misbehaving("witness"),
    )
    witness = daemon.pid("witness")
    (first,) = liveness.wait_for("module")
    assert daemon.invoke("deaf", fault="done+hang").ok
    answer = daemon.invoke("deaf", timeout_s=SHORT_S, big="x" * MEGABYTE)
    assert answer.verdict == "timeout/deadline"
    assert answer.details["pid"] == first.pid
    first.wait_gone()
    assert daemon.usable("deaf").ok
    assert daemon.status("deaf")["instances"][0]["id"] == "deaf#2"
    assert daemon.pid("witness") == witness


@pytest.mark.fault(15)
def test_a_cancel_of_a_half_written_request_replaces_that_instance_and_serves_the_next(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    env = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(
        misbehaving("deaf", env=env, timeouts=timeouts(exit_s=SHORT_S, stop_s=SHORT_S)),
        misbehaving("witness"),
    )
    client, witness = daemon.client, daemon.pid("witness")
    (first,) = liveness.wait_for("module")
    assert client.invoke("deaf", fault="done+hang").ok
    half_written = client.send_invoke("deaf", big="x" * MEGABYTE)
    waiting = client.send_invoke("deaf", word="next")
    # An answer to what came later: the first bytes have gone to the pipe, and it has filled it.
    assert client.op("status", module="deaf").result["in_flight"] == 1
    client.cancel(half_written)
    assert client.answer(half_written).verdict == "cancelled/client"
    first.wait_gone()
    answer = client.answer(waiting)
    # It waited for the next instance, or was told of the one that had to go.
    assert answer.verdict == "ok" or answer.error["code"] == "unreachable"
    assert daemon.usable("deaf").ok
    assert daemon.pid("deaf") != first.pid
    assert daemon.pid("witness") == witness
