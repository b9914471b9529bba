"""`stdiod approvals`: show the questions that wait for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.approval_text import change_line, question_text
from supervisor.cli.client import SUPERVISOR, Client
from supervisor.cli.options import with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import one_line


@click.command
@click.option(
    "-f", "--follow", is_flag=True, help="Show those that come, and what becomes of them."
)
@with_json
@with_socket
def approvals(*, follow: bool, as_json: bool, socket: Path) -> None:
    """Show the questions that wait for a person: of hooks, and of a policy that prompts.

    `stdiod approve ID` answers one. With --follow until Ctrl-C (status 130); with --json each
    change is a line then.
    """

    def show(event: dict[str, Any], line: bytes) -> None:
        del line
        fields = event.get("fields") or {}
        if "approval" not in fields:  # a word from the daemon itself
            click.echo(f"stdiod: {one_line(str(event.get('message')))}", err=True)
        elif as_json:
            print_json(fields)
        else:
            click.echo(change_line(fields))

    with Client(socket) as client:
        if follow:
            answer = client.own("approvals", {"follow": True}, show)
        else:
            answer = client.known("approvals")
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=SUPERVISOR, op="approvals")
    if follow:
        return
    if as_json:
        print_json(answer.result)
        return
    for question in answer.result["approvals"]:
        click.echo(question_text(question))
    if not answer.result["approvals"]:
        click.echo("nothing waits for an approval", err=True)
