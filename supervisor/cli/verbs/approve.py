"""`stdiod approve`: answer a question that waits for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import SUPERVISOR, DaemonClient
from supervisor.cli.options import TEXT, example, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import one_line


@click.command(epilog=example("approve 3", "approve 3 --deny"))
@click.argument("question", metavar="ID", type=TEXT)
@click.option("--deny", is_flag=True, help="Answer no.")
@click.option("--answer", type=TEXT, metavar="X", help="Answer with one of its options.")
@click.option(
    "--set",
    "entries",
    type=TEXT,
    multiple=True,
    metavar="FIELD=VALUE",
    help="Fill in a field of its form; give it once for each.",
)
@with_json
@with_socket
def approve(
    *,
    question: str,
    deny: bool,
    answer: str | None,
    entries: tuple[str, ...],
    as_json: bool,
    socket: Path,
) -> None:
    """Answer the question ID: yes, unless an option says otherwise.

    `stdiod approvals` lists the questions. If the policy asked, the answers "allow always" and
    "deny always" are remembered. Exits with 1 if the question is no longer open.
    """
    if deny and answer is not None:
        raise click.UsageError("--deny and --answer are two answers; give one")
    args: dict[str, Any] = {"id": question, "answer": "deny" if deny else answer or "allow"}
    for entry in entries:
        field, equals, value = entry.partition("=")
        if not equals or not field:
            raise click.UsageError(f"--set {entry} is not FIELD=VALUE")
        args.setdefault("content", {})[field] = value
    with DaemonClient(socket) as client:
        found = client.known("approve", args)
    if not found.ok:
        end_with_failure(found, as_json=as_json, module=SUPERVISOR, op="approve")
    if as_json:
        print_json(found.result)
        return
    word = "allowed" if found.result["allowed"] else "denied"
    click.echo(f"{one_line(str(found.result['id']))} is {word}", err=True)
