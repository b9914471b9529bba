"""`stdiod record`: keep the exact lines of a module's conversation, both ways, as a transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import Client
from supervisor.cli.exit_status import INTERRUPTED, NoDaemonError
from supervisor.cli.options import SECONDS, TEXT, with_socket
from supervisor.cli.results import end_with_failure
from supervisor.cli.transcript_writer import TranscriptWriter


@click.command
@click.argument("module", type=TEXT)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE, for its owner alone, in the place of stdout.",
)
@click.option("--seconds", type=SECONDS, help="End after so long; else with Ctrl-C (status 130).")
@click.option("--until-exit", is_flag=True, help="End when a process of MODULE has ended.")
@click.option("--restart", is_flag=True, help="Replace its process, and record the new one whole.")
@with_socket
def record(
    *,
    module: str,
    output: Path | None,
    seconds: float | None,
    until_exit: bool,
    restart: bool,
    socket: Path,
) -> None:
    """Record what MODULE and the daemon say to each other, without a restart.

    A transcript holds EVERYTHING that is said, passwords and keys included: look at it before you
    pass it on. `stdiod replay` plays it again.
    """
    args: dict[str, Any] = {"module": module, "until_exit": until_exit, "restart": restart}
    if seconds is not None:
        args["seconds"] = seconds
    with Client(socket) as client, TranscriptWriter(output) as transcript:

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
