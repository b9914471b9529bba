"""`stdiod doctor`: explain what is wrong, or would be, with or without a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli import configured
from supervisor.cli.daemon_options import with_config
from supervisor.cli.exit_status import NO
from supervisor.cli.options import example, with_json, with_socket
from supervisor.cli.project import default_data_dir, here
from supervisor.cli.results import print_document
from supervisor.cli.terminal import dim, one_line

if TYPE_CHECKING:
    from supervisor.cli.machine import Finding

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command(epilog=example("doctor modules", "doctor --all"))
@click.argument("directories", metavar="[DIR...]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where logs are kept.  [default: the daemon's, $STDIOD_DATA_DIR, the project's, or the"
    " user's]",
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What modules may call the daemon for.  [default: the daemon's]",
)
@click.option("--all", "everything", is_flag=True, help="Show what is ok, too.")
@click.option("--problems", is_flag=True, help="Leave out what is ok of --json, too.")
@with_config
@with_json
@with_socket
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    directories: tuple[Path, ...],
    config: Path | None,
    socket: Path,
    data_dir: Path | None,
    policy: Path | None,
    everything: bool,
    problems: bool,
    as_json: bool,
) -> None:
    """Examine everything that a daemon needs, and say what is wrong and what to do about it.

    Without DIR, examines the directories of the running daemon. Each finding is ok, warn or bad;
    those that are ok are counted, and shown with --all. Exits with 1 if one is bad.
    """
    from supervisor.cli.examination import examine

    del config  # `configured` has read it
    file = configured.said(ctx)
    if file is not None:
        directories = directories or file.directories or ()
        data_dir = data_dir or file.data_dir
        policy = policy or file.policy
    asked = None if file is None or file.containment == "auto" else file.containment
    findings = examine(
        directories,
        socket,
        data_dir or default_data_dir(),
        data_dir_chosen=data_dir is not None,
        asked_containment=asked,
        policy_file=None if policy is None else policy.absolute(),
        env_files=() if file is None else file.env_file or (),
        project=here(),
    )
    well = all(finding.level != "bad" for finding in findings)
    told = (everything or as_json) and not problems
    shown = [one for one in findings if told or one.level != "ok"]
    if as_json:
        import msgspec

        print_document({"ok": well, "findings": [msgspec.to_builtins(one) for one in shown]})
    else:
        _print(shown)
        if not shown:
            click.echo("nothing is wrong; --all shows what was examined")
        counts = (f"{sum(one.level == level for one in findings)} {level}" for level in _COLOURS)
        click.echo(", ".join(counts))
    if not well:
        raise click.exceptions.Exit(NO)


def _print(findings: list[Finding]) -> None:
    area = ""
    for one in findings:
        if one.area != area:
            area = one.area
            click.echo(click.style(area, bold=True))
        level = click.style(f"{one.level:<5}", fg=_COLOURS[one.level])
        subject = "" if one.subject is None else f"{one_line(one.subject)}: "
        click.echo(f"  {level}{subject}{one_line(one.message)}")
        for line in one.evidence:
            click.echo(dim(f"         | {one_line(line)}"))
        if one.hint is not None:
            click.echo(f"       -> {one_line(one.hint)}")
