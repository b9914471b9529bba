"""What a supervisor is asked for here, and a program that it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import psutil

WITHIN_S = 60.0
"""No command of any of them takes so long; one that does is counted as not ending."""


class Program(Protocol):
    """Something to run."""

    @property
    def name(self) -> str:
        """Return what it is called."""
        ...

    @property
    def whole_group(self) -> bool:
        """Return whether a stop is to reach its whole process group."""
        ...

    def command(self, births: Path) -> list[str]:
        """Return its command; `births` is the socket it connects to."""
        ...


class Death(NamedTuple):
    """What a supervisor still says of how a process ended."""

    exit_code: int | None = None
    signal: int | None = None


class Supervisor(ABC):
    """A running supervisor in a folder of its own."""

    name: ClassVar[str]

    def __init__(self, folder: Path, births: Path, programs: Sequence[Program]) -> None:
        self.folder, self.births = folder, births
        self.helpers: list[psutil.Process] = []
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
                env=self.environment(),
                start_new_session=True,
            )
        os.close(writing)

    @classmethod
    @abstractmethod
    def version(cls) -> str | None:
        """Return its version, or None where it is not installed."""

    @abstractmethod
    def configure(self, programs: Sequence[Program]) -> None:
        """Write what it reads."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that runs it in the foreground."""

    @abstractmethod
    def stop(self, name: str) -> list[str]:
        """Return the command that stops a program."""

    @abstractmethod
    def gave_up(self, name: str) -> bool:
        """Whether it says that it will not try again for now."""

    @abstractmethod
    def death(self, name: str) -> Death:
        """Return what it still knows of the last death of a program."""

    def environment(self) -> dict[str, str]:
        """Return what it runs in."""
        return dict(os.environ)

    def run(self, command: list[str]) -> str:
        """Run a command of its own to the end and return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        return done.stdout + done.stderr

    def end(self) -> None:
        """End it as its manual says; whoever does not obey is killed. Its children are not ours."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WITHIN_S / 4)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self.unread)
