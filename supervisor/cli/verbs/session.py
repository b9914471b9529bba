from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from supervisor.cli import session_watch
from supervisor.cli.args import read_args
from supervisor.cli.client import SUPERVISOR, DaemonClient, given_args
from supervisor.cli.options import SESSION, TEXT, Subverbs, example, with_json, with_socket
from supervisor.cli.quantities import count
from supervisor.cli.results import (
    end_with_failure,
    own_result,
    print_json,
    print_laid_out,
    show_result,
)
from supervisor.cli.session_text import page, table
from supervisor.cli.terminal import columns_of_stdout, one_line

MAX_PAGE = 1000
"""The limit of the daemon's op."""

_JSON = "JSON|@FILE|-"


@click.group(cls=Subverbs, epilog=example("session new --id walk --title 'A walk'"))
def session() -> None:
    """Begin, show, change, fork, end and watch sessions, the state that modules share."""


def _with_roles(command: Callable[..., None]) -> Callable[..., None]:
    """Add options for the modules that serve the session's prompts."""
    options = (
        click.option(
            "--agent", type=TEXT, metavar="MODULE", help="The agent that serves its prompts."
        ),
        click.option(
            "--orchestrator",
            type=TEXT,
            metavar="MODULE",
            help="Or the orchestrator that does so, with",
        ),
        click.option(
            "--context", type=TEXT, metavar="MODULE", help="the context that keeps its messages,"
        ),
        click.option("--provider", type=TEXT, metavar="MODULE", help="the provider that it asks,"),
        click.option(
            "--tool",
            "tools",
            type=TEXT,
            multiple=True,
            metavar="MODULE",
            help="and a tool that it may call; repeat it for more.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _roles(tools: tuple[str, ...], **named: str | None) -> dict[str, Any]:
    roles = given_args(**named) | ({"tools": list(tools)} if tools else {})
    return {"roles": roles} if roles else {}


@session.command(epilog=example("session new --id walk --title 'A walk'"))
@click.option("--id", "session_id", type=TEXT, metavar="ID", help="Its id; made up if left out.")
@click.option("--title", type=TEXT, help="Its title.")
@click.option(
    "--cwd",
    type=click.Path(file_okay=False, resolve_path=True),
    metavar="DIR",
    help="The folder that it is about.",
)
@click.option("--plan", metavar=_JSON, help='Its plan: {"goal": TEXT, "inputs": OBJECT}.')
@click.option("--state", metavar=_JSON, help="The state that it begins with, an object.")
@_with_roles
@with_json
@with_socket
def new(
    *,
    session_id: str | None,
    title: str | None,
    cwd: str | None,
    plan: str | None,
    state: str | None,
    tools: tuple[str, ...],
    as_json: bool,
    socket: Path,
    **named: str | None,
) -> None:
    """Begin a session and print its id."""
    args = given_args(session_id=session_id, title=title, cwd=cwd) | _roles(tools, **named)
    for name, given in (("plan", plan), ("state", state)):
        if given is not None:
            args[name] = read_args(given, f"--{name}")
    found = own_result(socket, "session.new", args, as_json=as_json)
    show_result(found, found["session_id"], as_json=as_json)


@session.command("list", epilog=example("session list --all"))
@click.option("-a", "--all", "ended", is_flag=True, help="Include those that have ended.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=TEXT, metavar="ID", help="Continue after this one.")
@with_json
@with_socket
def list_(*, ended: bool, limit: int, after: str | None, as_json: bool, socket: Path) -> None:
    """List the sessions, the newest first."""
    args = {"ended": ended, "limit": limit, **given_args(after=after)}
    found = own_result(socket, "session.list", args, as_json=as_json)
    if as_json:
        print_json(found)
        return
    if found["sessions"]:
        click.echo(table(found["sessions"], columns_of_stdout()))
    else:
        click.echo("no sessions" if ended or not found["ended"] else "no sessions but ended ones")
    if found["next"] is not None:
        click.echo(f"there are more: --after {one_line(found['next'])}", err=True)


@session.command(epilog=example("session show walk"))
@click.argument("session_id", type=SESSION, metavar="ID")
@with_json
@with_socket
def show(*, session_id: str, as_json: bool, socket: Path) -> None:
    """Show a session: plan, history and state."""
    found = own_result(socket, "session.show", {"session_id": session_id}, as_json=as_json)
    if as_json:
        print_json(found)
    else:
        click.echo(page(found))
        print_laid_out(found["state"])


@session.command(epilog=example("session fork walk --id night"))
@click.argument("session_id", type=SESSION, metavar="ID")
@click.option(
    "--id",
    "new_id",
    type=TEXT,
    metavar="ID",
    help="The id of the new session; made up if left out.",
)
@click.option("--title", type=TEXT, help="The title of the new session.")
@_with_roles
@with_json
@with_socket
def fork(
    *,
    session_id: str,
    new_id: str | None,
    title: str | None,
    tools: tuple[str, ...],
    as_json: bool,
    socket: Path,
    **named: str | None,
) -> None:
    """Begin a session with the state, the plan and the roles of another, and print its id."""
    args = {"session_id": session_id, **given_args(new_id=new_id, title=title)}
    args |= _roles(tools, **named)
    found = own_result(socket, "session.fork", args, as_json=as_json)
    show_result(found, found["session_id"], as_json=as_json)


@session.command(epilog=example("session end walk"))
@click.argument("session_id", type=SESSION, metavar="ID")
@with_json
@with_socket
def end(*, session_id: str, as_json: bool, socket: Path) -> None:
    """End a session; what is in flight for it is cancelled."""
    found = own_result(socket, "session.end", {"session_id": session_id}, as_json=as_json)
    cancelled = found["cancelled"]
    others = f"; {count(cancelled, 'invocation')} cancelled" if cancelled else ""
    show_result(found, f"{one_line(session_id)} has ended{others}", as_json=as_json)


@session.command(epilog=example("session cancel walk"))
@click.argument("session_id", type=SESSION, metavar="ID")
@click.option("--force", is_flag=True, help="Cancel everything else that is in flight for it, too.")
@with_json
@with_socket
def cancel(*, session_id: str, force: bool, as_json: bool, socket: Path) -> None:
    """Cancel the prompt that a session serves, and those that wait."""
    args = {"session_id": session_id, **({"force": True} if force else {})}
    found = own_result(socket, "session.cancel", args, as_json=as_json)
    what = count(found["cancelled"], "request" if force else "prompt")
    show_result(found, f"{what} cancelled", as_json=as_json)


@session.command(epilog=example("session patch walk '{\"torchRoom\":null}' --if-revision 1"))
@click.argument("session_id", type=SESSION, metavar="ID")
@click.argument("given", metavar="PATCH")
@click.option(
    "--if-revision",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only if the state still has this revision.",
)
@with_json
@with_socket
def patch(
    *, session_id: str, given: str, if_revision: int | None, as_json: bool, socket: Path
) -> None:
    """Change the state by PATCH: a JSON Merge Patch, @FILE, or - for stdin.

    A null removes a member; arrays are replaced as a whole.
    """
    args = {
        "session_id": session_id,
        "patch": read_args(given, "the patch"),
        **given_args(if_revision=if_revision),
    }
    found = own_result(socket, "session.patch", args, as_json=as_json)
    revision = found["revision"]
    show_result(found, f"{one_line(session_id)} has revision {revision}", as_json=as_json)


@session.command(epilog=example("session watch walk"))
@click.argument("session_id", type=SESSION, metavar="ID")
@with_json
@with_socket
def watch(*, session_id: str, as_json: bool, socket: Path) -> None:
    """Print each patch as it is merged: revision, module and request, patch.

    Returns when the session ends; Ctrl-C leaves it (status 130). With --json each line is the entry
    of the journal.
    """
    with DaemonClient(socket) as client:
        failed = session_watch.watch(client, session_id, as_json=as_json)
    if failed is not None:
        end_with_failure(failed, as_json=as_json, module=SUPERVISOR, op="events")
