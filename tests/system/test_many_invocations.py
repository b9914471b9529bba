"""A thousand invocations: a thousand answers, ids matched, and nothing left over."""

from __future__ import annotations

from typing import Any

import pytest

from tests import bounds
from tests.runtime.containment.conftest import why_not
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import ECHO_SH, PATIENT, descriptor, misbehaving

THOUSAND = 1000


def echo_sh(name: str) -> dict[str, object]:
    return descriptor(
        name,
        ["sh", "-c", ECHO_SH],
        protocol="narratoria",
        supervision={"concurrency": 16, "timeouts": PATIENT},
    )


def modules() -> list[dict[str, object]]:
    """Return one at a time, many at a time without ids, with ids, and a process each."""
    return [
        misbehaving("one"),
        misbehaving("many", concurrency=64),
        misbehaving("nameless", "ids=no", concurrency=64),
        echo_sh("sh"),
    ]


TOOLS = ("sh", "missing")
"""Those that have a process for each call."""


def traces(daemon: Daemon, module: str) -> tuple[int, list[int]]:
    """Return what could be left over: open descriptors and processes.

    Behind the calls of a tool there is one more process, which waits for the next; it is no trace.
    """

    def at_rest() -> dict[str, Any] | None:
        shown: dict[str, Any] = daemon.op("status")["daemon"]
        waits = why_not("cgroup2") is None and module in TOOLS
        return None if waits and shown["blank_pid"] is None else shown

    shown = bounds.until(at_rest, "a blank behind the calls")
    own = {shown["spawner_pid"], shown["blank_pid"]}
    return daemon.open_files(), sorted(set(daemon.processes()) - own)


@pytest.mark.parametrize("module", ["one", "nameless", "sh"])
def test_a_thousand_in_a_row_leave_nothing_over(start_daemon: StartDaemon, module: str) -> None:
    daemon = start_daemon(*modules())
    assert daemon.invoke(module, n=-1).ok
    before = traces(daemon, module)
    for n in range(THOUSAND):
        assert daemon.invoke(module, n=n).result == {"n": n}
    assert traces(daemon, module) == before
    assert daemon.status(module)["counters"]["invocations"] == THOUSAND + 1


@pytest.mark.parametrize("module", ["one", "many", "nameless", "sh"])
def test_a_thousand_at_once_leave_nothing_over(start_daemon: StartDaemon, module: str) -> None:
    daemon = start_daemon(*modules())
    assert daemon.invoke(module, n=-1).ok
    before = traces(daemon, module)
    asked = {daemon.client.send_invoke(module, n=n): n for n in range(THOUSAND)}
    for request_id, n in asked.items():
        assert daemon.client.answer(request_id).result == {"n": n}
    assert traces(daemon, module) == before
    status = daemon.status(module)
    assert status["counters"]["invocations"] == THOUSAND + 1
    assert (status["in_flight"], status["queued"]) == (0, 0)


def test_a_thousand_failures_leave_nothing_over(start_daemon: StartDaemon) -> None:
    missing = descriptor("missing", ["sh", "-c", "exit 3"], protocol="narratoria")
    daemon = start_daemon(*modules(), missing)
    assert daemon.invoke("missing").verdict == "internal/exited"
    before = traces(daemon, "missing")
    asked = [daemon.client.send_invoke("missing") for _ in range(THOUSAND)]
    verdicts = {daemon.client.answer(request_id).verdict for request_id in asked}
    assert verdicts == {"internal/exited"}
    assert traces(daemon, "missing") == before


def test_a_hundred_clients_come_and_go_and_leave_nothing_over(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(*modules())
    before = traces(daemon, "one")
    for _ in range(100):
        with daemon.connect() as client:
            assert client.invoke("one", n=1).ok
            client.send_invoke("one", fault="silent")
    # The last one's end has been seen when the module is free again.
    daemon.usable("one")
    assert daemon.open_files() <= before[0] + 1
