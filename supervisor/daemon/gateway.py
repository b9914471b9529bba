"""The gateway, which serves HTTP in a process of its own: the daemon's side of it.

    listening sockets --by number--> python -m supervisor.edge.http --> control socket --> daemon

The daemon opens the sockets and keeps them, so a gateway that dies refuses nobody: the kernel has
those that come meanwhile wait for the next one. It is supervised by what supervises modules, as a
fleet of one: it answers `health` on its stdout, ends when its stdin does, and has limits, restarts
and a log. It is none of the daemon's modules, and its name is one that no descriptor may have.

It is stopped after the modules: by then everything that was asked has an answer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import structlog
import trio

from protocol.amcp_errors import error_of
from protocol.descriptor.model import (
    Backoff,
    Descriptor,
    HealthChecks,
    Kind,
    Limits,
    Supervision,
    Timeouts,
    Transport,
)
from protocol.errors import Failure
from protocol.frames import encode
from supervisor.faces import control_socket
from supervisor.faces.control_socket import ENDING, SocketPathError, stop_listening
from supervisor.kernel.kernel import Kernel
from supervisor.policy.findings import Found
from supervisor.policy.http_exposure import Exposure
from supervisor.policy.lifecycle import SERVES, State
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.threads import Threads

NAME = "supervisor/http"
SOCKET_NAME = "http.sock"

BACKLOG = 512
"""So many clients wait for a gateway that is just being started; more than may be at once."""

FREED_WITHIN_S = 1.0
"""How long an address may still be in use: the gateway of a killed daemon ends a moment later."""
LOOK_S = 0.02

MEMORY_LOOK_S = 2.0
"""The gateway bounds what it holds for clients (`edge.http.room`), so its memory grows slowly."""

SUPERVISION = Supervision(
    backoff=Backoff(initial_s=0.1, max_s=5.0),
    retry_failed_s=30.0,
    # A stopped one is replaced within 20 s, and one that is busy with 10,000 clients is not.
    health=HealthChecks(interval_s=3.0, failures=3),
    timeouts=Timeouts(start_s=20.0, health_s=3.0, exit_s=5.0),
    limits=Limits(memory_bytes=512 << 20),
)

log = structlog.get_logger()


class Listeners(msgspec.Struct, frozen=True):
    sockets: tuple[socket.socket, ...]
    address: str
    """The URL that is served over TCP, or the path of the Unix socket."""
    exposure: Exposure
    """With the port that was taken."""


@contextlib.contextmanager
def listening(exposure: Exposure, control: Path) -> Iterator[Listeners]:
    """Listen on `http.sock` beside the control socket, and where `exposure` says.

    Raises `SocketTakenError` and `SocketPathError`.
    """
    path = control.with_name(SOCKET_NAME)
    with control_socket.listening(path, refuse) as unix:
        unix.listen(BACKLOG)
        if exposure.host is None:
            yield Listeners((unix,), str(path), exposure)
            return
        _check_tls(exposure)
        with _tcp(exposure) as tcp:
            exposure = msgspec.structs.replace(exposure, port=tcp.getsockname()[1])
            scheme = "http" if exposure.cert is None else "https"
            yield Listeners((unix, tcp), f"{scheme}://{exposure.address}", exposure)


def refuse(descriptor: int, failure: Failure) -> None:
    """Refuse a client that no gateway serves."""
    body = encode(error_of(failure).body())
    head = (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with contextlib.suppress(OSError):
        os.write(descriptor, head + body)


def command(listeners: Listeners, control: Path, *more: str) -> tuple[str, ...]:
    """Return the command of a gateway that inherits the listening sockets."""
    exposure = listeners.exposure
    words = [sys.executable, "-P", "-m", "supervisor.edge.http", "--socket", str(control)]
    for one in listeners.sockets:
        words += ["--listener", str(one.fileno())]
    if exposure.host is not None:
        words += ["--http", exposure.address]
    if exposure.cert is not None:
        words += ["--http-cert", str(exposure.cert), "--http-key", str(exposure.key)]
    elif not exposure.is_loopback:
        words.append("--http-insecure")
    for origin in sorted(exposure.origins):
        words += ["--http-origin", origin]
    return (*words, *more)


class Gateway:
    def __init__(self, daemon: Kernel, listeners: Listeners, control: Path) -> None:
        self.decided = trio.Event()
        """Set when it serves, or has failed to for the first time, or is not wanted any more."""
        self._daemon = daemon
        self._listeners = listeners
        transport = Transport(
            command=command(listeners, control, "--supervised"), cwd="/", pass_env=("PYTHONPATH?",)
        )
        self._descriptor = Descriptor(
            name=NAME,
            kind=Kind.TOOL,
            transport=transport,
            supervision=SUPERVISION,
            source=NAME,
            folder="/",
            digest="",
        )

    async def run(self) -> None:
        """Run it until the daemon has stopped its modules; returns when it is gone."""
        facts, listeners = self._daemon.facts, self._listeners.sockets
        host = Host(
            os.environ,
            facts.log_files,
            facts.registry,
            memory_look_s=MEMORY_LOOK_S,
            inherited=tuple(one.fileno() for one in listeners),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.deadlines.run)
            nursery.start_soon(host.sampler.run)
            fleet = Fleet(host, nursery)
            fleet.admit(Found((self._descriptor,), ()))
            facts.gateway = fleet.modules[NAME]
            nursery.start_soon(self._decide, fleet)
            await self._daemon.wait_ending()
            self.decided.set()
            await self._daemon.wait_fleet_stopped()
            await fleet.stop()
            for one in listeners:
                stop_listening(one, refuse, ENDING)
            nursery.cancel_scope.cancel()

    async def _decide(self, fleet: Fleet) -> None:
        module = fleet.modules[NAME]
        decided = SERVES | {State.BACKOFF, State.FAILED}
        await fleet.wait_until(lambda: module.state in decided or None)
        if module.state not in SERVES:
            log.error("HTTP is not served", words=module.last_exit and module.last_exit.words)
        self.decided.set()


def _tcp(exposure: Exposure) -> socket.socket:
    where = f"cannot listen on {exposure.address}"
    try:
        found = socket.getaddrinfo(
            exposure.host, exposure.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise SocketPathError(f"{where}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    until = time.monotonic() + FREED_WITHIN_S
    while True:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            if in_use and time.monotonic() < until:
                time.sleep(LOOK_S)
                continue
            listener.close()
            hint = "; name another port, or end the program that has it" if in_use else ""
            raise SocketPathError(f"{where}: {error.strerror}{hint}") from None
        return listener


def _check_tls(exposure: Exposure) -> None:
    """Load certificate and key, as the gateway will; raises `SocketPathError`."""
    if exposure.cert is None:
        return
    # Only here: it takes 3 MB.
    import ssl  # noqa: PLC0415

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        load = partial(context.load_cert_chain, exposure.cert, exposure.key)
        Threads().look_at(exposure.cert, load)
    except (OSError, ssl.SSLError) as error:
        words = f"--http-cert {exposure.cert} and --http-key {exposure.key}: {error}"
        raise SocketPathError(words) from None
