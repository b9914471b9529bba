"""`stdiod session` and `prompt`: the state that modules share, and what is asked of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import click

from protocol.client import Answer, RequestEvent
from supervisor.cli.args import read_args
from supervisor.cli.client import SUPERVISOR, given_args, own_op
from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.event_text import EventPrinter
from supervisor.cli.exit_status import NoDaemonError, interruption
from supervisor.cli.options import SECONDS, SESSION, TEXT, F, Subverbs, example
from supervisor.cli.quantities import ago, count, duration, time_of_day
from supervisor.cli.results import echo_json, print_laid_out, short
from supervisor.cli.terminal import (
    GAP,
    column_widths,
    columns_of_stdout,
    dim,
    is_terminal,
    one_line,
    row_width,
    safe,
    table_line,
)

MAX_PAGE = 1000
"""The limit of the daemon's op."""

_JSON = "JSON|@FILE|-"


@click.group(cls=Subverbs, epilog=example("session new --id walk --title 'A walk'"))
def session() -> None:
    """Begin, show, change, fork, end and watch sessions, the state that modules share."""


_with_id = click.argument("session_id", type=SESSION, metavar="ID")

_ROLES = {
    "--agent": "The agent that serves its prompts.",
    "--orchestrator": "Or the orchestrator that does so, with",
    "--context": "the context that keeps its messages,",
    "--provider": "the provider that it asks,",
    "--tool": "and a tool that it may call; repeat it for more.",
}


def _with_roles(function: F) -> F:
    """Add options for the modules that serve the session's prompts; the verb gets `roles`."""

    @functools.wraps(function)
    def called(*, tool: tuple[str, ...], **others: Any) -> Any:
        named = {option[2:]: others.pop(option[2:], None) for option in _ROLES}
        roles = given_args(**named, tools=tool or None)
        return function(roles=roles or None, **others)

    command = cast("F", called)
    for option, words in reversed(_ROLES.items()):
        multiple = option == "--tool"
        add = click.option(option, type=TEXT, metavar="MODULE", multiple=multiple, help=words)
        command = add(command)
    return command


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
@with_daemon
def new(*, plan: str | None, state: str | None, daemon: DaemonVerb, **args: Any) -> None:
    """Begin a session and print its id."""
    for name, given in (("plan", plan), ("state", state)):
        args[name] = None if given is None else read_args(given, f"--{name}")
    found = daemon.call("session.new", **args)
    daemon.show(found, found["session_id"])


