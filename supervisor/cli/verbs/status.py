"""`stdiod status`: what runs, and what does not and why."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from supervisor.cli.client import Client
from supervisor.cli.options import TEXT, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_document
from supervisor.cli.terminal import is_terminal


@click.command
@click.argument("module", required=False, type=TEXT)
@with_json
@with_socket
def status(module: str | None, as_json: bool, socket: Path) -> None:
    """Show the daemon and its modules, or all that is known of one MODULE."""
    with Client(socket) as client:
        answer = client.known("status", {} if module is None else {"module": module})
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=module or "status")
    if as_json:
        print_document(answer.result)
    elif module is None:
        from supervisor.cli.status_table import status_text

        click.echo(status_text(answer.result, _width()))
    else:
        from supervisor.cli.module_page import module_text

        click.echo(module_text(answer.result))


def _width() -> int | None:
    if not is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns
