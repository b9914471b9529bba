"""The verbs of whoever runs a daemon: `doctor`, `trust`, `service` and `gateway`."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import configured
from supervisor.cli.background import own_program
from supervisor.cli.client import given_args
from supervisor.cli.daemon_options import HttpOptions, with_config, with_gateway_options
from supervisor.cli.exit_status import NoError, exit_unless, remark
from supervisor.cli.lock_file import lock_holder, socket_lock
from supervisor.cli.options import Subverbs, example, with_directories, with_json, with_socket
from supervisor.cli.project import (
    FILE,
    Project,
    TrustState,
    absolute_socket,
    default_data_dir,
    default_socket,
    here,
    is_shared,
    judged,
    nearest,
    own_daemon,
    why_none,
)
from supervisor.cli.quantities import utc_second
from supervisor.cli.results import print_document, print_json
from supervisor.cli.terminal import dim, one_line
from supervisor.daemon.project_trust import TrustStoreError, trusted_projects
from supervisor.policy.http_exposure import SOCK

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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


class _Folder(click.Path):
    """A folder; shells are offered the trusted ones too."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the matching trusted folders, and leave the others to the shell."""
        from click.shell_completion import CompletionItem

        try:
            known = list(trusted_projects().read())
        except TrustStoreError:
            known = []
        found = [CompletionItem(one) for one in known if one.startswith(incomplete)]
        return [*found, *super().shell_complete(ctx, param, incomplete)]


@click.command(epilog=example("trust", "trust --list", "trust --revoke ~/shop"))
@click.argument(
    "folder", metavar="[FOLDER]", required=False, type=_Folder(file_okay=False, path_type=Path)
)
@click.option("--list", "only_list", is_flag=True, help="List what is trusted, and change nothing.")
@click.option("--revoke", is_flag=True, help="Trust it no longer; a running daemon keeps running.")
@with_json
def trust(folder: Path | None, only_list: bool, revoke: bool, as_json: bool) -> None:
    """Trust the project of FOLDER, or of the working directory: the nearest stdiod.toml upwards.

    Read the file first: its modules run as you. From then on, every command in its folder or below
    uses the project's own daemon, which `stdiod up` starts as the file says. When the file or the
    policy that it names changes, no daemon is started before you trust it again; --list shows such
    projects.
    """
    if only_list and (folder is not None or revoke):
        raise click.UsageError("--list goes with neither FOLDER nor --revoke")
    if as_json and not only_list:
        raise click.UsageError("--json goes with --list")
    try:
        if only_list:
            _list(as_json=as_json)
        elif revoke:
            _revoke(folder)
        else:
            _trust(_chosen(folder))
    except TrustStoreError as error:
        raise NoError(str(error)) from None


def _chosen(folder: Path | None) -> Project:
    start = (folder or Path.cwd()).resolve()
    project = nearest(start)
    if project is not None:
        return project
    if is_shared(start) and (start / FILE).exists():
        words = f"it would be that of every folder below; `--config {start / FILE}` uses the file"
        raise NoError(f"{start} cannot be a project: {words}")
    raise NoError(
        f"there is no {FILE} of yours in {start} or above; make one that says where the modules "
        'are, such as: directories = ["modules"]'
    )


def _trust(project: Project) -> None:
    from supervisor.daemon.config_file import ConfigError, config_bytes, parse_config

    try:
        str(project.folder).encode()
    except UnicodeEncodeError:
        raise NoError(f"{project.folder} cannot be trusted: its path is not UTF-8") from None
    try:
        data = config_bytes(project.file)
        config = parse_config(data, project.file, of_project=True)
    except ConfigError as error:
        raise NoError(f"nothing is trusted:\n{error}") from None
    files = {project.file: data}
    if config.policy is not None:
        files[config.policy] = _policy(config.policy)
    trusted_projects().trust(project.folder, files)
    for directory in configured.no_directories(config.directories or ()):
        remark(f"{one_line(str(directory))} is not a directory yet")
    click.echo(f"trusted {one_line(str(project.file))}")
    said = {"directories": ", ".join(map(str, config.directories or ()))}
    said |= given_args(policy=config.policy, http=config.http)
    for label, words in said.items():
        click.echo(f"  {dim(label.ljust(12))}{one_line(str(words))}")
    if _runs(project):
        rest = "other changes take effect after `stdiod down` and `stdiod up`"
        click.echo(f"its daemon is running: `stdiod reload` applies a new policy; {rest}")
    else:
        click.echo("`stdiod up` starts its daemon")


