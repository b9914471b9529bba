from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from supervisor.faces.control_socket import (
    MAX_PATH_BYTES,
    SocketPathError,
    SocketTakenError,
    listening,
    serve,
)
from tests.bounds import WAIT_S
from tests.faces.lines import Client, request
from tests.factories import actor, open_files, opened_since
from tests.kernel.conftest import daemon_with


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "stdiod.sock"


async def test_clients_are_served_side_by_side(tmp_path: Path, path: Path) -> None:
    before = open_files()
    made = actor(tmp_path, supervision={"timeouts": {"stop_s": 0.1}})
    async with daemon_with(tmp_path, made) as daemon:
        with listening(path) as listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, daemon, listener)
                async with (
                    await trio.open_unix_socket(path) as one,
                    await trio.open_unix_socket(path) as two,
                ):
                    await Client(one).send(request("a", "supervisor", "wait", **{"for": "down"}))
                    await Client(two).send(request("a", "m", op="echo", args={"n": 2}))
                    assert (await Client(two).done())["result"] == {"n": 2}
                nursery.cancel_scope.cancel()
    assert not opened_since(before)


async def test_a_client_is_the_user_at_the_other_side_and_may_do_everything(
    tmp_path: Path, path: Path
) -> None:
    async with daemon_with(tmp_path) as daemon:
        with listening(path) as listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, daemon, listener)
                async with (
                    await trio.open_unix_socket(path) as one,
                    await trio.open_unix_socket(path) as two,
                ):
                    await Client(one).send(request("a", "supervisor", "narrow", modules=["m"]))
                    await Client(two).send(request("b", "supervisor", "narrow"))
                    user = {"name": pwd.getpwuid(os.geteuid()).pw_name, "face": "socket"}
                    scopes = ["read", "invoke", "admin"]
                    narrowed = (await Client(one).done())["result"]
                    assert narrowed == {**user, "scopes": scopes, "modules": ["m"]}
                    # What one connection gives up, another one keeps.
                    whole = (await Client(two).done())["result"]
                    assert whole == {**user, "scopes": scopes, "modules": ["*"]}
                nursery.cancel_scope.cancel()


def test_the_socket_is_its_owners_alone_and_goes_with_the_daemon(path: Path) -> None:
    before = open_files()
    with listening(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()
    assert not opened_since(before)


def test_who_comes_while_a_start_fails_is_told_and_not_reset(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(WAIT_S)
        with listening(path):
            client.connect(str(path))
            client.sendall(b'{"operation":"describe"}\n')
        said = client.recv(1 << 16)
    assert b"could not start" in said
    assert b'"stopping"' in said


def test_a_stale_socket_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert path.is_socket()
    with listening(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(path: Path) -> None:
    with listening(path):
        before = open_files()
        words = rf"\(pid {os.getpid()}\) serves {path}; `kill {os.getpid()}` ends it"
        with pytest.raises(SocketTakenError, match=words), listening(path):
            pass
        assert not opened_since(before)
        assert path.is_socket()  # the first one's is left alone
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    with listening(path):
        pass


def test_a_daemon_whose_socket_file_is_gone_can_only_be_killed(path: Path) -> None:
    with listening(path):
        path.unlink()
        words = rf"\(pid {os.getpid()}\) .* socket file is gone; `kill {os.getpid()}` ends it"
        with pytest.raises(SocketTakenError, match=words), listening(path):
            pass


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_socket_is_somebodys_and_left_alone(path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "file":
        path.write_text("precious")
    else:
        path.mkdir()
    said = "cannot listen on .*: it exists and is not a socket"
    with pytest.raises(SocketPathError, match=said), listening(path):
        pass
    assert path.is_dir() if kind == "folder" else path.read_text() == "precious"


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.fspath(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a FIFO"),
        (os.mkdir, "a directory"),
        (lambda lock: lock.symlink_to(lock), "a symbolic link"),
        (_bind, "a socket"),
    ],
)
def test_what_stands_in_the_place_of_the_lock_is_named(
    path: Path, make: Callable[[Path], None], kind: str
) -> None:
    path.parent.mkdir()
    make(path.with_name(f"{path.name}.lock"))
    said = f"the lock file {path}.lock is {kind}, it must be a regular file"
    with pytest.raises(SocketPathError, match=said), listening(path):
        pass


def test_beside_what_is_no_socket_no_lock_is_left(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(SocketPathError), listening(path):
        pass
    assert list(path.parent.iterdir()) == [path]


def test_a_path_too_long_for_a_socket_says_the_limit(tmp_path: Path) -> None:
    long = tmp_path / ("x" * MAX_PATH_BYTES)
    words = f"longer than the {MAX_PATH_BYTES} bytes"
    with pytest.raises(SocketPathError, match=words), listening(long):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_longest_path_that_fits_is_taken(tmp_path: Path) -> None:
    room = MAX_PATH_BYTES - len(os.fsencode(tmp_path)) - 1
    if room < 1:
        pytest.skip("the folder for temporary files has a path too long for this")
    with listening(tmp_path / ("x" * room)):
        pass


def test_a_folder_that_cannot_be_made_is_put_into_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "s"
    with pytest.raises(SocketPathError, match="cannot listen on"), listening(below):
        pass


def test_the_socket_and_its_lock_are_not_inherited(path: Path) -> None:
    before = set(open_files())
    with listening(path):
        assert not any(os.get_inheritable(number) for number in set(open_files()) - before)
