"""A real daemon for a test: started in a folder of its own, spoken with, ended, and looked after.

After each test nothing of the daemon may be left: all its processes have inherited a variable that
names it, whatever group, session or parent they have now.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import journals
from tests.bounds import until
from tests.system import descriptors, forked
from tests.system.client import Answer, Client
from tests.system.liveness import BOUND_S

MARKER = "XDG_STDIOD_TEST"
"""Names a daemon in the environment of its modules, which get all XDG_ variables."""

GONE_WITHIN_S = 60.0
"""A killed process that nobody waits for takes a moment to be gone."""

TRIES = 50
"""How often a module that is being replaced is asked again; `wait` blocks between two tries."""

SHORT_BOUNDS = ("timeout/silence", "timeout/exit_deadline")
"""Where a test has these run out, they do so by themselves when the machine is slow."""


class Daemon:
    """A daemon process, and one connection to it."""

    def __init__(
        self,
        folder: Path,
        *documents: dict[str, Any],
        environment: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        wait: bool = True,
        anew: bool = False,
        within: tuple[str, ...] = (),
    ) -> None:
        """Start it with these descriptors; with `wait`, all eager modules have a verdict then.

        With `anew` it is not forked (`start`). `within` is a command that runs another one.
        """
        self.folder = folder
        self.modules = folder / "modules"
        self.socket = folder / "socket"
        self.data_dir = folder / "data"
        self.marker = uuid.uuid4().hex
        descriptors.write(self.modules, *documents)
        self.log_path = folder / f"daemon-{self.marker}.log"
        with self.log_path.open("wb") as log:
            self.process, ready = start(
                [*within, *command(self.modules, self.socket, self.data_dir, *options)],
                {**os.environ, **(environment or {}), MARKER: self.marker},
                log.fileno(),
                anew=anew,
            )
        try:
            assert ready, self.log_path.read_text()
            self.client = Client(self.socket)
            if wait:
                self.op("wait", **{"for": "verdict"})
        except BaseException:  # nobody else can end it
            self.process.kill()
            self.process.wait()
            self.kill_left()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # pytest shows this only of a test that failed.
        try:
            self.end()
        finally:
            sys.stdout.write(self.log())

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it as an operator would, and make sure that nothing of it is left."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        try:
            self.wait_ended()
        finally:
            self.client.close()
        self.assert_nothing_left()
        journals.check_all(self.data_dir)

    def wait_ended(self) -> None:
        """Wait for its end, which must be an orderly one."""
        try:
            status = self.process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.kill_left()
            raise
        assert status == 0, f"the daemon ended with {status}"

    def assert_nothing_left(self) -> None:
        """Fail if a process of its modules still runs."""
        left = self.kill_left()
        assert not left, f"left behind: {left}"
        log = self.log()
        assert '"level": "error"' not in log
        assert "was never awaited" not in log

    def kill_left(self) -> dict[int, str]:
        """Kill what outlived it, and return what that was."""
        left: dict[int, str] = {}
        for pid in marked(self.marker):
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    gone, _, _ = select.select([pidfd], [], [], GONE_WITHIN_S)
                    if not gone:
                        left[pid] = words
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                except FileNotFoundError:
                    pass
                finally:
                    os.close(pidfd)
        return left

    def log(self) -> str:
        """Return what it logged."""
        return self.log_path.read_text()

    # What a client asks.

    def connect(self) -> Client:
        """Return another connection."""
        return Client(self.socket)

    def invoke(
        self, module: str, op: str = "go", /, timeout_s: float = BOUND_S, **args: Any
    ) -> Answer:
        """Invoke a module and wait."""
        return self.client.invoke(module, op, timeout_s, **args)

    def op(self, op: str, **args: Any) -> Any:
        """Run one of the daemon's own operations; it must succeed."""
        return self.client.op(op, **args).result

    def status(self, module: str) -> dict[str, Any]:
        """Return the status of a module."""
        status: dict[str, Any] = self.op("status", module=module)
        return status

    def pid(self, module: str) -> int:
        """Return the pid of a persistent module's process."""
        (instance,) = self.status(module)["instances"]
        pid: int = instance["pid"]
        return pid

    def usable(self, module: str) -> Answer:
        """Wait until a module serves again, however many times it is replaced until then."""
        self.op("wait", modules=[module])
        answer = self.invoke(module)
        for _ in range(TRIES):
            if answer.ok:
                break
            known = answer.error["code"] == "unreachable" or answer.verdict in SHORT_BOUNDS
            assert known, answer
            self.op("wait", modules=[module])
            answer = self.invoke(module)
        assert answer.ok, answer
        return answer

    def wait_state(self, module: str, state: str) -> None:
        """Return once a module has been in a state, as its own log tells."""
        with self.connect() as follower:
            args = {"module": module, "follow": True}
            follower.send("supervisor", "invoke", {"op": "logs", "args": args})
            for event in follower.lines(f"{module} being {state}"):
                if f"-> {state}:" in event["message"]:
                    return

    # What the kernel says of it.

    def open_files(self) -> int:
        """Return how many descriptors it has open, but for a log that is being written."""
        number = 0
        for descriptor in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                number += not descriptor.readlink().is_relative_to(self.data_dir)
        return number

    def wait_open_files(self, most: int) -> None:
        """Wait until it has no more descriptors open than it had before what a test did.

        The end of a connection reaches it some time after the other side has closed it, also when
        that is its own gateway; and for a moment it looks at /proc for who connects.
        """
        until(
            lambda: self.open_files() <= most,
            f"the daemon having no more than the {most} descriptors open that it had before",
        )

    def processes(self) -> list[int]:
        """Return the pids of its modules' processes, grandchildren included."""
        return [pid for pid in marked(self.marker) if pid != self.process.pid]

    def peak_bytes(self) -> int:
        """Return the most memory that it ever had (VmHWM)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(line)


@contextlib.contextmanager
def shared(*documents: dict[str, Any], **options: Any) -> Iterator[Daemon]:
    """Run a daemon for the tests of one file."""
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-") as folder,
        Daemon(Path(folder), *documents, **options) as daemon,
    ):
        yield daemon


def command(modules: Path, socket: Path, data_dir: Path, *options: str) -> list[str]:
    """Return the command that runs a daemon."""
    where = ["--socket", str(socket), "--data-dir", str(data_dir), "--http", "off"]
    run = [sys.executable, "-m", "supervisor.cli", "run", str(modules)]
    return [*run, *where, "--log-format", "json", *options]


def start(
    words: list[str],
    environment: Mapping[str, str],
    log: int,
    *,
    session: bool = False,
    anew: bool = False,
) -> tuple[subprocess.Popen[bytes], bool]:
    """Start a daemon; returns it, and whether it got ready (if not, it has ended).

    `session` is whether it leads a session of its own. It is forked if that makes no difference
    (tests/system/forked.py); with `anew`, never.
    """
    reading, writing = os.pipe()
    words = [*words, "--ready-fd", str(writing)]
    process: subprocess.Popen[bytes] | None = None
    if not anew:
        process = forked.fork(words, environment, log, writing, session=session)
    if process is None:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=[writing],
            start_new_session=session,
        )
    os.close(writing)
    with os.fdopen(reading, "rb") as ready:
        readable, _, _ = select.select([ready], [], [], BOUND_S)
        said = ready.read() if readable else b""
    return process, said == b"ready\n"


def marked(marker: str) -> list[int]:
    """Return the processes that have a daemon's marker in their environment."""
    needle = f"{MARKER}={marker}".encode()
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if needle in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found
