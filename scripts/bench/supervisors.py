"""The other supervisors that are measured, and the births and deaths of what supervisors run.

Each runs with its defaults, except for what keeps it to itself (sockets, folders) and for the two
seconds that a stop may take, which all of them can be told. Each process that it runs connects to a
socket: a connection is a birth, its end is a death.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from scripts.bench import peers
from scripts.bench.rows import CIRCUS, S6, SUPERVISORD
from scripts.bench.workshop import Workshop

ENDS_WITHIN_S: Final = 15.0
BORN_WITHIN_S: Final = 30.0
PEER: Final = struct.Struct("3i")
"""What SO_PEERCRED says: pid, uid, gid."""


class Births:
    """A socket to connect to, and what was seen there; times are monotonic (s)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pids: list[int] = []
        """Of all that ever came."""
        self.alive: dict[socket.socket, int] = {}
        """The pids of those whose connection is open: they live, so that each number is theirs."""
        self.last_s = 0.0
        """When the last one came."""
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Kill what was left behind; what only comes now finds nobody, and ends."""
        self.watch(0.0)
        for connection, pid in self.alive.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            connection.close()
        self._listener.close()
        self._selector.close()

    def wait_for(self, number: int) -> None:
        """Wait until so many processes have come; raises `TimeoutError`."""
        if not self.until(lambda: len(self.pids) >= number, BORN_WITHIN_S):
            raise TimeoutError(f"only {len(self.pids)} of {number} processes came")

    def watch(self, seconds: float) -> None:
        """Watch for so long."""
        self.until(lambda: False, seconds)

    def until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Watch until something holds or the time is over; return whether it holds."""
        end = time.monotonic() + within_s
        while True:
            while self._look(0):
                pass
            if holds():
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._look(left)

    def _look(self, within_s: float) -> bool:
        found = self._selector.select(within_s)
        now = time.monotonic()
        for key, _ in found:
            if key.fileobj is self._listener:
                connection, _ = self._listener.accept()
                said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
                self.alive[connection] = PEER.unpack(said)[0]
                self.pids.append(self.alive[connection])
                self.last_s = now
                self._selector.register(connection, selectors.EVENT_READ)
            else:
                assert isinstance(key.fileobj, socket.socket)
                self._selector.unregister(key.fileobj)
                del self.alive[key.fileobj]
                key.fileobj.close()
        return bool(found)


def supervisord(folder: Path, commands: Mapping[str, str]) -> list[str]:
    """http://supervisord.org: write its configuration; return what runs it in the foreground."""
    text = f"""
[unix_http_server]
file={folder}/s
[supervisord]
logfile={folder}/log
pidfile={folder}/pid
childlogdir={folder}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/s
"""
    for name, command in commands.items():
        text += f"[program:{name}]\ncommand={command}\nstopwaitsecs=2\n"
    (folder / "conf").write_text(text)
    return ["supervisord", "-n", "-c", "conf"]


def circus(folder: Path, commands: Mapping[str, str]) -> list[str]:
    """https://circus.readthedocs.io: its sockets are files too."""
    text = f"""
[circus]
endpoint = ipc://{folder}/e
pubsub_endpoint = ipc://{folder}/p
statsd = False
"""
    for name, command in commands.items():
        text += f"[watcher:{name}]\ncmd = {command}\ngraceful_timeout = 2\ncopy_env = True\n"
    (folder / "conf").write_text(text)
    return ["circusd", "conf"]


def s6(folder: Path, commands: Mapping[str, str]) -> list[str]:
    """https://skarnet.org/software/s6, without a logger, which is not its default."""
    for name, command in commands.items():
        service = folder / "scan" / name
        service.mkdir(parents=True)
        (service / "run").write_text(f"#!/bin/sh\nexec {command}\n")
        (service / "run").chmod(0o755)
        (service / "timeout-kill").write_text("2000\n")
    return ["s6-svscan", "-c", "200", str(folder / "scan")]


CONFIGURE: Final = {
    SUPERVISORD: ("supervisor", supervisord),
    CIRCUS: ("circus", circus),
    S6: (peers.S6, s6),
}
"""The package of each, and what configures it."""


class Running(NamedTuple):
    """A supervisor that runs, and what was born of it."""

    process: subprocess.Popen[bytes]
    started_s: float
    births: Births


@contextmanager
def under(workshop: Workshop, supervisor: str, names: list[str]) -> Iterator[Running]:
    """Run a supervisor of a native program around the block; nothing of it is left afterwards."""
    package, configure = CONFIGURE[supervisor]
    folder = workshop.new_folder()
    births, native = Births(folder / "births"), workshop.compiled("native")
    commands = {name: shlex.join([native, name, str(births.path)]) for name in names}
    program, *words = configure(folder, commands)
    installed = peers.program(package, program, workshop.installed)
    started_s = time.monotonic()
    with (folder / "stderr").open("wb") as log:
        process = subprocess.Popen(
            [str(installed) if installed.exists() else program, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Running(process, started_s, births)
    finally:
        # Helpers go before the programs, or they would start them again.
        helpers = [helper for helper in family(process.pid) if helper.pid not in births.pids]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN_S)
        for helper in helpers:
            with suppress(psutil.NoSuchProcess):
                helper.kill()
        process.wait()
        births.close()


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; none if it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
