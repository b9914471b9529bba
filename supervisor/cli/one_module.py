"""Run one module in this process, without a daemon: `invoke --descriptor`, `replay --module`.

The module is started, invoked once and stopped by the same code as in a daemon. The first SIGINT,
SIGTERM or SIGHUP cancels the invocation, whose answer then says so; another one stops the module at
once. A transcript is played to a process of its own for each that was recorded.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import structlog
import trio

from protocol.descriptor.loading import DescriptorError
from protocol.descriptor.model import Descriptor, Instances, Start
from protocol.errors import Reason
from protocol.events import Progress
from protocol.host_events import RegisteredAsset
from protocol.readdress import readdress
from protocol.replies import Operation
from protocol.response import Response
from protocol.transcript import Entry, Happened, Transcript, header_of
from supervisor.cli.exit_status import NoError, remark
from supervisor.cli.verbs.feeds import tell_of_replaced
from supervisor.daemon.inherited import mend_signals
from supervisor.faces.module_wire import event_line
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.local_user import this_user
from supervisor.kernel.parties import Client, Party
from supervisor.policy.findings import Found
from supervisor.policy.verdict import Exit, Stopped, telling_tail
from supervisor.runtime.containment.process_registry import holding
from supervisor.runtime.files.directory import read_descriptor
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import LogLine
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.prepare import prepare_once
from supervisor.transcripts.compare import RPC_IDS, differences, heard, recorded_lines
from supervisor.transcripts.playback import Played, play
from supervisor.transcripts.recording import Recording, TranscriptFile


def log_from(level: int) -> None:
    """Write the runtime's own log to stderr, from a level on."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a data directory that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="stdiod-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def alone(descriptor: Descriptor, **supervision: Any) -> Descriptor:
    """Return a descriptor that depends on no module and starts one process at once."""
    changed = msgspec.structs.replace(
        descriptor.supervision,
        depends_on=(),
        start=Start.EAGER,
        instances=Instances(),
        warm=0,
        **supervision,
    )
    return msgspec.structs.replace(descriptor, supervision=changed)


OnLine = Callable[[bytes], None]
OnLog = Callable[[LogLine], None]

