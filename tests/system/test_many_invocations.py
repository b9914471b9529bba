"""Many invocations: as many answers, ids matched, and nothing left over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import bounds
from tests.system.daemon import Daemon, shared
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
    """Return one at a time, many at a time with ids, without, and with a process each."""
    return [
        misbehaving("one"),
        misbehaving("many", concurrency=64),
        misbehaving("nameless", "ids=no", concurrency=64),
        echo_sh("sh"),
        descriptor("missing", ["sh", "-c", "exit 3"], protocol="narratoria"),
    ]


def traces(daemon: Daemon) -> tuple[int, list[int]]:
    """Return what could be left over: open descriptors and processes."""
    return daemon.open_files(), daemon.processes()


def wait_nothing_over(daemon: Daemon, before: tuple[int, list[int]]) -> None:
    """Wait until it has no more than before; for a moment its own threads may have a file open."""
    found = traces(daemon)
    awaited = f"open files and processes: {before} again, and not {found}"

    def nothing_over() -> bool:
        files, pids = traces(daemon)
        return files <= before[0] and pids == before[1]

    bounds.until(nothing_over, awaited)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with shared(*modules()) as running:
        yield running


def invocations(daemon: Daemon, module: str) -> int:
    number: int = daemon.status(module)["counters"]["invocations"]
    return number


@pytest.mark.parametrize(("module", "number"), [("one", THOUSAND), ("nameless", 200), ("sh", 200)])
def test_many_in_a_row_leave_nothing_over(daemon: Daemon, module: str, number: int) -> None:
    assert daemon.invoke(module, n=-1).ok
    before, had = traces(daemon), invocations(daemon, module)
    for n in range(number):
        assert daemon.invoke(module, n=n).result == {"n": n}
    wait_nothing_over(daemon, before)
    assert invocations(daemon, module) == had + number


@pytest.mark.parametrize(
    ("module", "number"), [("one", 200), ("many", THOUSAND), ("nameless", 200), ("sh", 200)]
)
def test_many_at_once_leave_nothing_over(daemon: Daemon, module: str, number: int) -> None:
    assert daemon.invoke(module, n=-1).ok
    before, had = traces(daemon), invocations(daemon, module)
    asked = {daemon.client.send_invoke(module, n=n): n for n in range(number)}
    for request_id, n in asked.items():
        assert daemon.client.answer(request_id).result == {"n": n}
    wait_nothing_over(daemon, before)
    status = daemon.status(module)
    assert status["counters"]["invocations"] == had + number
    assert (status["in_flight"], status["queued"]) == (0, 0)


def test_many_failures_leave_nothing_over(daemon: Daemon) -> None:
    assert daemon.invoke("missing").verdict == "internal/exited"
    before = traces(daemon)
    asked = [daemon.client.send_invoke("missing") for _ in range(200)]
    verdicts = {daemon.client.answer(request_id).verdict for request_id in asked}
    assert verdicts == {"internal/exited"}
    wait_nothing_over(daemon, before)


def test_a_hundred_clients_come_and_go_and_leave_nothing_over(daemon: Daemon) -> None:
    before = traces(daemon)
    for _ in range(100):
        with daemon.connect() as client:
            assert client.invoke("one", n=1).ok
            client.send_invoke("one", fault="silent")
    daemon.usable("one")
    daemon.wait_open_files(before[0] + 1)  # the last socket may be closed yet
