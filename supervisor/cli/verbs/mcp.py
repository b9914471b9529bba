"""`stdiod mcp`: one MCP server of all modules, on stdin and stdout."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path

import click

from supervisor.cli import configured
from supervisor.cli.client import DaemonClient, control_sockets
from supervisor.cli.exit_status import NoDaemonError, NoError, remark
from supervisor.cli.options import (
    TEXT,
    UnseenPath,
    example,
    with_socket,
)
from supervisor.cli.project import (
    SOCKET_PASSED,
    default_data_dir,
    own_daemon,
    runtime_folder,
    socket_option,
    stand_in_trusted,
)
from supervisor.cli.quick_mcp import not_served
from supervisor.edge.mcp_stdio import StdioBridge


@click.command(epilog=example("mcp modules", "mcp --view home"))
@click.argument("directories", metavar="[DIR...]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--view",
    type=TEXT,
    metavar="NAME",
    help="Which modules to show: [mcp.views.NAME] of the daemon's configuration.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    is_eager=True,
    callback=configured.read,
    help="The configuration for a daemon that it starts; see docs/operating.md.",
)
@click.option(
    "--project",
    type=UnseenPath(file_okay=False),
    metavar="FOLDER",
    is_eager=True,
    callback=stand_in_trusted,
    help="Join the daemon of the trusted project in FOLDER, from wherever this is started.",
)
@with_socket
@click.pass_context
def mcp(
    ctx: click.Context,
    *,
    directories: tuple[Path, ...],
    view: str | None,
    config: Path | None,
    project: Path | None,
    socket: Path,
) -> None:
    """Serve all modules as one MCP server: the entry for an `mcpServers` file.

    Joins the daemon that runs: in a trusted project its own, else the user's, whatever socket it
    listens on unless --socket names one. Without one, it
    starts one for the modules in each DIR (or of --config, or of the project), and says on stderr
    when that ends: at `stdiod down`, unless the configuration says otherwise ([mcp] keep).
    """
    folders = [str(one.absolute()) for one in directories]
    passed = socket if ctx.meta[SOCKET_PASSED] else None
    here = None if passed else own_daemon()
    # It may be started elsewhere: the words name this project's daemon.
    project = here.folder if here is not None and here.socket == socket else None
    given = {"--view": view, "--config": config, "--project": project, "--socket": passed}
    options = [word for name, value in given.items() if value for word in (name, str(value))]
    if sys.stdin is not None and sys.stdin.isatty():
        _tell_person(*options, *folders)
    client, has_started = _joined(ctx, socket, config, directories)
    bridge = StdioBridge(str(client.path), view)
    if has_started:
        bridge.starter = _own_words(*options, *folders)
    with contextlib.closing(bridge):
        refusal = bridge.join(client.detach())
        if bridge.end is not None:
            raise client.failed(bridge.end)
        if refusal is not None:
            message = refusal.message
            file = configured.said(ctx)
            if view is not None and file and file.mcp and view in file.mcp.views:
                message += (
                    f"; the configuration has {view}: `stdiod down`, and the next start reads it"
                )
            raise NoError(message)
        if said := not_served(map(str, directories), bridge.directories, bridge.daemon_pid):
            click.echo(said, err=True)
        bridge.serve()


def _own_words(*words: str) -> list[str]:
    from supervisor.cli.background import own_program

    return [own_program(), "mcp", *words]


def _tell_person(*words: str) -> None:
    own = _own_words(*words)
    entry = {"stdiod": {"command": own[0], "args": own[1:]}}
    text = "an MCP client is meant to start this, and to speak on its stdin: in its file,\n"
    text += f"{json.dumps({'mcpServers': entry}, indent=2)}\nor with Claude Code,\n"
    text += f"claude mcp add stdiod -- {shlex.join(own)}"
    remark(text)


def _joined(
    ctx: click.Context, socket: Path, config: Path | None, directories: tuple[Path, ...]
) -> tuple[DaemonClient, bool]:
    """Return a connection to the daemon, and whether it was started for that."""
    try:
        return DaemonClient(socket), False
    except NoDaemonError as error:
        from supervisor.cli import background

        file = configured.said(ctx)
        data_dir = (file.data_dir if file and file.data_dir else default_data_dir()).absolute()
        for other in () if ctx.meta[SOCKET_PASSED] else control_sockets(data_dir):
            remark(f"joins the daemon of {data_dir}, on {other}")
            return DaemonClient(other), False
        named = ctx.meta[SOCKET_PASSED] or os.environ.get("STDIOD_SOCKET") or config
        chosen = named or own_daemon() or not directories
        for other in () if chosen else _serving(directories):
            remark(f"joins the daemon that serves this already, on {other}")
            return DaemonClient(other), False
        configured.refuse_untrusted(ctx, directories_named=True)
        if not directories and not (file and file.directories):
            start = f"`stdiod {socket_option(socket)}mcp DIR`"
            words = f"{error.format_message()}; {start} starts one for the modules in DIR"
            raise NoDaemonError(words) from None
    arguments = [*background.place(socket, data_dir, config), "--for-clients"]
    arguments += ["--", *(str(one.absolute()) for one in directories)]
    with background.alone(socket):
        try:
            return DaemonClient(socket), False
        except NoDaemonError:
            pid = background.start(arguments, data_dir)
    keep_s = file.mcp.keep_s if file and file.mcp else None
    ends = "`stdiod down`" if keep_s is None else f"{keep_s:g} s without a client"
    remark(f"started a daemon (pid {pid}), which stays until {ends}")
    return DaemonClient(socket), True


def _serving(directories: tuple[Path, ...]) -> list[Path]:
    """Return the sockets of this user's daemons that serve all these directories already."""
    named = {str(one.absolute()) for one in directories}
    folder, found = runtime_folder(), []
    for socket in (folder / "stdiod.sock", *sorted(folder.glob("projects/*/stdiod.sock"))):
        with contextlib.suppress(NoDaemonError), DaemonClient(socket) as client:
            answer = client.known("status")
            if named and answer.ok and named <= {*answer.result["daemon"]["directories"]}:
                found.append(socket)
    return found
