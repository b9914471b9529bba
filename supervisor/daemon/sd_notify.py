"""Report the daemon's state to the service manager: sd_notify(3), written out.

A message is a datagram of `KEY=value` lines to the socket that $NOTIFY_SOCKET names. The manager
may be slow, gone or broken, and the daemon neither waits nor fails for that: a state that cannot be
sent now is sent again later, a sign of life is dropped. The STATUS line says how many modules are
ready, and which are unhealthy.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import MutableMapping

import structlog
import trio

from supervisor.kernel.kernel import Kernel
from supervisor.policy.lifecycle import SERVES, State
from supervisor.runtime.supervision.fleet import Fleet

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

RETRY_S = 0.5
"""How long to wait before a state is sent again to a manager whose queue was full."""

STATUS_CHARS = 300

_USEC_PER_S = 1_000_000

log = structlog.get_logger()


class Notifier:
    """A service manager, or none; every method may be called either way."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        """`address` is a path, or an abstract name after a NUL.

        `watchdog_s` is how long the manager waits for a sign of life before it kills the daemon.
        """
        self._address = address
        self._watchdog_s = watchdog_s
        self._unsent: dict[str, str] = {}
        self._full = trio.Event()
        self._complained = False
        # Made now: a daemon that has run out of file descriptors must still give its sign of life.
        self._socket = None if address is None else _datagram_socket()

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Notifier:
        """Read the manager's variables, and remove them: they are not meant for modules."""
        address, usec, pid = (environment.pop(name, None) for name in VARIABLES)
        return cls(_socket_address(address), _watchdog_s(usec, pid))

    @property
    def listens(self) -> bool:
        return self._socket is not None

    def ready(self) -> None:
        """Say that the daemon serves; after `reloading`, that this is done."""
        self._say("state", "READY=1")

    def reloading(self) -> None:
        """Say that the configuration is being read again; `ready` ends that."""
        # The stamp lets the manager tell this reload from one that it has not asked for.
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._say("state", f"RELOADING=1\nMONOTONIC_USEC={usec}")

    def stopping(self) -> None:
        self._say("state", "STOPPING=1")

    def status(self, text: str) -> None:
        self._say("status", "STATUS=" + " ".join(text.split())[:STATUS_CHARS])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def run(self) -> None:
        """Give signs of life at half of the watchdog's time, and send again what failed.

        This runs in the event loop on purpose: a daemon whose loop is stuck is a dead one.
        """
        while True:
            if self._watchdog_s is not None:
                self._send("WATCHDOG=1")
            await self._pause(math.inf if self._watchdog_s is None else self._watchdog_s / 2)

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while True:
                await self._full.wait()
                await trio.sleep(RETRY_S)
                self._say_again()
        self._say_again()  # the pause may be too short for a retry of its own

    def _say_again(self) -> None:
        for about, message in list(self._unsent.items()):
            self._say(about, message)

    def _say(self, about: str, message: str) -> None:
        # Only the last about each counts: STOPPING makes a READY that was not heard pointless.
        self._unsent.pop(about, None)
        if not self._send(message):
            self._unsent[about] = message
        if self._unsent:
            self._full.set()
        elif self._full.is_set():
            self._full = trio.Event()

    def _send(self, message: str) -> bool:
        """Send a message; returns False if a retry is worthwhile."""
        if self._socket is None or self._address is None:
            return True
        try:
            self._socket.sendto(message.encode(errors="replace"), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._complained:
                self._complained = True
                words = os.strerror(error.errno or 0)
                log.warning("the service manager cannot be told", message=message, words=words)
        return True


def _datagram_socket() -> socket.socket | None:
    try:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    except OSError as error:
        log.warning("the service manager cannot be told", words=os.strerror(error.errno or 0))
        return None
    made.setblocking(False)  # noqa: FBT003 - it takes no keyword
    return made


def _socket_address(named: str | None) -> str | None:
    if not named:
        return None
    if named.startswith("@") and len(named) > 1:
        return "\0" + named[1:]  # an abstract name: unix(7) writes its first byte as NUL
    if named.startswith("/"):
        return named
    log.warning("NOTIFY_SOCKET is neither a path nor an abstract name", value=named)
    return None


def _watchdog_s(usec: str | None, pid: str | None) -> float | None:
    # The variables may have been meant for a process that started us (sd_watchdog_enabled(3)).
    if not usec or (pid and pid != str(os.getpid())):
        return None
    if usec.isascii() and usec.isdigit() and int(usec) > 0:
        return int(usec) / _USEC_PER_S
    log.warning("WATCHDOG_USEC is not a number above 0", value=usec)
    return None


NAMED = 5
"""How many unhealthy modules the line names."""

_UNWELL = frozenset({State.BACKOFF, State.FAILED, State.DEGRADED})


async def tell_status(daemon: Kernel, notifier: Notifier) -> None:
    """Report the state of the fleet after each change, until cancelled."""
    said = ""

    def news() -> str | None:
        line = status_line(daemon.fleet)
        return line if line != said else None

    # Nobody listening is the common case; the line is not made for nobody.
    while notifier.listens:
        said = await daemon.fleet.wait_until(news)
        notifier.status(said)


def status_line(fleet: Fleet) -> str:
    modules = [one for one in fleet.modules.values() if one.descriptor.enabled]
    serving = sum(module.state in SERVES for module in modules)
    parts = [f"{serving} of {len(modules)} modules ready"]
    unwell = [f"{one.name} is {one.state.words}" for one in modules if one.state in _UNWELL]
    parts += unwell[:NAMED]
    if len(unwell) > NAMED:
        parts.append(f"{len(unwell) - NAMED} more are not well")
    if fleet.quarantined:
        parts.append(f"{len(fleet.quarantined)} quarantined")
    return "; ".join(parts)
