"""sd_notify against a fake service manager: a datagram socket of the test."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.daemon.sd_notify import STATUS_CHARS, Notifier

BOUND_S = 60.0


class Manager:
    """What listens where $NOTIFY_SOCKET points to."""

    def __init__(self, address: str, named: str) -> None:
        self.named = named
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(BOUND_S)

    def heard(self) -> str:
        """Wait for one message."""
        return self.socket.recv(4096).decode()

    def all_heard(self) -> list[str]:
        """Return what is there now."""
        messages = []
        self.socket.setblocking(False)
        try:
            while True:
                messages.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            self.socket.settimeout(BOUND_S)
            return messages


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = uuid.uuid4().hex
    if request.param == "path":
        address = named = f"/tmp/{name}"
    else:
        address, named = f"\0{name}", f"@{name}"
    made = Manager(address, named)
    yield made
    made.socket.close()
    if request.param == "path":
        Path(named).unlink()


def test_the_states_are_said_in_the_words_of_the_specification(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.named})
    notifier.ready()
    assert manager.heard() == "READY=1"
    notifier.status("2 of 3\nmodules ready")
    assert manager.heard() == "STATUS=2 of 3 modules ready"
    notifier.stopping()
    assert manager.heard() == "STOPPING=1"
    notifier.close()


def test_a_reload_carries_the_monotonic_time_of_its_beginning(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.named})
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    first, second = manager.heard().split("\n")
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert first == "RELOADING=1"
    key, _, value = second.partition("=")
    assert key == "MONOTONIC_USEC"
    assert before <= int(value) <= after
    notifier.close()


def test_a_status_is_one_line_of_bounded_length_whatever_it_holds(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.named})
    notifier.status("READY=1\nMAINPID=1\n" + "x" * 100_000 + "\udcff")
    (line,) = manager.heard().splitlines()
    assert line.startswith("STATUS=READY=1 MAINPID=1 xxx")
    assert len(line) == STATUS_CHARS + len("STATUS=")
    notifier.close()


def test_the_variables_are_taken_out_of_the_environment_that_modules_inherit() -> None:
    environment = {
        "NOTIFY_SOCKET": "@nobody",
        "WATCHDOG_USEC": "1000000",
        "WATCHDOG_PID": "1",
        "PATH": "/bin",
    }
    Notifier.from_environment(environment).close()
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("named", ["", "relative", "@", "vsock:2:1234"])
def test_a_name_that_is_no_socket_is_as_good_as_none(named: str) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": named})
    assert not notifier.listens
    notifier.ready()
    notifier.status("nobody hears this")


def test_a_manager_that_is_gone_fails_nothing(tmp_path: Path) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    notifier.ready()
    notifier.stopping()
    notifier.close()
    notifier.close()
    notifier.ready()


async def test_what_found_the_queue_full_is_said_again_and_of_each_kind_only_the_last(
    manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.named})
    filled = 0
    while not notifier._unsent:  # never blocks, or this test would not end
        notifier.ready()
        filled += 1
    notifier.reloading()
    notifier.status("1 of 2 modules ready")
    notifier.status("2 of 2 modules ready")
    notifier.stopping()
    assert manager.all_heard() == ["READY=1"] * (filled - 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notifier.run)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)  # of the virtual clock
        heard = manager.all_heard()
        nursery.cancel_scope.cancel()
    assert sorted(heard) == ["STATUS=2 of 2 modules ready", "STOPPING=1"]
    notifier.close()


@pytest.mark.parametrize("pid", [None, "", "ours"])
async def test_signs_of_life_come_at_half_of_the_time_the_watchdog_waits(
    pid: str | None, manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    environment = {"NOTIFY_SOCKET": manager.named, "WATCHDOG_USEC": "3000000"}
    if pid is not None:
        environment["WATCHDOG_PID"] = str(os.getpid()) if pid == "ours" else pid
    notifier = Notifier.from_environment(environment)
    with trio.move_on_after(15.1):
        await notifier.run()
    assert manager.all_heard() == ["WATCHDOG=1"] * 11
    notifier.close()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-5"},
    ],
)
async def test_there_are_no_signs_of_life_where_none_are_awaited_from_us(
    variables: dict[str, str], manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.named, **variables})
    with trio.move_on_after(3600):
        await notifier.run()
    assert manager.all_heard() == []
    notifier.close()
