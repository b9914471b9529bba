"""`stdiod ui`: watch the `ui_event`s of all invocations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import SUPERVISOR, DaemonClient, given_args
from supervisor.cli.event_text import event_line
from supervisor.cli.options import TEXT, example, with_json, with_socket
from supervisor.cli.results import echo_json, result_of
from supervisor.cli.terminal import dim, one_line


@click.command(epilog=example("ui --event 'approval.*'"))
@click.option(
    "--event",
    "events",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="Only those of this name; tool.* for all that begin so.",
)
@click.option("--session", type=TEXT, metavar="ID", help="Only those of a session.")
@click.option("--module", type=TEXT, metavar="NAME", help="Only those of a module.")
@with_json
@with_socket
def ui(
    *,
    events: tuple[str, ...],
    session: str | None,
    module: str | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Show each `ui_event` as it comes, and where it comes from, until Ctrl-C (status 130).

    While somebody watches for an event, the client that invoked gets no placeholder for it. With
    --json, each event is one line.
    """

    def show(event: dict[str, Any], line: bytes) -> None:
        if event.get("type") != "ui_event":  # a message of the daemon
            click.echo(f"stdiod: {one_line(str(event.get('message')))}", err=True)
        elif as_json:
            echo_json(line)
        else:
            click.echo(f"{dim(_origin(event))} {event_line(event)}")

    args = given_args(session_id=session, module=module, events=list(events) or None)
    with DaemonClient(socket) as client:
        answer = client.own("ui.subscribe", args, show)
    result_of(answer, as_json=as_json, module=SUPERVISOR, op="ui.subscribe")


def _origin(event: dict[str, Any]) -> str:
    origin = event.get("origin") or {}
    session = f" {origin['session_id']}" if "session_id" in origin else ""
    return one_line(f"{origin.get('module')}.{origin.get('op')}{session}")
