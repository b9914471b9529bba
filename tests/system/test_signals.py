"""What signals do to a real daemon, and what its service manager hears of that."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import MARKER, Daemon, command, marked
from tests.system.descriptors import misbehaving, write
from tests.system.liveness import BOUND_S, Liveness


class Manager(NamedTuple):
    """A fake service manager."""

    socket: socket.socket
    environment: dict[str, str]

    lines: list[str]
    """What was said and not yet waited for; a message can carry several lines."""

    def wait_for(self, *lines: str) -> None:
        """Return once these were said, in any order, and forget what was said up to the last."""

        def said() -> bool:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.lines.extend(self.socket.recv(4096).decode().splitlines())
            return {*lines} <= {*self.lines}

        until(said, " and ".join(lines))
        del self.lines[: max(map(self.lines.index, lines)) + 1]


@pytest.fixture
def manager(folder: Path) -> Manager:
    path = folder / "notify"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.setblocking(False)
    listener.bind(str(path))
    # Short, so that a sign of life is soon there; nobody kills the daemon if there is none.
    return Manager(listener, {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"}, [])


def stopping(daemon: Daemon, module: str) -> None:
    """Wait until a module is being stopped."""
    until(lambda: daemon.status(module)["state"] == "stopping", f"{module} being stopped")


def test_the_service_manager_hears_of_the_whole_life(
    start_daemon: StartDaemon, manager: Manager
) -> None:
    variables = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]
    document = misbehaving("one")
    document["transport"]["pass_env"] = variables
    with manager.socket:
        daemon = start_daemon(document, environment=manager.environment)
        manager.wait_for("READY=1", "STATUS=1 of 1 modules ready")
        manager.wait_for("WATCHDOG=1")
        inherited = daemon.invoke("one", fault="environment").result["environment"]
        assert not set(variables) & set(inherited)
        daemon.process.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")
        daemon.wait_ended()


@pytest.mark.fault(25)
def test_sighup_reloads_and_says_so(start_daemon: StartDaemon, manager: Manager) -> None:
    with manager.socket:
        daemon = start_daemon(misbehaving("one"), environment=manager.environment)
        pid = daemon.pid("one")
        manager.wait_for("READY=1")
        write(daemon.modules, misbehaving("two"))
        daemon.process.send_signal(signal.SIGHUP)
        manager.wait_for("RELOADING=1")
        assert manager.lines[0].startswith("MONOTONIC_USEC=")
        manager.wait_for("READY=1")
        assert daemon.usable("two").ok
        assert daemon.pid("one") == pid


@pytest.mark.fault(47)
def test_sighup_before_the_daemon_is_ready_is_a_wish_to_reload(folder: Path) -> None:
    write(folder / "modules", misbehaving("one"))
    words = command(folder / "modules", folder / "socket", folder / "data")
    reading, writing = os.pipe()
    with subprocess.Popen([*words, "--ready-fd", str(writing)], pass_fds=(writing,)) as process:
        os.close(writing)
        try:
            while not (folder / "socket").exists():
                assert process.poll() is None
            process.send_signal(signal.SIGHUP)
            assert os.read(reading, 1), "the daemon has ended"
        finally:
            os.close(reading)
            process.terminate()
        assert process.wait(BOUND_S) == 0


@pytest.mark.fault(25)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_hurries_a_daemon_that_waits_for_a_module(
    number: signal.Signals, start_daemon: StartDaemon, liveness: Liveness
) -> None:
    # It has 60 s to end after SIGTERM, and ignores that: without the hurry, the bound is passed.
    stubborn = misbehaving("stubborn", "start=ignore_sigterm", env={"LIVENESS": str(liveness.path)})
    daemon = start_daemon(stubborn)
    (process,) = liveness.wait_for("module")
    answer = daemon.client.send_invoke("stubborn", fault="gate")
    liveness.wait_for("gate")
    daemon.process.send_signal(number)
    stopping(daemon, "stubborn")
    assert process.alive()
    daemon.process.send_signal(number)
    process.wait_gone()
    done = daemon.client.answer(answer)
    assert not done.ok
    daemon.wait_ended()
    assert '"event": "hurrying"' in daemon.log()


FIRST_MOMENT = """
import os, signal, sys
from supervisor.runtime.loop_clock import LoopClock
LoopClock.start_clock = lambda clock: os.kill(os.getpid(), signal.SIGTERM)
from supervisor.cli.main import main
main()
"""


@pytest.mark.fault(25)
def test_a_signal_in_the_first_moment_of_the_event_loop_is_obeyed_in_order(folder: Path) -> None:
    write(folder / "modules", misbehaving("one"))
    _, _, _, *words = command(folder / "modules", folder / "socket", folder / "data")
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_MOMENT, *words],
        env={**os.environ, MARKER: folder.name},
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    events = [json.loads(line)["event"] for line in ended.stderr.splitlines()]
    assert (ended.returncode, events[-1]) == (0, "stopped")
    assert not (folder / "socket").exists()
    assert not marked(folder.name)


def test_many_signals_at_the_end_do_not_spoil_its_exit_status(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"))
    pidfd = os.pidfd_open(daemon.process.pid)
    try:

        def ended() -> bool:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            return bool(select.select([pidfd], [], [], 0)[0])

        until(ended, "its end")
    finally:
        os.close(pidfd)
    daemon.wait_ended()


@pytest.mark.fault(25)
def test_a_closed_terminal_ends_the_daemon_and_all_that_it_started(
    folder: Path, liveness: Liveness
) -> None:
    modules, marker = folder / "modules", folder.name
    write(modules, misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    ours, theirs = pty.openpty()
    words = command(modules, folder / "socket", folder / "data")
    daemon = subprocess.Popen(
        ["setsid", "--ctty", *words],  # the terminal becomes the one that it is controlled by
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, MARKER: marker},
    )
    try:
        os.close(theirs)
        (module,) = liveness.wait_for("module")
        os.close(ours)
        assert daemon.wait(BOUND_S) == 0
        module.wait_gone()
        assert not marked(marker)
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
