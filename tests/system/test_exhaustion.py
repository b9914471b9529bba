"""No file descriptor and no disk space left: the daemon is degraded, not dead, and not busy."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from supervisor.faces.control_socket import OUT_OF_DESCRIPTORS_PAUSE_S
from supervisor.kernel.kernel import Kernel
from supervisor.policy.lifecycle import State
from supervisor.runtime.files.sources import scan
from tests import factories
from tests.bounds import until
from tests.system.client import Client
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon, command, start
from tests.system.descriptors import descriptor, misbehaving, per_invocation, write
from tests.system.liveness import BOUND_S

CYCLES = 250
"""Starts and stops of a persistent module, which take some 20 ms each."""

RUNS = 2_000
AT_ONCE = 100
"""Invocations with a process each, which are cheaper, and how many are asked for at once."""


@contextlib.contextmanager
def few_files(daemon: Daemon, more: int) -> Iterator[None]:
    """Let a daemon open no more files than it has, and some."""
    pid, kind = daemon.process.pid, resource.RLIMIT_NOFILE
    soft, hard = resource.prlimit(pid, kind)
    # The limit is on the number of a descriptor, so holes below the highest one count.
    used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    limit, free = 0, 0
    while free < more or limit <= max(used):
        free += limit not in used
        limit += 1
    resource.prlimit(pid, kind, (limit, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, (soft, hard))


def refused_accepts(daemon: Daemon) -> int:
    return daemon.log().count("cannot accept a client")


@pytest.mark.fault(21)
def test_clients_beyond_the_limit_wait_and_are_served_once_there_is_room(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("one"))
    with contextlib.ExitStack() as clients:
        began_s = time.monotonic()
        with few_files(daemon, 6):
            crowd = [clients.enter_context(Client(daemon.socket)) for _ in range(20)]
            for one in crowd[:-1]:
                one.send("supervisor", "ui.subscribe")  # who is idle would be parted from
            waiting = crowd[-1].send_invoke("one", word="late")

            def refused() -> int:
                assert crowd[0].invoke("one").ok
                return refused_accepts(daemon)

            until(refused, "a client that is not accepted")
            # Those who are in are served as ever, and accepting is tried in its own time: the
            # number of tries is bounded by the pauses that fit in, however fast the machine is.
            for _ in range(200):
                assert crowd[0].invoke("one").ok
            tries, took_s = refused_accepts(daemon), time.monotonic() - began_s
            assert tries <= took_s / OUT_OF_DESCRIPTORS_PAUSE_S + 1
            for client in crowd[:-1]:
                client.close()
        assert crowd[-1].answer(waiting).result == {"word": "late"}


@pytest.mark.fault(21)
def test_a_limit_that_is_lowered_under_a_crowd_keeps_no_operators_command_out(
    start_daemon: StartDaemon,
) -> None:
    """`status` and `down` waited for as long as nobody parted by himself."""
    daemon = start_daemon(misbehaving("one"))
    with contextlib.ExitStack() as clients:
        for _ in range(60):
            one = clients.enter_context(Client(daemon.socket))
            assert one.op("status").ok
        with few_files(daemon, 0):
            newcomer = clients.enter_context(Client(daemon.socket))
            assert newcomer.op("status").ok


@pytest.mark.fault(21)
def test_a_module_that_cannot_be_spawned_is_told_in_words_and_tried_again(
    start_daemon: StartDaemon,
) -> None:
    lazy = misbehaving("lazy", start="lazy")
    daemon = start_daemon(misbehaving("one"), per_invocation("once"), lazy)
    pid = daemon.pid("one")
    with few_files(daemon, 3):
        for module in ("once", "lazy"):
            refused = daemon.invoke(module)
            assert refused.verdict == "unreachable/spawn_failed", refused
            assert "no file descriptor left" in refused.error["message"]
        assert daemon.invoke("one").ok
    assert daemon.invoke("once").ok
    assert daemon.usable("lazy").ok
    assert daemon.pid("one") == pid


def _tiny_disk(folder: Path) -> str | None:
    """Mount a disk that a journal leaves little of; returns why that cannot be done."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=512k", "stdiod-test", str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no mount(8)"
    return None if done.returncode == 0 else done.stderr.strip()


@pytest.fixture
def tiny_disk(folder: Path) -> Iterator[Path]:
    disk = folder / "data"
    why_not = _tiny_disk(disk)
    if why_not is not None:
        pytest.skip(f"no file system can be mounted: {why_not}")
    yield disk
    # Lazily: what still has a file open there is not to keep the test's folder from going.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.fault(21)
def test_a_full_disk_costs_log_lines_and_nothing_else(
    tiny_disk: Path, start_daemon: StartDaemon
) -> None:
    daemon = start_daemon(misbehaving("one"))

    def refused() -> str | None:
        # Again and again: the journal may give room back, for which the error is over.
        assert daemon.invoke("one", fault="stderr", bytes=1_000_000).ok
        error: str | None = daemon.op("status")["daemon"]["log_error"]
        return error

    error = until(refused, "a log on a full disk")
    assert "No space left" in error
    assert daemon.op("status")["daemon"]["dropped_log_bytes"] > 0
    assert daemon.invoke("one", word="still here").result == {"word": "still here"}
    for path in (tiny_disk / "logs").iterdir():
        path.unlink()
    assert daemon.invoke("one", fault="stderr", bytes=100).ok
    lines = daemon.client.op("logs", module="one", lines=1).events
    assert lines[-1]["message"] == "the last words"
    assert daemon.op("status")["daemon"]["log_error"] is None
    # It is tried again each second.
    until(lambda: daemon.op("status")["daemon"]["journal"]["problem"] is None, "a sound journal")
    assert daemon.op("status")["daemon"]["journal"]["dropped"] == 0


