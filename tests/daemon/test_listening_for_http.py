"""The sockets of HTTP: what a start leaves open that fails, and clients that come before it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from supervisor.daemon.gateway import listening
from supervisor.faces.control_socket import SocketPathError
from supervisor.policy.http_exposure import Exposure
from supervisor.runtime import threads
from tests.bounds import WAIT_S
from tests.factories import open_files, opened_since

CERT, KEY = Path(__file__), Path(__file__)
"""Neither of the two."""


@pytest.mark.parametrize(
    ("exposure", "words"),
    [
        (Exposure(host="127.0.0.1", port=0, cert=KEY, key=KEY), "--http-cert"),
        (Exposure(host="127.0.0.1", port=0, cert=Path("none"), key=KEY), "No such file"),
        (Exposure(host="192.0.2.1", port=0), "cannot listen on 192.0.2.1:0: Cannot assign"),
        (Exposure(host="no.such.host.invalid", port=1), "cannot listen on no.such.host.invalid:1"),
    ],
)
def test_where_nothing_can_listen_nothing_is_left_open(
    exposure: Any, words: str, tmp_path: Path
) -> None:
    before = open_files()
    with (
        pytest.raises(SocketPathError, match=words),
        listening(exposure, tmp_path / "stdiod.sock"),
    ):
        raise AssertionError
    assert not opened_since(before)


def test_a_certificate_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "NEEDED_PATIENCE_S", 0.01)
    pipe = tmp_path / "cert.pem"
    os.mkfifo(pipe)
    try:
        with (
            pytest.raises(SocketPathError, match=r"cert\.pem does not answer"),
            listening(Exposure(host="127.0.0.1", port=0, cert=pipe, key=KEY), tmp_path / "s"),
        ):
            raise AssertionError
    finally:
        os.close(os.open(pipe, os.O_WRONLY))  # whoever waits to open it goes on


def test_who_comes_while_a_start_fails_is_told_so_in_http(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(WAIT_S)
        with listening(Exposure(), tmp_path / "stdiod.sock"):
            client.connect(str(tmp_path / "http.sock"))
            client.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = client.recv(1 << 16)
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"could not start" in said
