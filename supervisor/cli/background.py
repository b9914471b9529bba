"""Start a daemon in the background: its own session, a log file, and a pipe for readiness.

The daemon holds the writing end of the pipe and writes `ready` once clients can connect. The end of
the pipe without that word means that the daemon has ended, and its log says why.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from supervisor.cli.exit_status import NO, NoDaemonError, NoError, remark
from supervisor.cli.lock_file import lock_holder
from supervisor.cli.project import daemons_project
from supervisor.daemon.inherited import mend_umask
from supervisor.daemon.log_stream import PID_FIELD
from supervisor.policy.verdict import signal_name
from supervisor.runtime.files.lock_file import open_lock
from supervisor.runtime.threads import Threads

LOG_NAME = "stdiod.log"
LISTEN_S = 30.0
"""How long a daemon may take to listen: it reads the descriptors first."""

EXIT_S = 5.0
"""How long a daemon may take to end after it closed the pipe, or after SIGTERM."""

TRY_S = 0.05
"""Between two attempts to lock a file."""

_TAIL_BYTES = 1 << 16
_TAIL_LINES = 15
_PROGRAM = Path(__file__).with_name("__main__.py")


def own_program() -> str:
    """Return the absolute path of `stdiod`; raises `NoError`."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which("stdiod", path=beside) or shutil.which("stdiod")
    if program is None:
        raise NoError("there is no program `stdiod` beside this Python, and none in PATH")
    return program


def place(socket: Path, data_dir: Path, config: Path | None) -> list[str]:
    """Return the options that name a daemon's place, project and configuration."""
    words = ["--socket", str(socket), "--data-dir", str(data_dir), "--log-format", "json"]
    project = daemons_project()
    if project is not None:
        words += ["--project", str(project.folder)]
    if config is not None:
        words += ["--config", str(config)]
    return words


@contextlib.contextmanager
def alone(socket: Path, most_s: float = LISTEN_S + EXIT_S) -> Iterator[None]:
    """Let one client start a daemon at a time: an MCP client starts all its servers at once.

    Raises `NoDaemonError` if another one takes longer than that.
    """
    path = socket.with_name(f"{socket.name}.starting")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_lock(path)
    except OSError as error:
        words = f"no daemon can be started for {socket}: {error.strerror or error}"
        raise NoDaemonError(words) from None
    ends_at = time.monotonic() + most_s
    try:
        while not _locked(descriptor):
            if time.monotonic() >= ends_at:
                words = f"pid {lock_holder(path)} has been starting a daemon for {socket} for more"
                raise NoDaemonError(f"{words} than {most_s:g} s; end it, and try again")
            time.sleep(TRY_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start(arguments: Sequence[str], data_dir: Path) -> int:
    """Start `stdiod run ARGUMENTS`; returns its pid once it listens; raises if it ends before."""
    mend_umask()
    log = _open_log(data_dir)
    began_at = log.stat().st_size
    reading, writing = os.pipe()
    try:
        try:
            process = _spawn(arguments, log, writing)
        finally:
            os.close(writing)
        with _ended_if_interrupted(process):
            said = _read(reading)
    finally:
        os.close(reading)
    if not said:
        _give_up(process, log, began_at, timed_out=said is None)
    # The daemon outlives this process: Popen would complain that nothing waits for it.
    process.returncode = 0
    return process.pid


def _open_log(data_dir: Path) -> Path:
    log = data_dir / LOG_NAME

    def make() -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.touch(mode=0o600)

    try:
        Threads().look_at(log, make)
    except OSError as error:
        words = f"the log {log} cannot be written: {error.strerror or error}"
        raise click.UsageError(words) from None
    return log


def _spawn(arguments: Sequence[str], log: Path, writing: int) -> subprocess.Popen[bytes]:
    hidden = ("--log-file", str(log), "--ready-fd", str(writing))
    with log.open("ab") as output:
        return subprocess.Popen(
            # -P, and a path in the place of -m: nothing is imported from the working directory.
            [sys.executable, "-P", str(_PROGRAM), "run", *hidden, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # so that no file system is kept from being unmounted
            pass_fds=(writing,),
            start_new_session=True,
        )


@contextlib.contextmanager
def _ended_if_interrupted(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    # Ctrl-C or any other exception: nothing else would end this daemon.
    except BaseException:
        _end(process)
        raise


def _read(descriptor: int) -> bytes | None:
    """Return the bytes written, b"" for the end of the pipe, None after `LISTEN_S`."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return os.read(descriptor, 64) if poll.poll(LISTEN_S * 1000) else None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(EXIT_S)


def _give_up(
    process: subprocess.Popen[bytes], log: Path, began_at: int, *, timed_out: bool
) -> NoReturn:
    if timed_out:
        _end(process)
        words = "the daemon did not listen in time and was ended"
        raise NoError(f"{words}; its log, {log}, ends with\n{_tail(log, began_at, process.pid)}")
    try:
        status = process.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise NoError(f"the daemon neither listened nor ended; its log is {log}") from None
    tail = _tail(log, began_at, process.pid)
    how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
    remark(f"the daemon {how} before it listened\n{tail}")
    raise click.exceptions.Exit(status if status > 0 else NO)


def _tail(log: Path, began_at: int, pid: int) -> str:
    """Return the last log lines of this daemon, for people."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(began_at, size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    own = [words for line in lines if (words := _readable(line, pid)) is not None]
    return "\n".join(f"  {words}" for words in own[-_TAIL_LINES:]) or "  (nothing)"


def _readable(line: str, pid: int) -> str | None:
    """Return a line of the JSON log as text, any other line as it is, None for another daemon's."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return line.removeprefix("stdiod: ")
    if entry.pop(PID_FIELD, pid) != pid:
        return None
    words = str(entry.pop("event", ""))
    level = str(entry.pop("level", "info"))
    entry.pop("timestamp", None)
    return " ".join([level.ljust(7), words, *(f"{key}={value}" for key, value in entry.items())])
