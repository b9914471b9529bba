"""`stdiod doctor` and `service`: what a daemon needs, and systemd that runs it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import configured
from supervisor.cli.background import own_program
from supervisor.cli.daemon_options import HttpOptions, with_config
from supervisor.cli.exit_status import NoError, exit_unless
from supervisor.cli.options import Subverbs, example, with_directories, with_json, with_socket
from supervisor.cli.project import (
    Project,
    absolute_socket,
    default_data_dir,
    default_socket,
    here,
    own_daemon,
)
from supervisor.cli.results import print_document
from supervisor.cli.terminal import dim, one_line

if TYPE_CHECKING:
    from supervisor.cli.machine import DoctorFinding


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
        data_dir,
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
        _print_findings(shown)
        if not shown:
            click.echo("nothing is wrong; --all shows what was examined")
        counts = (f"{sum(one.level == level for one in findings)} {level}" for level in _COLOURS)
        click.echo(", ".join(counts))
    exit_unless(well)


def _print_findings(findings: list[DoctorFinding]) -> None:
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


UNIT = """\
[Unit]
Description=Modules supervised by stdiod
Documentation=man:systemd.service(5)

[Service]
Type=notify
NotifyAccess=main
Environment={search}
ExecStart={command}
ExecReload=kill -HUP $MAINPID
Delegate=yes
KillMode=mixed
TimeoutStopSec=60
WatchdogSec=30
Restart=on-failure
RestartPreventExitStatus=1 2
LimitNOFILE=65536

[Install]
WantedBy=default.target
"""

_PLAIN = re.compile(r"[\w./:@%$+=,~-]+")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(cls=Subverbs, epilog=example("service install modules"))
def service() -> None:
    """Run the daemon under systemd."""


@service.command(
    epilog=example("service install modules", "service install --config ~/fleet.toml --print")
)
@with_directories
@click.option(
    "--config",
    type=_FILE,
    metavar="FILE",
    is_eager=True,
    callback=configured.read,
    help="The configuration of the daemon.",
)
@click.option("--policy", type=_FILE, metavar="FILE", help="What modules may ask of the daemon.")
@click.option("--http", metavar="off|sock|HOST:PORT", help="Where HTTP is served.")
@click.option("--print", "only_print", is_flag=True, help="Print the unit, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite a different unit.")
@click.pass_context
def install(
    ctx: click.Context, /, directories: tuple[Path, ...], only_print: bool, force: bool, **said: Any
) -> None:
    """Write a unit for `systemctl --user` that runs the daemon for the modules in each DIR.

    In a trusted project it is the project's own daemon, as `up` starts it there.

    The unit is ~/.config/systemd/user/stdiod.service ($XDG_CONFIG_HOME instead of ~/.config).
    Its programs are looked for in the PATH of this shell. Nothing is started; the commands that
    start it are printed.
    """
    project = own_daemon()
    if not directories and said["config"] is None:
        configured.refuse_untrusted(ctx, directories_named=False)
        if project is None or not configured.directories(ctx):
            hint = "name a DIR with modules, or a --config that names it, or run this in a project"
            raise click.UsageError(hint)
    if said["http"] is not None:
        HttpOptions(said["http"]).exposure(ctx)
    words = [own_program(), "run"]
    for option in ("config", "policy", "http"):
        if (value := said[option]) is not None:
            words += [f"--{option}", value if option == "http" else str(value.absolute())]
    words += [] if project is None else _place(ctx, project)
    words += ["--log-format", "json"]
    if directories:
        words += ["--", *(str(one.absolute()) for one in directories)]
    search = quoted(f"PATH={os.environ.get('PATH', os.defpath)}").replace("$$", "$")
    unit = UNIT.format(command=" ".join(map(quoted, words)), search=search)
    if only_print:
        click.echo(unit, nl=False)
        return
    path = _unit_path()
    try:
        if path.exists() and path.read_text(encoding="utf-8") != unit and not force:
            raise NoError(f"{path} already exists and differs; --force overwrites it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise NoError(f"{path} cannot be written: {why}") from None
    click.echo(f"wrote {path}")
    click.echo("systemctl --user daemon-reload && systemctl --user enable --now stdiod", err=True)


@service.command(epilog=example("service uninstall"))
def uninstall() -> None:
    """Stop the daemon of the unit, and remove the unit; its data and the descriptors stay."""
    path = _unit_path()
    if not os.path.lexists(path):
        click.echo(f"nothing to remove: there is no {path}")
        return
    systemctl = ["/usr/bin/env", "systemctl", "--user"]  # it may not be there
    failed = subprocess.call([*systemctl, "disable", "--now", "stdiod"])
    try:
        path.unlink()
        (path.parent / "default.target.wants" / path.name).unlink(missing_ok=True)
    except OSError as error:
        raise NoError(f"{path} cannot be removed: {error.strerror}") from None
    click.echo(f"removed {path}")
    if failed or subprocess.call([*systemctl, "daemon-reload"]):
        words = "systemctl --user daemon-reload && systemctl --user stop stdiod"
        raise NoError(f"systemctl failed; where systemd runs the daemon, what is left is\n{words}")


def quoted(word: str) -> str:
    """Quote a word for ExecStart= of a unit; raises `NoError` for one with several lines."""
    if "\n" in word or "\r" in word:
        raise NoError(f"{word!r} cannot stand in a unit: it has more than one line")
    word = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _place(ctx: click.Context, project: Project) -> list[str]:
    """Return the options of a project's own daemon, as `up` starts it there."""
    file = configured.said(ctx)
    data_dir = ((file.data_dir if file else None) or default_data_dir()).absolute()
    socket = absolute_socket(default_socket())
    return ["--socket", str(socket), "--data-dir", str(data_dir), "--project", str(project.folder)]


def _unit_path() -> Path:
    named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    home = named if named.is_absolute() else Path.home() / ".config"
    return home / "systemd" / "user" / "stdiod.service"
