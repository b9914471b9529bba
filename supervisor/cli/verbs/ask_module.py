"""`stdiod health` and `stdiod describe`: the questions every module answers."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import Answer, Client
from supervisor.cli.options import TEXT, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import one_line


@click.command
@click.argument("module", type=TEXT)
@with_json
@with_socket
def health(module: str, as_json: bool, socket: Path) -> None:
    """Ask MODULE whether it is well."""
    answer = _ask(socket, module, "health", as_json=as_json)
    if as_json:
        print_json(answer.result)
    else:
        click.echo(f"{one_line(module)} is well")


@click.command
@click.argument("module", type=TEXT)
@with_json
@with_socket
def describe(module: str, as_json: bool, socket: Path) -> None:
    """Ask MODULE what it is, and which ops it has and what they take."""
    answer = _ask(socket, module, "describe", as_json=as_json)
    if as_json:
        print_json(answer.result)
    else:
        from supervisor.cli.description_text import description_text

        click.echo(description_text(answer.result))


def _ask(socket: Path, module: str, operation: str, *, as_json: bool) -> Answer:
    # The daemon bounds both itself, by the module's health_s and describe_s.
    with Client(socket) as client:
        answer = client.request(module, operation, {})
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=module)
    return answer
