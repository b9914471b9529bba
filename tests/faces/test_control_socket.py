"""Where the control socket is, whose it is, and what else may stand in its place."""

from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faces.lines import request
from tests.faces.running import Running
from tests.faces.starting import refusal, serving

MAX_PATH_BYTES = 107
"""Of a socket (`sun_path` of unix(7))."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, which a socket needs."""
    with TemporaryDirectory(prefix="stdiod-") as name:
        yield Path(name)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "run" / "stdiod.sock"


def can_connect(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    return True


async def test_clients_are_served_side_by_side(shared: Running) -> None:
    async with shared.lines() as one, shared.lines() as two:
        await one.send(request("a", "supervisor", "wait", **{"for": "down"}))
        await two.send(request("a", "m", op="echo", args={"n": 2}))
        assert (await two.done())["result"] == {"n": 2}


async def test_a_client_is_the_user_at_the_other_side_and_may_do_everything(
    shared: Running,
) -> None:
    async with shared.lines() as one, shared.lines() as two:
        await one.send(request("a", "supervisor", "narrow", modules=["m"]))
        user = {"name": pwd.getpwuid(os.geteuid()).pw_name, "face": "socket"}
        scopes = ["read", "invoke", "admin"]
        narrowed = (await one.done())["result"]
        assert narrowed == {**user, "scopes": scopes, "modules": ["m"]}
        # What one connection gives up, another one keeps.
        await two.send(request("b", "supervisor", "narrow"))
        whole = (await two.done())["result"]
        assert whole == {**user, "scopes": scopes, "modules": ["*"]}


def test_the_socket_is_its_owners_alone_and_goes_with_the_daemon(folder: Path, path: Path) -> None:
    with serving(folder, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert can_connect(path)
    assert not path.exists()


def test_a_stale_socket_is_replaced(folder: Path, path: Path) -> None:
    path.parent.mkdir()
    _bind(path)
    assert path.is_socket()
    with serving(folder, path):
        assert can_connect(path)


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(folder: Path, path: Path) -> None:
    with serving(folder, path) as first:
        said = refusal(folder / "second", path)
        assert f"(pid {first.pid}) serves {path}; `kill {first.pid}` ends it" in said
        assert can_connect(path)  # the first one's is left alone
    with serving(folder, path):
        pass


def test_a_daemon_whose_socket_file_is_gone_can_only_be_killed(folder: Path, path: Path) -> None:
    with serving(folder, path) as first:
        path.unlink()
        said = refusal(folder / "second", path)
        assert f"(pid {first.pid}) " in said
        assert f" socket file is gone; `kill {first.pid}` ends it" in said


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_socket_is_somebodys_and_left_alone(folder: Path, path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "file":
        path.write_text("precious")
    else:
        path.mkdir()
    said = refusal(folder, path)
    assert "cannot listen on " in said
    assert ": it exists and is not a socket" in said
    assert path.is_dir() if kind == "folder" else path.read_text() == "precious"
    # Nor is a lock left beside it.
    assert list(path.parent.iterdir()) == [path]


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
    folder: Path, path: Path, make: Callable[[Path], None], kind: str
) -> None:
    path.parent.mkdir()
    make(path.with_name(f"{path.name}.lock"))
    words = f"the lock file {path}.lock is {kind}, it must be a regular file"
    assert words in refusal(folder, path)


def test_a_path_too_long_for_a_socket_says_the_limit(folder: Path) -> None:
    there = folder / "there"
    there.mkdir()
    words = f"and a Unix socket's path may have {MAX_PATH_BYTES}"
    assert words in refusal(folder, there / ("x" * MAX_PATH_BYTES))
    assert list(there.iterdir()) == []


def test_the_longest_path_that_fits_is_taken(folder: Path) -> None:
    room = MAX_PATH_BYTES - len(os.fsencode(folder)) - 1
    if room < 1:
        pytest.skip("the folder for temporary files has a path too long for this")
    with serving(folder, folder / ("x" * room)):
        pass


def test_a_folder_that_cannot_be_made_is_put_into_words(folder: Path) -> None:
    (folder / "file").write_text("")
    assert "cannot listen on" in refusal(folder, folder / "file" / "s")
