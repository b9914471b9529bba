"""`stdiod wait`: return when modules are ready, or down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import DaemonClient, NoAnswerError
from supervisor.cli.exit_status import NO, NoError
from supervisor.cli.many_modules import chosen, with_modules
from supervisor.cli.options import SECONDS, example, with_json, with_socket
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json, result_of
from supervisor.cli.terminal import Ticker, one_line


@click.command(epilog=example("wait dice torch --timeout 20", "wait --all"))
@with_modules
@click.option(
    "--for",
    "goal",
    type=click.Choice(["ready", "down"]),
    default="ready",
    show_default=True,
    help="What to wait for.",
)
@click.option("--timeout", "timeout_s", type=SECONDS, help="Give up after so many seconds.")
@with_json
@with_socket
def wait(
    *,
    modules: tuple[str, ...],
    every: bool,
    goal: str,
    timeout_s: float | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Wait until each MODULE is ready, or down.

    Exits with 1 as soon as one of them cannot get there by itself (it failed too often, or was
    stopped), or when the time is over.
    """
    with DaemonClient(socket) as client, Ticker(silent=as_json) as ticker:
        pending = chosen(client, modules, every=every)
        last = ", ".join(pending)
        ticker.show(one_line(f"waiting for {last}"))

        def progress(event: dict[str, Any], line: bytes) -> None:
            nonlocal last
            del line
            ticker.line(one_line(str(event.get("message"))))
            if event.get("level") == "debug":
                return  # about a module that is still pending
            last = str((event.get("fields") or {}).get("module"))
            if last in pending:
                pending.remove(last)
            ticker.show(one_line(f"waiting for {', '.join(pending)}" if pending else ""))

        try:
            answer = client.own("wait", {"modules": pending[:], "for": goal}, progress, timeout_s)
        except NoAnswerError:
            words = f"not {goal} after {timeout_s:g} s: {one_line(', '.join(pending))}"
            if not as_json:
                raise NoError(words) from None
            details = {"reason": "deadline", "modules": pending}
            error = {"code": "timeout", "message": words, "details": details}
            print_json({"ok": False, "error": error})
            raise click.exceptions.Exit(NO) from None
    # The module of the last event is the one that cannot get there.
    found = result_of(answer, as_json=as_json, module=last)
    if as_json:
        print_json(found)
    else:
        number = len(found["modules"])
        are = "is" if number == 1 else "are"
        click.echo(f"{count(number, 'module')} {are} {goal}")
