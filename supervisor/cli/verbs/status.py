from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import NO
from supervisor.cli.options import MODULE, example, with_json, with_socket
from supervisor.cli.results import print_document, result_of
from supervisor.cli.status_text import in_trouble
from supervisor.cli.terminal import columns_of_stdout


@click.command(epilog=example("status", "status dice", "status --failing"))
@click.argument("modules", metavar="[MODULE]", nargs=-1, type=MODULE)
@click.option(
    "--failing",
    is_flag=True,
    help="Show only what is in trouble; exit with 1 if there is any, with 0 if all is well.",
)
@with_json
@with_socket
def status(modules: tuple[str, ...], failing: bool, as_json: bool, socket: Path) -> None:
    """Show the daemon and its modules, those in trouble first, or all that is known of one MODULE.

    A module is in trouble if it is failed, in backoff or degraded, waits for another one, has
    ended badly, or has a bad changed descriptor. So is a quarantined descriptor.
    """
    if len(modules) > 1:
        raise click.UsageError("name one MODULE, or none: that shows all of them in a table")
    module = modules[0] if modules else None
    with DaemonClient(socket) as client:
        answer = client.known("status", {} if module is None else {"module": module})
    found = result_of(answer, as_json=as_json, module=module or "status")
    entries = found["modules"] if module is None else [found]
    bad = [one for one in entries if in_trouble(one)]
    if as_json:
        print_document({**found, "modules": bad} if failing and module is None else found)
    elif module is None:
        from supervisor.cli.status_text import status_text

        click.echo(status_text(found, columns_of_stdout(), failing=failing))
    else:
        from supervisor.cli.status_text import module_text

        click.echo(module_text(found))
    if failing and (bad or found.get("quarantined")):
        raise click.exceptions.Exit(NO)
