"""`stdiod top`: watch the modules: their states, rates, latencies and memory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import BROKEN_PIPE, NoDaemonError, remark
from supervisor.cli.options import SECONDS, example, with_json, with_socket
from supervisor.cli.results import print_json, result_of
from supervisor.cli.terminal import is_terminal
from supervisor.cli.top.figures import ARGS, Figures, Status, figures
from supervisor.cli.top.view import table

MAX_INTERVAL_S = 3600.0


@click.command(epilog=example("top", "top --once --json"))
@click.option("--once", is_flag=True, help="Watch for one interval, print a table, and exit.")
@click.option(
    "--interval",
    "interval_s",
    type=SECONDS,
    default=1.0,
    show_default=True,
    help="How long each set of figures is measured.",
)
@with_json
@with_socket
def top(once: bool, interval_s: float, as_json: bool, socket: Path) -> None:
    """Watch what the modules do, on a terminal, those in trouble first.

    CALLS/S counts the requests that were answered, FAIL/S those that failed; P50 and P99 are the
    times from acceptance to answer in the last interval, CPU is of one processor. Keys: arrows
    choose a module, r restarts it (y confirms), l shows its log, s changes the order, q quits.
    With --json it prints a line per interval.
    """
    if interval_s > MAX_INTERVAL_S:
        raise click.UsageError(f"--interval can be at most {MAX_INTERVAL_S:g} s")
    if once or as_json:
        if once:
            print_once(socket, interval_s, as_json=as_json)
        else:
            print_lines(socket, interval_s)
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or os.environ.get("TERM") == "dumb":
        words = "this is not a terminal; --once prints a table, --json lines for programs"
        raise click.UsageError(words)
    _watch(socket, interval_s)


def _watch(socket: Path, interval_s: float) -> None:
    from supervisor.cli.top.screen import watch

    # Errors are reported before the screen is taken over.
    with DaemonClient(socket) as client:
        first = _ask(client, as_json=False)
    try:
        if not watch(socket, interval_s, first):
            raise KeyboardInterrupt
    except (EOFError, OSError):  # the terminal is gone
        raise click.exceptions.Exit(BROKEN_PIPE) from None


def print_once(path: Path, interval_s: float, *, as_json: bool) -> None:
    """Print the figures of one interval; raises `NoDaemonError`."""
    with DaemonClient(path) as client:
        before = _ask(client, as_json=as_json)
        time.sleep(interval_s)
        now = figures(before, _ask(client, as_json=as_json))
    if as_json:
        _print_line(now)
    else:
        click.echo(table(now))


def print_lines(path: Path, interval_s: float) -> None:
    """Print a line of JSON per interval until Ctrl-C.

    Waits for a daemon that went away. Raises `NoDaemonError` without a daemon at first.
    """
    before: Status | None = None
    for after in _answers(path, interval_s):
        if before is not None:
            _print_line(figures(before, after))
        before = after


def _answers(path: Path, interval_s: float) -> Iterator[Status]:
    client: DaemonClient | None = DaemonClient(path)
    while True:
        try:
            if client is None:
                client = DaemonClient(path)
                remark("the daemon is back")
            yield _ask(client, as_json=True)
        except NoDaemonError as error:
            if client is not None:
                client.__exit__(None, None, None)
                client = None
                remark(f"trying again every {interval_s:g} s: {error.message}")
        time.sleep(interval_s)


def _ask(client: DaemonClient, *, as_json: bool) -> Status:
    status: Status = result_of(client.known("status", ARGS), as_json=as_json, module="status")
    return status


def _print_line(now: Figures) -> None:
    print_json({"ts": round(time.time(), 3), **msgspec.structs.asdict(now)})