@contextlib.contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Let nothing be made or removed there, as after an error of the disk; open files stay open."""
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.fault(21)
def test_a_daemon_whose_disk_has_become_read_only_serves_ends_in_order_and_can_be_followed(
    tiny_disk: Path, folder: Path
) -> None:
    write(folder / "modules", misbehaving("one"))
    socket_path, own_log = tiny_disk / "socket", folder / "log"
    words = command(folder / "modules", socket_path, tiny_disk / "state")
    for spoiled in (read_only(tiny_disk), contextlib.nullcontext()):
        with own_log.open("ab") as log:
            process, ready = start(words, os.environ, log.fileno())
        try:
            assert ready, own_log.read_text()
            with spoiled, Client(socket_path) as client:
                assert client.invoke("one", word="on").result["word"] == "on"
                assert client.op("restart", module="one").ok
                assert client.op("shutdown").ok
                assert process.wait(BOUND_S) == 0, own_log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.parametrize("where", ["/dev/full", "closed pipe", "stuck pipe"])
def test_a_daemon_whose_own_log_cannot_be_written_serves(where: str, folder: Path) -> None:
    write(folder / "modules", misbehaving("one"))
    with contextlib.ExitStack() as owned:
        if where == "/dev/full":
            log = owned.enter_context(Path(where).open("wb")).fileno()
        else:
            reading, log = os.pipe()
            owned.callback(os.close, log)
            if where == "closed pipe":
                os.close(reading)
            else:
                owned.callback(os.close, reading)
                os.set_blocking(log, False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(log, b"x" * 4096)
                os.set_blocking(log, True)
        words = command(folder / "modules", folder / "socket", folder / "data")
        process, ready = start(words, os.environ, log)
        try:
            assert ready
            with Client(folder / "socket") as client:
                for number in range(20):
                    assert client.op("restart", module="one").ok
                    assert client.invoke("one", n=number).result == {"n": number}
                assert client.op("shutdown").ok
            assert process.wait(BOUND_S) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.fault(21)
async def test_cycles_of_spawn_and_stop_leave_no_descriptor_behind(tmp_path: Path) -> None:
    shell = r"""
    while read -r line; do
      id=${line#*\"requestId\":\"}; id=${id%%\"*}
      case $line in
        *'"health"'*) printf '{"status":"ok","requestId":"%s"}\n' "$id" ;;
        *) printf '%s"requestId":"%s"}\n' "$DESCRIPTION" "$id" ;;
      esac
    done
    """
    about = {"name": "sh", "version": "1", "kind": "tool", "capabilities": []}
    description = json.dumps({**about, "inputs": {}, "outputs": {}})[:-1] + ","
    document = descriptor(
        "sh",
        ["sh", "-c", shell],
        env={"DESCRIPTION": description},
        supervision={"start": "lazy", "timeouts": {"start_s": 60, "health_s": 60}},
    )
    write(tmp_path / "modules", document)
    found = scan([tmp_path / "modules"])
    with trio.fail_after(BOUND_S * 5):
        async with Kernel(found, data_dir=tmp_path / "data") as daemon:
            module = daemon.fleet.modules["sh"]

            async def cycle() -> None:
                module.start("a test")
                await daemon.fleet.wait_until(lambda: module.state is State.READY or None)
                module.stop("a test")
                await daemon.fleet.wait_until(lambda: module.state is State.DOWN or None)

            async def open_files() -> int:
                # Answered by the thread that writes the logs, which has no file open then.
                await module.log.last_lines(1)
                return _open_files()

            await cycle()
            before = await open_files()
            for _ in range(CYCLES):
                await cycle()
            assert await open_files() == before


@pytest.mark.fault(21)
async def test_two_thousand_processes_leave_no_descriptor_behind(tmp_path: Path) -> None:
    supervision = {"concurrency": 4, "timeouts": {"invoke_s": 3600}}
    document = descriptor("once", ["true"], protocol="narratoria", supervision=supervision)
    write(tmp_path / "modules", document)
    with trio.fail_after(BOUND_S * 20):
        async with Kernel(scan([tmp_path / "modules"]), data_dir=tmp_path / "data") as daemon:
            module = daemon.fleet.modules["once"]

            async def invoke_all() -> None:
                asked = [factories.call() for _ in range(AT_ONCE)]
                for call, _ in asked:
                    module.submit(call)
                for _, heard in asked:
                    assert (await heard.failure()).details["reason"] == "missing_done"

            async def open_files() -> int:
                # The answer comes before the last of its process has been closed; this is after.
                module.stop("a test")
                await daemon.fleet.wait_until(lambda: module.state is State.DOWN or None)
                await module.log.last_lines(1)
                return _open_files()

            module.start("a test")
            await invoke_all()
            before = await open_files()
            module.start("a test")
            for _ in range(RUNS // AT_ONCE):
                await invoke_all()
            assert await open_files() == before


def test_a_socket_is_all_that_a_client_costs(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"))
    before = daemon.open_files()
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(daemon.socket))
    daemon.wait_open_files(before)
    assert daemon.invoke("one").ok
