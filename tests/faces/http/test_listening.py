"""Where HTTP cannot be listened for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces.running import SOCK, running
from tests.faces.starting import refusal


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
    assert words in refusal(tmp_path, tmp_path / "socket", "--http", address, *tls)


async def test_two_daemons_do_not_share_a_socket(tmp_path: Path) -> None:
    async with running(http=SOCK) as first, first.unix() as client:
        said = refusal(tmp_path, first.daemon.folder / "another", "--http", "sock")
        assert f"(pid {first.daemon.process.pid})" in said
        assert str(first.daemon.folder / "http.sock") in said
        assert (await client.ask("GET", "/api/v1/health")).status == 200