def _policy(path: Path) -> bytes:
    from supervisor.kernel.grants.operator_policy import read_policy
    from supervisor.policy.policy_file import PolicyError
    from supervisor.policy.toml_document import told

    read: list[bytes] = []
    try:
        # The bytes that are checked are the bytes that are returned.
        policy = read_policy(path, read.append)
    except PolicyError as error:
        raise NoError(f"nothing is trusted:\n{error}") from None
    for finding in policy.findings:
        click.echo(f"{told(str(path), finding)} ({click.style('warning', fg='yellow')})", err=True)
    return read[0]


def _runs(project: Project) -> bool:
    return lock_holder(socket_lock(project.socket)) is not None


def _revoke(folder: Path | None) -> None:
    wanted = (folder or Path.cwd()).resolve()
    store = trusted_projects()
    known = store.read()
    found = next((one for one in (wanted, *wanted.parents) if str(one) in known), None)
    if found is None or not store.revoke(found):
        raise NoError(
            f"{wanted} is in no project that is trusted; `stdiod trust --list` lists them"
        )
    click.echo(f"{one_line(str(found))} is no longer trusted")
    project = Project(found, TrustState.UNTRUSTED)
    if _runs(project):
        click.echo(f"its daemon goes on: `stdiod --socket {project.socket} down` ends it", err=True)


def _list(*, as_json: bool) -> None:
    projects = [_entry(folder, one.trusted_at) for folder, one in trusted_projects().read().items()]
    if as_json:
        print_json({"projects": projects})
        return
    for one in projects:
        when = utc_second(one["trusted_at"])
        words = "" if one["problem"] is None else f"; {one['problem']}"
        click.echo(f"{one_line(one['folder'])}  {dim(f'since {when}')}{one_line(words)}")
    if not projects:
        click.echo("no project is trusted")


def _entry(name: str, trusted_at: float) -> dict[str, Any]:
    folder = Path(name)
    project = judged(folder)
    problem = why_none(folder)
    if problem is None and project.standing is TrustState.CHANGED:
        problem = f"{project.changed} has changed since"
    return {
        "folder": name,
        "trusted_at": trusted_at,
        "problem": problem,
        "socket": str(project.socket),
        "data_dir": str(project.data_dir),
    }


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


@click.command(epilog=example("gateway", "gateway --http 127.0.0.1:8700"))
@with_gateway_options
@with_socket
@click.pass_context
def gateway(ctx: click.Context, *, config: Path | None, http: HttpOptions, socket: Path) -> None:
    """Serve HTTP for the daemon on the socket, until Ctrl-C.

    A daemon with --http runs one itself, so this is for one without. It may come and go: while it
    is away, requests are answered with 503 and Retry-After.
    """
    from supervisor.daemon.gateway import SOCKET_NAME, command, listening
    from supervisor.faces.control_socket import SocketPathError, SocketTakenError

    del config  # `configured` has read it
    exposure = http.exposure(ctx, SOCK)
    if exposure is None:
        raise click.UsageError("--http: off serves nothing: say sock or HOST:PORT", ctx)
    with contextlib.ExitStack() as kept:
        try:
            listeners = kept.enter_context(listening(exposure, socket))
        except (SocketPathError, SocketTakenError) as error:
            raise NoError(str(error)) from None
        remark(f"HTTP is at {listeners.address}, for the daemon on {socket}; Ctrl-C ends it")
        for one in listeners.sockets:
            one.set_inheritable(True)
        _keep_lock(socket.with_name(SOCKET_NAME))
        os.execv(sys.executable, command(listeners, socket))  # noqa: S606 - it becomes that


def _keep_lock(path: Path) -> None:
    """Own the path of a Unix socket beyond `exec`: its lock is held by an open file."""
    lock = path.with_name(f"{path.name}.lock").resolve()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the folder itself
            if one.readlink() == lock:
                os.set_inheritable(int(one.name), True)
