"""`stdiod prompt`: give a session a prompt, show the answer as it comes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import SUPERVISOR, DaemonClient, given_args
from supervisor.cli.event_text import EventPrinter
from supervisor.cli.exit_status import interruption
from supervisor.cli.options import SECONDS, SESSION, TEXT, example, with_json, with_socket
from supervisor.cli.results import echo_json, end_with_failure, print_json
from supervisor.cli.terminal import one_line, safe

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
@with_json
@with_socket
def prompt(
    *,
    session_id: str,
    text: str,
    priority: str,
    reject: bool,
    timeout_s: float | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Give SESSION a prompt: TEXT, or - to read it from stdin.

    The answer goes to stdout as it is said; thoughts, tool calls and the wait for another prompt
    go to stderr. With --json, each event goes to stdout as it comes, one per line, and the
    response comes last. Ctrl-C cancels the prompt.
    """
    args = given_args(
        session_id=session_id,
        content=sys.stdin.read() if text == "-" else text,
        priority=priority,
        conflict_strategy="reject" if reject else "queue",
        timeout_s=timeout_s,
    )
    shown = _Answer(as_json=as_json)
    words = one_line(f"the prompt of {session_id} was cancelled")
    with interruption(words), DaemonClient(socket) as client:
        answer = client.own(OP, args, shown.event)
    shown.end(answer.result if answer.ok else None)
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=SUPERVISOR, op=OP)
    if as_json:
        print_json(answer.document)


class _Answer:
    """The output of a prompt."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._printer = EventPrinter()
        self._said = ""

    def event(self, event: dict[str, Any], line: bytes) -> None:
        if self._as_json:
            echo_json(line)
            return
        name = event.get("event")
        content = (event.get("payload") or {}).get("content")
        if name == _CHUNK and isinstance(content, str):
            self._printer.close_line()
            click.echo(safe(content), nl=False)
            self._said = content or self._said
        elif name not in _COURSE:
            self._printer.show(event)

    def end(self, result: dict[str, Any] | None) -> None:
        """End the last line; an answer without chunks is shown now."""
        if self._as_json:
            return
        self._printer.close_line()
        if not self._said and result is not None:
            self._said = result["content"]
            click.echo(safe(self._said), nl=False)
        if self._said and not self._said.endswith("\n"):
            click.echo()
