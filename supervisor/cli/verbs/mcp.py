"""`stdiod mcp`: one MCP server of all modules, on stdin and stdout."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import sys
from collections.abc import Iterator
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
from supervisor.cli.quick_mcp import DAEMON_ENDED, not_served, relay


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
    if sys.stdin is not None and sys.stdin.isatty():
        passed = socket if ctx.meta[SOCKET_PASSED] else None
        here = None if passed else own_daemon()
        # The client may start it elsewhere: the entry names this project's daemon.
        project = here.folder if here is not None and here.socket == socket else None
        given = {"--view": view, "--config": config, "--project": project, "--socket": passed}
        options = (word for name, value in given.items() if value for word in (name, str(value)))
        _tell_person("mcp", *options, *(str(one.absolute()) for one in directories))
    client = _joined(ctx, socket, config, directories)
    with client:
        answer = client.known("mcp", {} if view is None else {"view": view})
        if not answer.ok:
            words = str(answer.error.get("message"))
            file = configured.said(ctx)
            if view is not None and file and file.mcp and view in file.mcp.views:
                words += (
                    f"; the configuration has {view}: `stdiod down`, and the next start reads it"
                )
            raise NoError(words)
        known = json.dumps(answer.result, ensure_ascii=False, separators=(",", ":"))
        if words := not_served([*map(str, directories)], known):
            click.echo(words, err=True)
        with client.detach() as connection:
            ours = relay(connection)
    if not ours:
        raise NoDaemonError(DAEMON_ENDED)


def _tell_person(*words: str) -> None:
    from supervisor.cli.verbs.admin import own_program

    entry = {"stdiod": {"command": own_program(), "args": words}}
    text = "an MCP client is meant to start this, and to speak on its stdin: in its file,\n"
    text += f"{json.dumps({'mcpServers': entry}, indent=2)}\nor with Claude Code,\n"
    text += f"claude mcp add stdiod -- {shlex.join([own_program(), *words])}"
    remark(text)


def _joined(
    ctx: click.Context, socket: Path, config: Path | None, directories: tuple[Path, ...]
) -> DaemonClient:
    """Return a connection to the running daemon, or to a new one."""
    try:
        return DaemonClient(socket)
    except NoDaemonError as error:
        from supervisor.cli import background

        file = configured.said(ctx)
        data_dir = (file.data_dir if file and file.data_dir else default_data_dir()).absolute()
        for other in () if ctx.meta[SOCKET_PASSED] else control_sockets(data_dir):
            remark(f"joins the daemon of {data_dir}, on {other}")
            return DaemonClient(other)
        named = ctx.meta[SOCKET_PASSED] or os.environ.get("STDIOD_SOCKET") or config
        chosen = named or own_daemon() or not directories
        for other in () if chosen else _serving(directories):
            remark(f"joins the daemon that serves this already, on {other}")
            return DaemonClient(other)
        configured.refuse_untrusted(ctx, directories_named=True)
        if not directories and not (file and file.directories):
            start = f"`stdiod {socket_option(socket)}mcp DIR`"
            words = f"{error.format_message()}; {start} starts one for the modules in DIR"
            raise NoDaemonError(words) from None
    arguments = [*background.place(socket, data_dir, config), "--for-clients"]
    arguments += ["--", *(str(one.absolute()) for one in directories)]
    with _alone(socket):
        try:
            return DaemonClient(socket)
        except NoDaemonError:
            pid = background.start(arguments, data_dir)
    keep_s = file.mcp.keep_s if file and file.mcp else None
    ends = "`stdiod down`" if keep_s is None else f"{keep_s:g} s without a client"
    remark(f"started a daemon (pid {pid}), which stays until {ends}")
    return DaemonClient(socket)


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


@contextlib.contextmanager
def _alone(socket: Path) -> Iterator[None]:
    """Let one `mcp` start a daemon at a time: a client starts all its servers at once."""
    from supervisor.runtime.files.lock_file import open_lock

    path = socket.with_name(f"{socket.name}.starting")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_lock(path)
    except OSError as error:
        words = f"no daemon can be started for {socket}: {error.strerror or error}"
        raise NoDaemonError(words) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