REQUEST_ID = "c1"
"""The id that a client of a daemon would use."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def load_module(path: Path, module: str) -> Descriptor:
    """Read the descriptor of `module`; raises `EndError` or `UsageError`."""
    path = path / "module.json" if path.is_dir() else path
    try:
        descriptor = read_descriptor(path)
    except DescriptorError as error:
        raise NoError("\n".join(f"{path}: {one}" for one in error.problems)) from None
    if descriptor.name != module:
        words = f"{path} describes {descriptor.name!r}, not {module!r}; invoke it by its own name"
        raise click.UsageError(words)
    return descriptor


def invoke_here(
    descriptor: Descriptor,
    content: dict[str, Any],
    on_line: OnLine,
    on_log: OnLog,
    record: Path | None = None,
) -> tuple[dict[str, Any], bool]:
    """Run one invocation.

    Returns the response (docs/protocol.md) and whether a signal ended it. `on_line` takes each
    event as the line of a daemon, `on_log` each line of the log; the conversation goes to the file
    `record`. Raises `NoError` if that cannot be made.
    """
    # The answer reports failures of the module.
    log_from(logging.ERROR)
    with scratch_folder() as folder:
        asker = _OneCall(on_line)
        run = partial(_run, alone(descriptor), content, asker, on_log, folder, record=record)
        run_timed(run)
    assert asker.response is not None  # noqa: S101 - every invocation ends with one
    return asker.response, asker.interrupted


class _OneCall(Client):
    def __init__(self, on_line: OnLine) -> None:
        self.response: dict[str, Any] | None = None
        self.interrupted = False
        self.answered = trio.Event()
        self._on_line = on_line

    def event(self, event: Progress, line: bytes | None) -> None:
        if isinstance(event, RegisteredAsset):
            event = event.unregistered()  # no daemon will be there to serve it
        told = None if line is None else readdress(line, event.request_id, REQUEST_ID)
        self._on_line((event_line(event, REQUEST_ID) if told is None else told).rstrip(b"\n"))

    def finished(self, response: Response) -> None:
        self.response = response.document()
        self.answered.set()


async def _run(
    descriptor: Descriptor,
    content: dict[str, Any],
    asker: _OneCall,
    on_log: OnLog,
    folder: Path,
    *,
    record: Path | None,
) -> None:
    found = Found((descriptor,))
    with trio.open_signal_receiver(*ENDING_SIGNALS) as received:
        mend_signals()  # the module starts as under a daemon
        async with (
            _recorded(record, descriptor) as tap,
            Kernel(found, data_dir=folder, with_sessions=False) as daemon,
            trio.open_nursery() as nursery,
        ):
            if tap is not None:
                daemon.fleet.modules[descriptor.name].taps.attach(tap)
            log = daemon.fleet.modules[descriptor.name].log
            unfollow = log.follow(on_log)
            party = Party(this_user("cli"))
            handle = daemon.requests.begin(party, descriptor.name, Operation.INVOKE, content, asker)

            async def end_on_signals() -> None:
                async for number in received:
                    if asker.interrupted:
                        daemon.shut_down("another signal")
                    asker.interrupted = True
                    if handle is not None:
                        words = f"{signal.Signals(number).name} ended it"
                        handle.cancel(Stopped(Reason.CLIENT, words))

            nursery.start_soon(end_on_signals)
            await asker.answered.wait()
            unfollow()
            daemon.shut_down("it has answered")
            await daemon.stop_fleet()
            nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _recorded(path: Path | None, descriptor: Descriptor) -> AsyncIterator[Recording | None]:
    """Yield the recording of a file to attach to the module; raises `NoError`."""
    if path is None:
        yield None
        return
    tell_of_replaced(path)
    when = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    try:
        file = TranscriptFile(path, header_of(descriptor, when))
    except OSError as error:
        raise NoError(f"{path} cannot be written: {error.strerror}") from None
    async with file.written("the invocation is over"):
        yield file.recording
    if file.error is not None:
        # Not the end of the command: the module's answer is there.
        remark(f"the transcript is not whole: {file.error}")


STDERR_LINES = 4
"""The last lines of stderr that are shown if the process answers otherwise than recorded."""


class Compared(msgspec.Struct, frozen=True):
    """The result of a process; `diff` and `notes` are empty if nothing differs."""

    instance: str
    lines: int
    diff: list[str]
    notes: list[str]


def replay_to_module(
    transcript: Transcript, descriptor: Descriptor, ignored: Sequence[str], timeout_s: float
) -> list[Compared]:
    """Run the module once per recorded process; raises `NoError` if it cannot be started."""
    log_from(logging.ERROR)
    with scratch_folder() as folder:
        return trio.run(_replay, transcript, descriptor, ignored, timeout_s, folder)


async def _replay(
    transcript: Transcript,
    descriptor: Descriptor,
    ignored: Sequence[str],
    timeout_s: float,
    folder: Path,
) -> list[Compared]:
    compared: list[Compared] = []
    log_files = LogFiles(folder / "logs")
    try:
        async with holding(folder) as registry:
            if descriptor.transport.prepare:
                wrong = await prepare_once(descriptor, os.environ, registry, log_files)
                if wrong is not None:
                    words = f"{descriptor.name} could not be prepared: {wrong.words}"
                    raise NoError("\n".join((words, *wrong.printed)))
            for instance, entries in transcript.instances().items():
                if not any(one.event in _BEGINNINGS for one in entries):
                    continue  # it could not be started when it was recorded
                host = Host(os.environ, log_files, registry)
                played = await play(entries, descriptor, host, timeout_s=timeout_s)
                compared.append(_compare(instance, entries, played, descriptor, ignored))
    except SpawnError as error:
        raise NoError(f"{descriptor.name} could not be started: {error}") from None
    finally:
        log_files.close()
    return compared


_BEGINNINGS = (Happened.SPAWNED, Happened.ATTACHED)


def _compare(
    instance: str,
    entries: Sequence[Entry],
    played: Played,
    descriptor: Descriptor,
    ignored: Sequence[str],
) -> Compared:
    line_bytes = descriptor.supervision.limits.line_bytes
    ignored = (*ignored, *RPC_IDS) if played.has_other_ids else ignored
    recorded = recorded_lines(entries, ignored, line_bytes)
    said = [heard(line, ignored) for line in played.lines]
    notes: list[str] = []
    if played.unsent:
        notes.append(f"{played.unsent} recorded lines were not sent: no answer before them came")
    if played.overdue:
        notes.append(
            "it was stopped when the time was over, before it had printed all that was recorded"
        )
    notes += _exit_notes(entries, played.exit)
    diff = differences(recorded, said)
    if diff or notes:
        tail = telling_tail(played.exit.stderr_tail, STDERR_LINES)
        notes += [f"stderr: {line}" for line in tail]
    return Compared(instance, len(said), diff, notes)


def _exit_notes(entries: Sequence[Entry], now: Exit) -> list[str]:
    """Compare the exits; an end by a signal of the host says nothing of the module."""
    ended = next((one for one in entries if one.event is Happened.EXITED), None)
    if ended is None:
        return []
    then: dict[str, Any] = {"exit_code": ended.exit_code, "signal": ended.signal}
    if (ended.exit_code, ended.signal) == (now.exit_code, now.signal):
        return []
    if ended.stopped_by_host and (ended.signal is not None or now.signal is not None):
        return []
    return [f"it {now.words}, and {Exit(**then).words} when it was recorded"]
