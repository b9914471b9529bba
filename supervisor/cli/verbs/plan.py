"""`stdiod plan`: let an orchestrator carry out a plan, in a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from protocol.plan import plan_problems
from supervisor.cli.args import read_args
from supervisor.cli.client import DaemonClient, NoAnswerError, given_args
from supervisor.cli.exit_status import NO, NoDaemonError, NoError
from supervisor.cli.options import SECONDS, TEXT, Subverbs, example, with_json, with_socket
from supervisor.cli.results import own_result
from supervisor.cli.terminal import one_line
from supervisor.cli.verbs.invoke import Shown, ask_daemon

END_S = 10.0
"""How long the end of the session may take; its entries are kept either way."""


@click.group(cls=Subverbs, epilog=example("plan run plan.json --with planner"))
def plan() -> None:
    """Carry out plans: {"goal": TEXT, "inputs": OBJECT}."""


@plan.command(epilog=example("plan run plan.json --with planner"))
@click.argument("file", metavar="PLAN.json", type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--with",
    "orchestrator",
    type=TEXT,
    required=True,
    metavar="MODULE",
    help="The module that carries it out.",
)
@click.option("--op", type=TEXT, default="execute", show_default=True, help="The op to call.")
@click.option(
    "--session",
    "session_id",
    type=TEXT,
    metavar="ID",
    help="A session that continues afterwards.  [default: one for the plan, which then ends]",
)
@click.option(
    "--timeout", "timeout_s", type=SECONDS, help="Instead of the module's timeouts.invoke_s."
)
@with_json
@with_socket
def run(
    *,
    file: Path,
    orchestrator: str,
    op: str,
    session_id: str | None,
    timeout_s: float | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Have a module carry out the plan in PLAN.json ("-" for stdin).

    Invokes it with {"plan": the plan, "prompt": its goal}. Events and the result are shown as by
    `invoke`. Ctrl-C cancels the invocation.
    """
    document = _read(file)
    show = Shown(as_json=as_json, with_daemon=True)
    args = {"plan": document, "prompt": document["goal"]}
    content = given_args(op=op, args=args, timeout_s=timeout_s)
    with _session(socket, session_id, document, as_json=as_json) as content["session_id"]:
        response = ask_daemon(socket, orchestrator, content, show.event)
    show.response(response)
    if not response.get("ok"):
        raise click.exceptions.Exit(NO)


def _read(file: Path) -> dict[str, Any]:
    document = read_args("-" if str(file) == "-" else f"@{file}", "PLAN.json")
    problems = plan_problems(document)
    if problems:
        lines = [f"{one_line(str(file))}: {problem}" for problem in problems]
        raise NoError("the plan is not valid\n" + "\n".join(lines))
    return document


@contextlib.contextmanager
def _session(
    socket: Path, session_id: str | None, document: dict[str, Any], *, as_json: bool
) -> Iterator[str]:
    """Yield the id of a session; a new one ends with the block."""
    if session_id is not None:
        yield session_id
        return
    found = own_result(socket, "session.new", {"plan": document}, as_json=as_json)
    own: str = found["session_id"]
    try:
        yield own
    finally:
        # An error is reported already; a daemon that is gone cannot end the session.
        with contextlib.suppress(NoDaemonError, NoAnswerError), DaemonClient(socket) as client:
            client.own("session.end", {"session_id": own}, timeout_s=END_S)
