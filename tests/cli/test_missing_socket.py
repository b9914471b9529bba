"""A socket that is not there may still have a daemon, or the daemon another socket."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor.cli import client as missing_socket
from supervisor.cli.lock_file import lock_holder
from tests.cli.conftest import Run


@pytest.fixture
def owned() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def lock(path: Path, owned: ExitStack) -> None:
    """Hold a lock file as a daemon does; this process stands for one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = owned.enter_context(path.open("wb"))
    fcntl.flock(file, fcntl.LOCK_EX)


def listen(path: Path, owned: ExitStack) -> None:
    listener = owned.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(str(path))
    listener.listen()


@pytest.mark.parametrize("where", ["socket", "data_dir"])
def test_a_daemon_whose_socket_was_deleted_is_named_with_what_to_do(
    run: Run, socket_path: Path, tmp_path: Path, owned: ExitStack, where: str
) -> None:
    listen(socket_path, owned)
    beside, data = socket_path.with_name("s.lock"), tmp_path / "data" / "instances.lock"
    lock(beside if where == "socket" else data, owned)
    socket_path.unlink()
    ended = run("status")
    assert ended.exit_code == 3
    assert ended.stderr == (
        f"stdiod: the socket {socket_path} is missing, but its daemon (pid {os.getpid()}) lives: "
        f"`kill {os.getpid()}` ends it and its modules in order, "
        "then `stdiod up DIR` starts another one\n"
    )


def test_a_daemon_that_just_starts_has_lost_no_socket(
    run: Run, socket_path: Path, owned: ExitStack
) -> None:
    lock(socket_path.with_name("s.lock"), owned)
    assert f"no daemon listens on {socket_path}; " in run("status").stderr


def test_a_daemon_on_the_same_data_and_another_socket_is_named(
    run: Run, socket_path: Path, tmp_path: Path, owned: ExitStack
) -> None:
    lock(tmp_path / "data" / "instances.lock", owned)
    other = socket_path.with_name("other")
    listen(other, owned)
    ended = run("status")
    assert ended.exit_code == 3
    assert f"no daemon listens on {socket_path}; the daemon with pid {os.getpid()}" in ended.stderr
    assert other in missing_socket.listens_on(os.getpid())


def test_a_lock_file_that_nobody_holds_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert lock_holder(tmp_path / "lock") is None
    assert lock_holder(tmp_path / "none") is None
