"""Candidates for a word that a shell completes.

A shell shows whatever is written, so nothing is: without an answer from a daemon there are no
candidates.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from supervisor.cli.client import DaemonClient, NoAnswerError
from supervisor.cli.options import Kind
from supervisor.cli.project import absolute_socket, default_socket

PATIENCE_S = 0.5
"""A person waits for the completion."""


def candidates(
    kind: Kind, ctx: click.Context, incomplete: str, taken: tuple[str, ...] = ()
) -> list[CompletionItem]:
    """Return the daemon's names that begin with `incomplete`, without those `taken`."""
    found: dict[str, str] = {}
    with (
        contextlib.redirect_stderr(io.StringIO()),
        # An answer of another version may have another form.
        contextlib.suppress(
            click.ClickException, NoAnswerError, OSError, AttributeError, KeyError, TypeError
        ),
    ):
        found = _known(kind, ctx)
    return [
        CompletionItem(name, help=words)
        for name, words in found.items()
        if name.startswith(incomplete) and name not in taken
    ]


def _known(kind: Kind, ctx: click.Context) -> dict[str, str]:
    """Return names, each with a word about it."""
    match kind:
        case Kind.MODULE:
            modules = _ask(ctx, "status", {})["modules"]
            return {one["name"]: one["state"] for one in modules}
        case Kind.OP:
            ops = _ask(ctx, "status", {"module": ctx.params["module"]})["ops"]
            return dict.fromkeys(ops["names"], "")
        case Kind.SESSION:
            sessions = _ask(ctx, "session.list", {})["sessions"]
            return {one["session_id"]: one.get("title") or one["status"] for one in sessions}
        case Kind.TOKEN:
            tokens = _ask(ctx, "token.list", {})["tokens"]
            return {one["name"]: ", ".join(one["scopes"]) for one in tokens}


def _ask(ctx: click.Context, op: str, args: dict[str, Any]) -> dict[str, Any]:
    given = ctx.params.get("socket") or ctx.find_root().params.get("socket")
    with DaemonClient(absolute_socket(Path(given) if given else default_socket())) as client:
        result: dict[str, Any] = client.own(op, args, timeout_s=PATIENCE_S).result
    return result
