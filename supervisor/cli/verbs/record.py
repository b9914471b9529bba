"""`stdiod record`: record the exact lines of a module's conversation, both ways."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import click
import msgspec

from supervisor.cli.client import DaemonClient, given_args
from supervisor.cli.exit_status import INTERRUPTED, NoDaemonError, NoError
from supervisor.cli.options import MODULE, SECONDS, example, with_socket
from supervisor.cli.results import echo_json, end_with_failure
from supervisor.cli.terminal import one_line


def tell_of_replaced(path: Path) -> None:
    """Report that a file with content is replaced."""
    with contextlib.suppress(OSError):
        if path.is_file() and (size := path.stat().st_size):
            words = f"{one_line(str(path))} ({size} bytes) is replaced"
            click.echo(f"stdiod: {words}", err=True)


class TranscriptWriter:
    """A growing transcript; its last line says that it has ended, however it ends."""

    def __init__(self, path: Path | None) -> None:
        """Make the file, for its owner alone; None is stdout. Raises `NoError`."""
        self.entries = 0
        self.missing_bytes = 0
        self.ended = False
        self._begun = False
        self._path = path
        self._file: IO[bytes] | None = None
        self._began_at = time.monotonic()
        if path is not None:
            tell_of_replaced(path)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
            except OSError as error:
                raise self._unwritable(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                raise self._unwritable(error) from None

    def write(self, record: dict[str, Any]) -> None:
        line = msgspec.json.encode(record)
        self._begun = True
        if "transcript" not in record:
            self.entries += 1
        if record.get("event") == "missing":
            self.missing_bytes += record.get("bytes", 0)
        if record.get("event") == "ended":
            self.ended = True
            self.missing_bytes = record.get("missing_bytes", 0)
        with _uninterrupted():
            if self._file is None:
                echo_json(line)
                return
            try:
                self._file.write(line + b"\n")
                self._file.flush()
            except OSError as error:
                raise self._unwritable(error) from None

    def end(self, why: str) -> None:
        """Write the end, if there was a beginning and the daemon wrote no end."""
        if self._begun and not self.ended:
            elapsed_s = round(time.monotonic() - self._began_at, 6)
            ended = {"at_s": elapsed_s, "from": "recorder", "event": "ended"}
            self.write({**ended, "missing_bytes": self.missing_bytes, "why": why})

    def _unwritable(self, error: OSError) -> NoError:
        return NoError(f"{self._path} cannot be written: {error.strerror}")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until after the block: half a line before the end is no valid transcript."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@click.command(epilog=example("record dice --restart --seconds 5 -o dice.jsonl"))
@click.argument("modules", type=MODULE, nargs=-1, required=True, metavar="MODULE")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE, which only its owner can read, instead of stdout.",
)
@click.option(
    "--seconds", type=SECONDS, help="End after this time; otherwise Ctrl-C ends it (status 130)."
)
@click.option("--until-exit", is_flag=True, help="End when a process of MODULE has ended.")
@click.option(
    "--restart", is_flag=True, help="Replace its process first, so that the recording is complete."
)
@with_socket
def record(
    *,
    modules: tuple[str, ...],
    output: Path | None,
    seconds: float | None,
    until_exit: bool,
    restart: bool,
    socket: Path,
) -> None:
    """Record what MODULE and the daemon say to each other, without a restart.

    A transcript holds EVERYTHING that is said, passwords and keys included: read it before you
    pass it on. `stdiod replay` plays it again.
    """
    module, *others = modules
    if others:
        raise click.UsageError("a transcript is of one module; record the others beside it")
    args = given_args(module=module, until_exit=until_exit, restart=restart, seconds=seconds)
    with DaemonClient(socket) as client, TranscriptWriter(output) as transcript:

        def keep(event: dict[str, Any], line: bytes) -> None:
            del line
            transcript.write(event.get("fields") or {})

        try:
            answer = client.own("record", args, keep)
        except KeyboardInterrupt:
            transcript.end("Ctrl-C")
            _report(transcript, output)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except NoDaemonError:
            transcript.end("the daemon went away")
            raise
        if not answer.ok:
            transcript.end(str(answer.error.get("message")))
            end_with_failure(answer, as_json=False, module=module)
        transcript.end("the daemon ended it")
    _report(transcript, output)


def _report(transcript: TranscriptWriter, output: Path | None) -> None:
    lost = transcript.missing_bytes
    tail = f"; {lost} bytes are missing, it was too fast" if lost else ""
    where = "" if output is None else f" in {output}"
    click.echo(f"stdiod: {transcript.entries} entries{where}{tail}", err=True)
