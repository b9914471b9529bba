"""Where HTTP cannot be listened for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bounds import WAIT_S
from tests.faces.running import running
from tests.system.daemon import command
from tests.system.descriptors import write


def refused(socket: Path, *options: str) -> str:
    """Return what a daemon says that cannot start."""
    write(socket.parent / "modules")
    words = command(socket.parent / "modules", socket, socket.parent / "other", *options)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode != 0
    return ended.stderr


@pytest.mark.parametrize(
    ("address", "cert", "words"),
    [
        ("127.0.0.1:0", __file__, "--http-cert"),
        ("127.0.0.1:0", "none", "No such file"),
        ("192.0.2.1:0", None, "cannot listen on 192.0.2.1:0: Cannot assign"),
        ("no.such.host.invalid:1", None, "cannot listen on no.such.host.invalid:1"),
    ],
)
def test_where_nothing_can_listen_is_said(
    address: str, cert: str | None, words: str, tmp_path: Path
) -> None:
    tls = ("--http-insecure",) if cert is None else ("--http-cert", cert, "--http-key", __file__)
    assert words in refused(tmp_path / "socket", "--http", address, *tls)


async def test_two_daemons_do_not_share_a_socket() -> None:
    async with running() as first, first.unix() as client:
        said = refused(first.daemon.folder / "another", "--http", "sock")
        assert f"(pid {first.daemon.process.pid})" in said
        assert str(first.daemon.folder / "http.sock") in said
        assert (await client.ask("GET", "/api/v1/health")).status == 200
