"""The daemon's own beginning and end: one per socket, and nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.bounds import until
from tests.system.client import Client
from tests.system.conftest import StartDaemon
from tests.system.daemon import command, start
from tests.system.descriptors import misbehaving, narratoria, per_invocation, timeouts, write
from tests.system.liveness import BOUND_S, Liveness

BRIEF = timeouts(exit_s=0.2, stop_s=0.2)


def connected(path: Path) -> Client | None:
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        return Client(path)
    return None


def refused(words: list[str]) -> tuple[int, str]:
    """Run a daemon that must not get ready; return its exit status and what it said."""
    with tempfile.TemporaryFile() as log:
        process, ready = start(words, os.environ, log.fileno())
        try:
            assert not ready
            status = process.wait(BOUND_S)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        return status, log.read().decode()


def test_a_second_daemon_is_refused_in_a_sentence_and_the_first_goes_on(
    start_daemon: StartDaemon, folder: Path
) -> None:
    daemon = start_daemon(misbehaving("one"))
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(daemon.data_dir.stat().st_mode) == 0o700
    status, said = refused(command(daemon.modules, daemon.socket, folder / "other"))
    assert status == 1
    assert f"pid {daemon.process.pid}" in said
    status, said = refused(command(daemon.modules, folder / "elsewhere", folder / "data"))
    assert status == 1
    assert f"is in use by the daemon with pid {daemon.process.pid}" in said
    assert "bug" not in said
    with daemon.connect() as client:
        assert client.invoke("one", word="hello").result == {"word": "hello"}


def test_a_containment_that_cannot_be_had_is_refused_in_a_sentence(folder: Path) -> None:
    write(folder / "modules", misbehaving("one"))
    configuration = folder / "stdiod.toml"
    configuration.write_text('containment = "cgroup2"\n')
    # In a mount namespace of its own, where nothing is mounted on the folder of control groups.
    hidden = ["unshare", "--mount", "sh", "-c", 'umount -l -R /sys/fs/cgroup && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode:
        pytest.skip("control groups cannot be hidden here")
    words = command(folder / "modules", folder / "socket", folder / "data")
    status, said = refused([*hidden, *words, "--config", str(configuration)])
    assert status == 1
    assert "containment 'cgroup2' was asked for and cannot be had here" in said


def test_a_daemon_that_was_killed_does_not_keep_the_next_one_out(
    start_daemon: StartDaemon, folder: Path
) -> None:
    write(folder / "modules", misbehaving("one"))
    words = command(folder / "modules", folder / "socket", folder / "data")
    with (folder / "log").open("wb") as log:
        process, ready = start(words, os.environ, log.fileno())
    assert ready
    process.kill()
    process.wait()
    assert (folder / "socket").is_socket()
    assert start_daemon().invoke("one").ok


def open_in(pid: int) -> set[str]:
    found: set[str] = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(str(one.readlink()))
    return found


def test_a_lock_that_a_child_of_a_killed_daemon_still_holds_is_waited_for(folder: Path) -> None:
    write(folder / "modules", misbehaving("one"))
    path = folder / "s"
    gone = subprocess.Popen(["true"])
    gone.wait()
    with path.with_name("s.lock").open("w") as lock, tempfile.TemporaryFile() as log:
        lock.write(f"{gone.pid}\n0.1.0\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = command(folder / "modules", path, folder / "data")
        with subprocess.Popen(words, stdout=log, stderr=log) as process:
            try:
                until(lambda: lock.name in open_in(process.pid), "the daemon's look at the lock")
                fcntl.flock(lock, fcntl.LOCK_UN)
                # The socket has its name a moment before the daemon listens to it.
                with until(lambda: connected(path), "the daemon's socket") as client:
                    assert client.op("status").ok
            finally:
                process.terminate()
        log.seek(0)
        assert process.returncode == 0, log.read()


def test_what_a_client_usually_asks_needs_no_library_for_schemas(folder: Path) -> None:
    write(folder / "modules", misbehaving("one"))
    words = command(folder / "modules", folder / "socket", folder / "data")
    with (folder / "log").open("wb") as log:
        process, ready = start(words, os.environ, log.fileno(), anew=True)
    try:
        assert ready
        maps = Path(f"/proc/{process.pid}/maps")
        with Client(folder / "socket") as client:
            assert client.op("wait", modules=["one"], **{"for": "ready"}).ok
            assert client.op("status", module="one").ok
            assert "jsonschema_rs" not in maps.read_text()
            assert not client.op("wait", modules=7).ok
            assert "jsonschema_rs" in maps.read_text()
    finally:
        process.terminate()
        process.wait(BOUND_S)


def test_a_file_in_the_place_of_the_socket_is_left_alone(folder: Path) -> None:
    (folder / "modules").mkdir()
    (folder / "socket").write_text("precious")
    status, said = refused(command(folder / "modules", folder / "socket", folder / "data"))
    assert status == 1
    assert str(folder / "socket") in said
    assert (folder / "socket").read_text() == "precious"


def test_a_folder_that_is_missing_is_named(folder: Path) -> None:
    status, said = refused(command(folder / "nowhere", folder / "socket", folder / "data"))
    assert status == 2
    assert str(folder / "nowhere") in said


@pytest.mark.fault(25)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(
    start_daemon: StartDaemon, liveness: Liveness, number: signal.Signals
) -> None:
    env = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(
        misbehaving("polite", env=env),
        misbehaving("rude", "start=ignore_sigterm", env=env, timeouts=BRIEF),
        narratoria("tool"),
    )
    assert daemon.invoke("rude", fault="grandchild+done+hang").ok
    liveness.wait_for("grandchild")
    daemon.end(number)  # asserts the exit status, and that nothing is left
    for member in liveness.members:
        member.wait_gone()
    assert not daemon.socket.exists()


def test_the_shutdown_op_is_answered_and_ends_it(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"))
    assert daemon.op("shutdown") == {"pid": daemon.process.pid}
    daemon.wait_ended()


def test_the_shutdown_op_of_a_daemon_without_modules_is_answered(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    assert daemon.op("shutdown") == {"pid": daemon.process.pid}
    daemon.wait_ended()


@pytest.mark.fault(25)
def test_a_second_signal_hurries_the_end(start_daemon: StartDaemon, liveness: Liveness) -> None:
    env = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(
        # By itself, it would be waited for until the test gives up.
        misbehaving("rude", "start=ignore_sigterm", env=env, timeouts=timeouts(exit_s=3600)),
    )
    (process,) = liveness.wait_for("module")
    assert daemon.invoke("rude", fault="done+hang").ok
    daemon.process.send_signal(signal.SIGTERM)
    daemon.wait_state("rude", "stopping")
    daemon.end(signal.SIGTERM)
    process.wait_gone()


@pytest.mark.parametrize("hurry", [False, True])
def test_requests_in_flight_at_the_end_are_cancelled_by_it(
    start_daemon: StartDaemon, liveness: Liveness, hurry: bool
) -> None:
    bounds = timeouts(exit_s=3600, stop_s=3600) if hurry else BRIEF
    documents = [
        misbehaving("one", timeouts=bounds),
        per_invocation("once", timeouts=bounds),
        narratoria("tool", timeouts=bounds),
    ]
    for document in documents:
        document["transport"]["env"] = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(*documents)
    client = daemon.client
    modules = ("one", "once", "tool")
    asked = [client.send_invoke(module, fault="ignore_sigterm+gate") for module in modules]
    gates = liveness.wait_for("gate", len(modules))
    asked += [client.send_invoke(module) for module in modules]
    daemon.process.send_signal(signal.SIGTERM)
    if hurry:
        for module in modules:
            daemon.wait_state(module, "stopping")
        daemon.process.send_signal(signal.SIGTERM)
    assert {client.answer(request_id).verdict for request_id in asked} == {"cancelled/shutdown"}
    for gate in gates:
        gate.wait_gone()
    daemon.wait_ended()


def test_a_client_that_is_connected_sees_the_end_of_the_stream(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"))
    with daemon.connect() as client:
        assert client.invoke("one").ok
        daemon.process.send_signal(signal.SIGTERM)
        assert list(client.lines()) == []


def test_a_signal_right_after_ready_ends_it_in_order(folder: Path) -> None:
    write(folder / "modules", *(misbehaving(f"m{n}") for n in range(3)))
    words = command(folder / "modules", folder / "socket", folder / "data")
    for _ in range(3):
        with (folder / "log").open("wb") as log:
            process, ready = start(words, os.environ, log.fileno())
        assert ready
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 0


def test_a_daemon_that_begins_to_end_takes_in_no_new_work(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(misbehaving("one", env={"LIVENESS": str(liveness.path)}))
    serving = daemon.client.send_invoke("one", fault="gate", word="hello")
    (gate,) = liveness.wait_for("gate")
    daemon.process.send_signal(signal.SIGTERM)
    daemon.wait_state("one", "stopping")
    with Client(daemon.socket) as client:
        assert client.invoke("one").verdict == "cancelled/shutdown"
    gate.release()
    assert daemon.client.answer(serving).result["word"] == "hello"  # drained
    daemon.wait_ended()
