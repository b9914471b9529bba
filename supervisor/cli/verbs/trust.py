"""`stdiod trust`: let a project's `stdiod.toml` say what runs here, or no more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import configured
from supervisor.cli.client import given_args
from supervisor.cli.exit_status import NoError, remark
from supervisor.cli.lock_file import lock_holder, socket_lock
from supervisor.cli.options import example, with_json
from supervisor.cli.project import FILE, Project, TrustState, is_shared, judged, nearest, why_none
from supervisor.cli.quantities import utc_second
from supervisor.cli.results import print_json
from supervisor.cli.terminal import dim, one_line
from supervisor.daemon.project_trust import TrustStoreError, trusted_projects

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
