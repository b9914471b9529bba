"""`stdiod run`: the daemon, in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from supervisor.cli import configured
from supervisor.cli.daemon_options import HttpOptions, with_daemon_options
from supervisor.cli.exit_status import remark
from supervisor.cli.options import UNSEEN_PATH, example, with_socket
from supervisor.cli.project import daemons_project, stand_in
from supervisor.cli.terminal import is_terminal


@click.command(epilog=example("run modules", "run modules --http 127.0.0.1:8700 --log-format json"))
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    help="The form of the daemon's own log on stderr.  [default: console on a terminal, else json]",
)
@click.option(
    "--stdio", is_flag=True, help="Serve on stdin and stdout too, as the module of another daemon."
)
@click.option(
    "--no-watch", is_flag=True, help="Reload only when told to, not whenever a descriptor changes."
)
@click.option("--project", type=UNSEEN_PATH, hidden=True, is_eager=True, callback=stand_in)
@click.option("--log-file", type=UNSEEN_PATH, hidden=True)
@click.option("--ready-fd", type=click.IntRange(3), hidden=True)
@click.option("--for-clients", is_flag=True, hidden=True)
@with_daemon_options
@with_socket
@click.pass_context
def run(
    ctx: click.Context,
    *,
    directories: tuple[Path, ...],
    config: Path | None,
    socket: Path,
    data_dir: Path,
    policy: Path | None,
    http: HttpOptions,
    log_format: str | None,
    stdio: bool,
    no_watch: bool,
    name: str,
    project: Path | None,
    log_file: Path | None,
    ready_fd: int | None,
    for_clients: bool,
) -> None:
    """Supervise the modules that each DIR describes: DIR/*.json and DIR/*/module.json.

    Without DIR, those of the project: of the stdiod.toml here or above, once it is trusted.

    Ctrl-C stops them and ends the daemon; a second Ctrl-C kills what is left.
    """
    from supervisor.daemon import late_imports

    late_imports.put_off()
    from supervisor.cli.daemon_options import journal_options
    from supervisor.daemon.config_file import Config
    from supervisor.daemon.serve import ServeOptions, serve
    from supervisor.policy.mcp_views import McpOptions

    del config, project  # `configured` and `project` have read them
    file = configured.said(ctx) or Config()
    mcp = file.mcp or McpOptions()
    for_project = daemons_project()
    options = ServeOptions(
        directories=directories,
        socket=socket,
        data_dir=data_dir,
        log_format=log_format or file.log_format or "auto",
        stdio=stdio,
        watch=not no_watch and file.watch is not False,
        name=name,
        log_file=log_file,
        ready_fd=ready_fd,
        modules_are_users=file.socket_for_modules == "user",
        containment=file.containment or "auto",
        memory_ceiling_bytes=file.memory_ceiling_bytes,
        memory=journal_options(file),
        copy_assets=file.assets == "copy",
        asset_store_bytes=file.asset_store_bytes,
        policy=policy,
        http=http.exposure(ctx),
        mcp=mcp,
        env_files=file.env_file or (),
        keep_s=mcp.keep_s if for_clients else None,
        project=None if for_project is None else for_project.folder,
    )
    if is_terminal(sys.stderr) and log_file is None:
        words = "this is the daemon, in the foreground; Ctrl-C ends it; `stdiod up` starts one in "
        remark(f"{words}the background")
    raise click.exceptions.Exit(serve(options))
