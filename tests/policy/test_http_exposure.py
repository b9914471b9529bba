"""Where HTTP may be served, and what is said of what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.policy.http_exposure import Exposure, ExposureError, read_exposure

CERT, KEY = Path("/cert"), Path("/key")


@pytest.mark.parametrize(
    ("said", "exposure"),
    [
        ("off", None),
        ("sock", Exposure()),
        ("127.0.0.1:0", Exposure(host="127.0.0.1", port=0)),
        ("localhost:80", Exposure(host="localhost", port=80)),
        ("[::1]:65535", Exposure(host="::1", port=65535)),
    ],
)
def test_off_the_socket_or_loopback(said: str, exposure: Exposure | None) -> None:
    assert read_exposure(said) == exposure


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "example.com", "10.0.0.1", "localhost.example"]
)
def test_beyond_this_machine_it_is_tls_or_said_to_be_insecure(host: str) -> None:
    with pytest.raises(ExposureError, match="--http-cert and --http-key"):
        read_exposure(f"{host}:443")
    found = read_exposure(f"{host}:443", CERT, KEY)
    assert found is not None
    assert (found.cert, found.address) == (CERT, f"{host}:443")
    assert read_exposure(f"{host}:443", insecure=True) is not None


@pytest.mark.parametrize(
    ("said", "options", "words"),
    [
        ("", {}, "none of off, sock or HOST:PORT"),
        ("8080", {}, "none of off"),
        (":8080", {}, "none of off"),
        ("on", {}, "none of off"),
        ("::1:80", {}, "none of off"),
        ("[127.0.0.1]:80", {}, "none of off"),
        ("1.2.3:80", {}, "none of off"),
        ("a b:80", {}, "none of off"),
        ("localhost:", {}, "no port"),
        ("localhost:65536", {}, "no port"),
        ("localhost:0065536", {}, "no port"),
        ("localhost:655350", {}, "no port"),
        ("localhost:-1", {}, "no port"),
        ("localhost:٣", {}, "no port"),
        ("off", {"insecure": True}, "are for HOST:PORT, not for off"),
        ("sock", {"cert": CERT, "key": KEY}, "are for HOST:PORT, not for sock"),
        ("localhost:1", {"cert": CERT}, "--http-key is missing"),
        ("localhost:1", {"key": KEY}, "--http-cert is missing"),
        ("localhost:1", {"cert": CERT, "key": KEY, "insecure": True}, "without TLS; leave it out"),
    ],
)
def test_what_cannot_be_is_said(said: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ExposureError, match=words):
        read_exposure(said, **options)
