"""Follow the state of a session through the daemon's journal, without a gap or a repetition.

The journal is followed from a place before the session is read, and entries up to the revision read
are skipped, so nothing is missed between the two.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from supervisor.cli.client import SUPERVISOR, Answer, DaemonClient, own_op
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.results import print_json
from supervisor.cli.session_text import change_line
from supervisor.cli.terminal import is_terminal, one_line


def watch(client: DaemonClient, session_id: str, *, as_json: bool) -> Answer | None:
    """Print each change until the session ends.

    Returns the answer of an op that failed. Raises `NoDaemonError` when the daemon goes away.
    """
    status = client.known("status")
    if not status.ok:
        return status
    shown = client.known("session.show", {"session_id": session_id})
    if not shown.ok:
        return shown
    now, revision = shown.result["status"], shown.result["revision"]
    click.echo(f"{one_line(session_id)} is {now} at revision {revision}", err=True)
    if now == "ended":
        return None
    journal = status.result["daemon"].get("journal") or {}
    args = {
        "session_id": session_id,
        "event": "session:*",
        "follow": True,
        "since": journal.get("last_seq") or 0,
    }
    request_id = client.send(SUPERVISOR, "invoke", own_op("events", args))
    for event, _ in client.events():
        if event.get("requestId") == request_id:
            if event.get("type") == "done":
                return Answer(event)
            if _is_last(event.get("fields") or {}, revision, as_json=as_json):
                return None
    raise NoDaemonError("the daemon closed the connection")


def _is_last(entry: dict[str, Any], revision: int, *, as_json: bool) -> bool:
    """Print an entry unless the session had it already; True if the session has ended."""
    name, data = entry.get("event"), entry.get("data") or {}
    if name == "session:patch" and data.get("revision", 0) > revision:
        if as_json:
            print_json(entry)
        else:
            click.echo(change_line(entry, live=is_terminal(sys.stdout)))
    elif name == "session:end":
        if as_json:
            print_json(entry)
        click.echo("the session has ended", err=True)
        return True
    return False
