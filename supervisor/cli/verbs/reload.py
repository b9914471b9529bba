"""`stdiod reload`: have the daemon apply what changed in the descriptors, and show what that is."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import NO, interruption
from supervisor.cli.options import example, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json


@click.command(epilog=example("reload --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@with_json
@with_socket
def reload(*, dry_run: bool, as_json: bool, socket: Path) -> None:
    """Replace the modules whose descriptors changed, and no others; show the plan as a diff.

    Reads the policy file again, too. Exits with 1 if the policy or a descriptor cannot be used;
    the last good version then stays in use.
    """
    goes_on = "the reload goes on, and is no longer waited for"
    with (
        DaemonClient(socket) as client,
        contextlib.nullcontext() if dry_run else interruption(goes_on),
    ):
        answer = client.own("reload", {"dry_run": dry_run})
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module="reload")
    if as_json:
        print_json(answer.result)
    else:
        from supervisor.cli.plan_text import plan_text

        click.echo(plan_text(answer.result))
    unusable = answer.result["quarantined"] or answer.result.get("unrunnable")
    if unusable or answer.result.get("policy_problem"):
        raise click.exceptions.Exit(NO)
