"""What the control socket leaves open, and clients that come while a start fails."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from supervisor.faces.control_socket import (
    MAX_PATH_BYTES,
    SocketPathError,
    SocketTakenError,
    listening,
)
from tests.bounds import WAIT_S
from tests.factories import open_files, opened_since


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "stdiod.sock"


def test_who_comes_while_a_start_fails_is_told_and_not_reset(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(WAIT_S)
        with listening(path):
            client.connect(str(path))
            client.sendall(b'{"operation":"describe"}\n')
        said = client.recv(1 << 16)
    assert b"could not start" in said
    assert b'"stopping"' in said


def test_the_socket_and_its_lock_are_not_inherited(path: Path) -> None:
    before = set(open_files())
    with listening(path):
        assert not any(os.get_inheritable(number) for number in set(open_files()) - before)


def test_what_is_listened_at_leaves_nothing_open(path: Path) -> None:
    before = open_files()
    with listening(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()
    assert not opened_since(before)


def test_who_is_refused_leaves_nothing_open(path: Path) -> None:
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


def test_a_path_too_long_for_a_socket_says_the_limit(tmp_path: Path) -> None:
    long = tmp_path / ("x" * MAX_PATH_BYTES)
    words = f"longer than the {MAX_PATH_BYTES} bytes"
    with pytest.raises(SocketPathError, match=words), listening(long):
        pass
    assert list(tmp_path.iterdir()) == []