@session.command("list", epilog=example("session list --all"))
@click.option("-a", "--all", "ended", is_flag=True, help="Include those that have ended.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=TEXT, metavar="ID", help="Continue after this one.")
@with_daemon
def list_(*, ended: bool, limit: int, after: str | None, daemon: DaemonVerb) -> None:
    """List the sessions, the newest first."""
    found = daemon.call("session.list", ended=ended, limit=limit, after=after)
    daemon.show(found, partial(_print_list, ended=ended))


def _print_list(found: dict[str, Any], *, ended: bool) -> None:
    if found["sessions"]:
        click.echo(table(found["sessions"], columns_of_stdout()))
    else:
        click.echo("no sessions" if ended or not found["ended"] else "no sessions but ended ones")
    if found["next"] is not None:
        click.echo(f"there are more: --after {one_line(found['next'])}", err=True)


@session.command(epilog=example("session show walk"))
@_with_id
@with_daemon
def show(*, session_id: str, daemon: DaemonVerb) -> None:
    """Show a session: plan, history and state."""
    daemon.show(daemon.call("session.show", session_id=session_id), _print_session)


def _print_session(found: dict[str, Any]) -> None:
    click.echo("\n".join(_lines(found)))
    print_laid_out(found["state"])


@session.command(epilog=example("session fork walk --id night"))
@_with_id
@click.option(
    "--id",
    "new_id",
    type=TEXT,
    metavar="ID",
    help="The id of the new session; made up if left out.",
)
@click.option("--title", type=TEXT, help="The title of the new session.")
@_with_roles
@with_daemon
def fork(*, daemon: DaemonVerb, **args: Any) -> None:
    """Begin a session with the state, the plan and the roles of another, and print its id."""
    found = daemon.call("session.fork", **args)
    daemon.show(found, found["session_id"])


@session.command(epilog=example("session end walk"))
@_with_id
@with_daemon
def end(*, session_id: str, daemon: DaemonVerb) -> None:
    """End a session; what is in flight for it is cancelled."""
    found = daemon.call("session.end", session_id=session_id)
    cancelled = found["cancelled"]
    others = f"; {count(cancelled, 'invocation')} cancelled" if cancelled else ""
    daemon.show(found, f"{one_line(session_id)} has ended{others}")


@session.command(epilog=example("session cancel walk"))
@_with_id
@click.option("--force", is_flag=True, help="Cancel everything else that is in flight for it, too.")
@with_daemon
def cancel(*, session_id: str, force: bool, daemon: DaemonVerb) -> None:
    """Cancel the prompt that a session serves, and those that wait."""
    found = daemon.call("session.cancel", session_id=session_id, force=force or None)
    number = count(found["cancelled"], "request" if force else "prompt")
    daemon.show(found, f"{number} cancelled")


@session.command(epilog=example("session patch walk '{\"torchRoom\":null}' --if-revision 1"))
@_with_id
@click.argument("given", metavar="PATCH")
@click.option(
    "--if-revision",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only if the state still has this revision.",
)
@with_daemon
def patch(*, session_id: str, given: str, if_revision: int | None, daemon: DaemonVerb) -> None:
    """Change the state by PATCH: a JSON Merge Patch, @FILE, or - for stdin.

    A null removes a member; arrays are replaced as a whole.
    """
    args = {"patch": read_args(given, "the patch"), "if_revision": if_revision}
    found = daemon.call("session.patch", session_id=session_id, **args)
    daemon.show(found, f"{one_line(session_id)} has revision {found['revision']}")


@session.command(epilog=example("session watch walk"))
@_with_id
@with_daemon
def watch(*, session_id: str, daemon: DaemonVerb) -> None:
    """Print each patch as it is merged: revision, module and request, patch.

    Returns when the session ends; Ctrl-C leaves it (status 130). With --json each line is the entry
    of the journal.
    """
    result = partial(daemon.result, module=SUPERVISOR, op="events")
    with daemon.connect() as client:
        status = result(client.known("status"))
        args = {"session_id": session_id}
        shown = result(client.known("session.show", args))
        now, revision = shown["status"], shown["revision"]
        click.echo(f"{one_line(session_id)} is {now} at revision {revision}", err=True)
        if now == "ended":
            return
        # The journal is followed from a place before the session is read, and entries up to the
        # revision read are skipped, so nothing is missed between the two.
        journal = status["daemon"].get("journal") or {}
        place = {"event": "session:*", "follow": True, "since": journal.get("last_seq") or 0}
        client.send(*own_op("events", {**args, **place}))
        for event in client.events():
            if isinstance(event, Answer):
                result(event)
                return
            if isinstance(event, RequestEvent):
                entry = event.document.get("fields") or {}
                name, data = entry.get("event"), entry.get("data") or {}
                if name == "session:patch" and data.get("revision", 0) > revision:
                    daemon.show(entry, partial(change_line, live=is_terminal(sys.stdout)))
                elif name == "session:end":
                    daemon.show(entry, lambda _: None)
                    click.echo("the session has ended", err=True)
                    return
    raise NoDaemonError("the daemon closed the connection")


OP = "session.prompt"
PRIORITIES = ("low", "normal", "high", "urgent")

_CHUNK = "message.chunk"
_COURSE = frozenset(
    {"prompt.received", "prompt.started", "message.start", "message.complete", "message.error"}
)
"""Events whose effects a person sees anyway."""


@click.command(epilog=example("prompt walk 'What is in the hall?'"))
@click.argument("session_id", type=SESSION, metavar="SESSION")
@click.argument("text", type=TEXT)
@click.option("--priority", type=click.Choice(PRIORITIES), default="normal", show_default=True)
@click.option("--reject", is_flag=True, help="Do not wait if the session already serves a prompt.")
@click.option("--timeout", "timeout_s", type=SECONDS, help="Instead of the module's own.")
@with_daemon
def prompt(*, session_id: str, text: str, reject: bool, daemon: DaemonVerb, **options: Any) -> None:
    """Give SESSION a prompt: TEXT, or - to read it from stdin.

    The answer goes to stdout as it is said; thoughts, tool calls and the wait for another prompt
    go to stderr. With --json, each event goes to stdout as it comes, one per line, and the
    response comes last. Ctrl-C cancels the prompt.
    """
    args = given_args(
        session_id=session_id,
        content=sys.stdin.read() if text == "-" else text,
        conflict_strategy="reject" if reject else "queue",
        **options,
    )
    printer, said = EventPrinter(), ""

    def show(event: dict[str, Any], line: bytes) -> None:
        nonlocal said
        content = (event.get("payload") or {}).get("content")
        if daemon.as_json:
            echo_json(line)
        elif event.get("event") == _CHUNK and isinstance(content, str):
            printer.close_line()
            click.echo(safe(content), nl=False)
            said = content or said
        elif event.get("event") not in _COURSE:
            printer.show(event)

    words = one_line(f"the prompt of {session_id} was cancelled")
    with interruption(words), daemon.connect() as client:
        answer = client.own(OP, args, show)
    if not daemon.as_json:
        printer.close_line()
        if answer.ok and not said:  # an answer without chunks
            said = answer.result["content"]
            click.echo(safe(said), nl=False)
        if said and not said.endswith("\n"):
            click.echo()
    daemon.result(answer, SUPERVISOR, OP)
    daemon.show(answer.document, lambda _: None)


STATUS_COLOURS = {
    "idle": "green",
    "busy": "cyan",
    "cancelled": "yellow",
    "error": "red",
    "ended": "bright_black",
}

_COLUMNS = ("ID", "STATUS", "REVISION", "INVOCATIONS", "CHANGED", "TITLE")
_RIGHT = frozenset({"REVISION", "INVOCATIONS", "CHANGED"})
_LEAVE_OUT = ("INVOCATIONS", "REVISION", "CHANGED")
_SHORT_TITLE = 12
"""Titles are cut to this before a column is left out."""
_LABEL_WIDTH = 12
_HISTORY_SHOWN = 10


def status_word(status: str) -> str:
    """Return a status in its colour; it may be padded."""
    return click.style(status, fg=STATUS_COLOURS.get(status.rstrip()))


def table(sessions: list[dict[str, Any]], width: int | None) -> str:
    """Return a table of sessions.

    `width` is the terminal's, if there is one. On a narrow terminal columns are left out in the
    order of `_LEAVE_OUT`, and titles are cut.
    """
    rows = [_row(session) for session in sessions]
    widths = column_widths(_COLUMNS, rows)
    columns = list(_COLUMNS)
    if width is not None:
        least = {**widths, "TITLE": min(widths["TITLE"], _SHORT_TITLE)}
        for name in _LEAVE_OUT:
            if row_width(columns, least) > width:
                columns.remove(name)
        left = width - row_width(columns[:-1], widths) - len(GAP)
        widths["TITLE"] = max(0, min(widths["TITLE"], left))
    line = partial(table_line, columns, widths, right=_RIGHT, paint=_in_colour)
    return "\n".join([dim(line()), *map(line, rows)])


def _in_colour(column: str, text: str) -> str:
    return status_word(text) if column == "STATUS" else text


def change_line(event: dict[str, Any], *, live: bool) -> str:
    """Return a journal entry about a session's state as a line; the time is short if `live`."""
    data = event.get("data") or {}
    who = event.get("module") or "a client"
    request = f" {event['request_id']}" if event.get("request_id") else ""
    when = dim(time_of_day(event["ts"])) + " " if live else ""
    revision = click.style(f"#{data.get('revision')}", fg="magenta")
    return f"{when}{revision} {one_line(who + request)} {short(data.get('patch'))}"


def _row(session: dict[str, Any]) -> dict[str, str]:
    return {
        "ID": one_line(session["session_id"]),
        "STATUS": session["status"],
        "REVISION": str(session["revision"]),
        "INVOCATIONS": str(session["invocations"]),
        "CHANGED": ago(session["updated"]),
        "TITLE": one_line(session["title"] or ""),
    }


def _lines(session: dict[str, Any]) -> Iterator[str]:
    name = click.style(one_line(session["session_id"]), bold=True)
    yield f"{name}: {status_word(session['status'])}"
    if session["title"]:
        yield one_line(session["title"])
    yield ""
    for label, text in _facts(session).items():
        if text:
            yield dim(label.ljust(_LABEL_WIDTH)) + text
    history = session["history"]
    for number, past in enumerate(history[-_HISTORY_SHOWN:]):
        yield dim(("" if number else "history").ljust(_LABEL_WIDTH)) + _past(past)
    yield ""
    yield dim(f"state at revision {session['revision']}")


def _facts(session: dict[str, Any]) -> dict[str, str]:
    parent, plan = session["parent"], session["plan"]
    since = f"began {ago(session['created'])}, changed {ago(session['updated'])}"
    roles = session["roles"]
    tools = {"tools": ", ".join(roles["tools"])} if roles.get("tools") else {}
    return {
        "folder": one_line(session["cwd"] or ""),
        "roles": one_line("; ".join(f"{role} {name}" for role, name in (roles | tools).items())),
        "since": since + (f", ended {ago(session['ended'])}" if session["ended"] else ""),
        "fork of": (
            ""
            if parent is None
            else f"{one_line(parent['session_id'])} at revision {parent['revision']}"
        ),
        "goal": "" if plan is None else one_line(str(plan.get("goal"))),
        "inputs": short(plan["inputs"]) if plan and plan.get("inputs") else "",
        "requests": (
            f"{session['in_flight']} in flight, {count(session['invocations'], 'invocation')} ended"
        ),
    }


def _past(past: dict[str, Any]) -> str:
    ended = (
        click.style("ok", fg="green")
        if past["ok"]
        else click.style(one_line(str(past["code"])), fg="red")
    )
    what = one_line(f"{past['module']}.{past['op']}")
    when = f"({ago(past['ts'])}, took {duration(past['duration_ms'] / 1000)})"
    return f"{what} {ended} {dim(when)}"
