"""The addresses that HTTP is served on, as configured, and whether serving them is safe enough.

    off            nowhere
    sock           on `http.sock` beside the control socket, with that socket's rights
    HOST:PORT      there, and on `http.sock` too

A request over TCP needs a token. Off loopback others could read it on its way, so TLS is required
there, unless the configuration explicitly says otherwise.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from protocol.problem import quoted

OFF, SOCK = "off", "sock"
FORMS = "off, sock or HOST:PORT"

_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class ExposureError(ValueError):
    """An exposure that is refused; the text says what would be right."""


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """The listening addresses; `http.sock` always is one."""

    host: str | None = None
    """A name, or an address without brackets; None: no TCP."""
    port: int = 0
    """0 for any free port."""
    cert: Path | None = None
    key: Path | None = None
    origins: frozenset[str] = frozenset()
    """Origins of pages that may use it over TCP, beside its own."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host is None or is_loopback(self.host)

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in (self.host or "") else self.host
        return f"{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Tell whether a host is surely this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_origin(said: str) -> str:
    origin = said.lower()
    if _ORIGIN.fullmatch(origin) is None:
        words = (
            f"{quoted(said)} is not an origin such as https://example.org or http://localhost:3000"
        )
        raise ExposureError(words)
    return origin


def read_exposure(
    said: str,
    cert: Path | None = None,
    key: Path | None = None,
    *,
    insecure: bool = False,
    origins: Iterable[str] = (),
) -> Exposure | None:
    """Return where to listen, None for nowhere; raises `ExposureError`."""
    if said in (OFF, SOCK):
        if cert or key or insecure:
            words = f"--http-cert, --http-key and --http-insecure are for HOST:PORT, not for {said}"
            raise ExposureError(words)
        return None if said == OFF else Exposure()
    host, port = _host_and_port(said)
    if (cert is None) != (key is None):
        missing = "--http-key" if key is None else "--http-cert"
        raise ExposureError(f"TLS takes a certificate and its key: {missing} is missing")
    if cert is not None and insecure:
        raise ExposureError("--http-insecure is for an address without TLS; leave it out")
    exposure = Exposure(host=host, port=port, cert=cert, key=key, origins=frozenset(origins))
    if cert is None and not insecure and not exposure.is_loopback:
        words = (
            f"others could read tokens on their way to {said}: give --http-cert and --http-key,"
            " or listen on 127.0.0.1; --http-insecure if something else keeps it from them"
        )
        raise ExposureError(words)
    return exposure


def _host_and_port(said: str) -> tuple[str, int]:
    host, colon, port = said.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        good = _is_address(host, 6)
    else:
        good = _is_address(host, 4) or (
            _NAME.fullmatch(host) is not None and not host.replace(".", "").isdigit()
        )
    if not colon or not good:
        words = f"{quoted(said)} is none of {FORMS}, such as 127.0.0.1:8080 or [::1]:8080"
        raise ExposureError(words)
    if re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535:  # noqa: PLR2004
        raise ExposureError(f"{quoted(said)} has no port from 0 to 65535 behind the colon")
    return host, int(port)


def _is_address(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False
