"""`stdiod logs`: what a module wrote to stderr, and what the daemon noted about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import Client
from supervisor.cli.options import TEXT, Lines, with_json, with_socket
from supervisor.cli.quantities import time_of_day, utc_stamp
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import dim, is_terminal, one_line

MAX_LINES = 10_000
"""As the daemon's own op has it."""


@click.command
@click.argument("module", type=TEXT)
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C (status 130).")
@click.option(
    "-n",
    "--lines",
    type=Lines(MAX_LINES),
    default=50,
    show_default=True,
    metavar="N",
    help="How many of the last lines.",
)
@with_json
@with_socket
def logs(module: str, follow: bool, lines: int, as_json: bool, socket: Path) -> None:
    """Show the log of MODULE: time, instance, stream, text.

    The stream is `stderr`, `event` for what the module logs in the course of a request, `log` for
    what it logs outside of one, or `host` for what the daemon noted. With --json each line is
    {"ts","instance","stream","text"}, `ts` in seconds since 1970.
    """
    live = is_terminal(sys.stdout)

    def show(event: dict[str, Any], line: bytes) -> None:
        del line
        fields = event.get("fields")
        if not fields:  # a word from the daemon: lines were left out
            click.echo(f"stdiod: {one_line(str(event.get('message')))}", err=True)
        elif as_json:
            print_json({**fields, "text": event["message"]})
        else:
            click.echo(_line(fields, event["message"], live=live))

    with Client(socket) as client:
        answer = client.own("logs", {"module": module, "lines": lines, "follow": follow}, show)
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=module)


def _line(fields: dict[str, Any], text: str, *, live: bool) -> str:
    when = time_of_day(fields["ts"]) if live else utc_stamp(fields["ts"])
    where = f"{one_line(fields['instance'])} {fields['stream']}"
    said = one_line(text)
    return f"{dim(when)} {where} {dim(said) if fields['stream'] == 'host' else said}"
