"""`stdiod validate`: check descriptors without a daemon, and report all problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli.exit_status import NO
from supervisor.cli.options import example, with_json, with_paths
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json
from supervisor.cli.terminal import one_line, safe

if TYPE_CHECKING:
    from supervisor.cli.checked import Checked


@click.command(epilog=example("validate modules", "validate modules/dice/module.json"))
@with_paths
@with_json
def validate(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check descriptor files, and directories as a daemon would read them.

    Each problem is a line "FILE: POINTER: what is wrong". All directories together are one fleet,
    so duplicate names and missing dependencies are found, too. Exits with 1 if one is not valid.
    """
    from supervisor.cli.checked import check

    checked = check(paths)
    well = all(one.ok for one in checked.descriptors) and not checked.empty
    if as_json:
        print_json(
            {
                "ok": well,
                "descriptors": [
                    {
                        "descriptor": str(one.path.absolute()),
                        "name": one.name,
                        "ok": one.ok,
                        "problems": one.problems,
                        "warnings": one.warnings,
                    }
                    for one in checked.descriptors
                ],
                "empty": [str(path) for path in checked.empty],
            }
        )
    else:
        _print(checked)
    if not well:
        raise click.exceptions.Exit(NO)


def _print(checked: Checked) -> None:
    from supervisor.runtime.files.directory import none_found

    for one in checked.descriptors:
        where = one_line(str(one.path))
        for problem in one.problems:
            click.echo(f"{where}: {safe(str(problem))}")
        for problem in one.warnings:
            click.echo(f"{where}: {click.style('warning', fg='yellow')}: {safe(str(problem))}")
    for path in checked.empty:
        click.echo(one_line(none_found([path])))
    total = len(checked.descriptors)
    bad = sum(not one.ok for one in checked.descriptors)
    if bad:
        click.echo(f"{bad} of {count(total, 'descriptor')} {'is' if bad == 1 else 'are'} not valid")
    elif total:
        click.echo(f"{count(total, 'descriptor')} {'is' if total == 1 else 'are'} valid")
