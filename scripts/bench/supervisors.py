"""The other supervisors that are measured: how each is told what to run, and who lives of that.

Each runs with its defaults, except for what keeps it to itself (sockets, folders) and for the two
seconds that a stop may take, which all of them can be told. Each process that it runs connects to a
socket: a connection is a birth, its end is a death.
"""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import psutil

from scripts.bench import peers

ENDS_WITHIN_S: Final = 15.0
BORN_WITHIN_S: Final = 30.0
STARTED_WITHIN_S: Final = 1.25
"""For those that were just being started when their supervisor ended."""


@dataclass
class Life:
    """A process that was here; times are monotonic (s)."""

    pid: int
    pidfd: int
    born_s: float
    is_over: bool = False


class Births:
    """A socket to connect to, and what was seen there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lives: list[Life] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Kill what was left behind, by its own descriptor: a number may be someone else's."""
        self.watch(0.0)
        for life in self.lives:
            with suppress(OSError):
                signal.pidfd_send_signal(life.pidfd, signal.SIGKILL)
            os.close(life.pidfd)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def alive(self) -> list[Life]:
        """Return those that live."""
        return [life for life in self.lives if not life.is_over]

    def wait_for(self, number: int) -> None:
        """Wait until so many processes were born; raises `TimeoutError`."""
        if not self.until(lambda: len(self.lives) >= number, BORN_WITHIN_S):
            raise TimeoutError(f"only {len(self.lives)} of {number} processes came")

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
            assert isinstance(key.fileobj, socket.socket)
            if key.fileobj is self._listener:
                connection, _ = self._listener.accept()
                with connection.makefile("rb") as first:
                    _, pid = first.readline().split()
                life = _life(int(pid), now)
                self.lives.append(life)
                self._selector.register(connection, selectors.EVENT_READ, life)
            else:
                key.data.is_over = True
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
        return bool(found)


def _life(pid: int, now: float) -> Life:
    try:
        return Life(pid, os.pidfd_open(pid), now)
    except ProcessLookupError:
        # It is gone already; that it was born still counts.
        return Life(pid, os.open("/dev/null", os.O_RDONLY), now, is_over=True)


class Supervisor(ABC):
    """A running supervisor in a folder of its own."""

    name: ClassVar[str]

    def __init__(self, folder: Path, installed: Path, programs: Mapping[str, str]) -> None:
        """Run it; `programs` are command lines by name."""
        self.folder, self.installed = folder, installed
        self.configure(programs)
        # Its own stdout is a pipe that nobody reads, as under a parent that does not care.
        self.unread, writing = os.pipe()
        self.started_s = time.monotonic()
        with (folder / "stderr").open("wb") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=log,
                start_new_session=True,
            )
        os.close(writing)

    @classmethod
    def version(cls, installed: Path) -> str | None:
        """Return its version, or None where it is not installed."""
        return peers.version(cls.name, installed)

    @abstractmethod
    def configure(self, programs: Mapping[str, str]) -> None:
        """Write what it reads."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that runs it in the foreground."""

    def end(self) -> None:
        """End it as its manual says; whoever does not obey is killed. Its children are not ours."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self.unread)


class Supervisord(Supervisor):
    """http://supervisord.org."""

    name = "supervisor"

    def configure(self, programs: Mapping[str, str]) -> None:
        """Write one file."""
        text = f"""
[unix_http_server]
file={self.folder}/s
[supervisord]
logfile={self.folder}/log
pidfile={self.folder}/pid
childlogdir={self.folder}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{self.folder}/s
"""
        for name, command in programs.items():
            text += f"[program:{name}]\ncommand={command}\nstopwaitsecs=2\n"
        (self.folder / "conf").write_text(text)

    def command(self) -> list[str]:
        """Run it in the foreground."""
        return [str(peers.program(self.name, "supervisord", self.installed)), "-n", "-c", "conf"]


class Circus(Supervisor):
    """https://circus.readthedocs.io."""

    name = "circus"

    def configure(self, programs: Mapping[str, str]) -> None:
        """Write one file; its sockets are files too."""
        text = f"""
[circus]
endpoint = ipc://{self.folder}/e
pubsub_endpoint = ipc://{self.folder}/p
statsd = False
"""
        for name, command in programs.items():
            text += f"[watcher:{name}]\ncmd = {command}\ngraceful_timeout = 2\ncopy_env = True\n"
        (self.folder / "conf").write_text(text)

    def command(self) -> list[str]:
        """Run it in the foreground."""
        return [str(peers.program(self.name, "circusd", self.installed)), "conf"]


class S6(Supervisor):
    """https://skarnet.org/software/s6, without a logger, which is not its default."""

    name = "s6"

    @classmethod
    def version(cls, installed: Path) -> str | None:
        """Ask dpkg, since s6 does not say."""
        del installed
        if shutil.which("s6-svscan") is None:
            return None
        query = ["dpkg-query", "-W", "-f", "${Version}", "s6"]
        done = subprocess.run(query, capture_output=True, text=True, check=False)
        return done.stdout.strip() or "of unknown version"

    def configure(self, programs: Mapping[str, str]) -> None:
        """Make a service folder each."""
        for name, command in programs.items():
            service = self.folder / "scan" / name
            service.mkdir(parents=True)
            (service / "run").write_text(f"#!/bin/sh\nexec {command}\n")
            (service / "run").chmod(0o755)
            (service / "timeout-kill").write_text("2000\n")

    def command(self) -> list[str]:
        """Run it in the foreground, with room for all."""
        return ["s6-svscan", "-c", "200", str(self.folder / "scan")]


OTHERS: Final[dict[str, type[Supervisor]]] = {
    "supervisord": Supervisord,
    "circus": Circus,
    "s6": S6,
}
"""By the name that each has in rows."""


@contextmanager
def under(
    kind: type[Supervisor], installed: Path, program: str, names: list[str]
) -> Iterator[tuple[Supervisor, Births]]:
    """Run a supervisor of a native program around the block; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="cmp-") as folder, ExitStack() as stack:
        births = Births(Path(folder, "births"))
        stack.callback(births.close)
        commands = {name: shlex.join([program, name, str(births.path)]) for name in names}
        supervisor = kind(Path(folder), installed, commands)
        try:
            yield supervisor, births
        finally:
            # Helpers go before the programs, or they would start them again.
            helpers = family(supervisor.process.pid)
            supervisor.end()
            births.watch(0.0)
            theirs = {life.pid for life in births.lives}
            for helper in helpers:
                if helper.is_running() and helper.pid not in theirs:
                    helper.kill()
            if births.alive():
                births.watch(STARTED_WITHIN_S)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; none if it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
