"""Print figures for scripts: a table once, or a line of JSON for each interval."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.results import print_json, result_of
from supervisor.cli.top.figures import Figures, Status, figures
from supervisor.cli.top.live import ARGS
from supervisor.cli.top.view import table


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
                click.echo("stdiod: the daemon is back", err=True)
            yield _ask(client, as_json=True)
        except NoDaemonError as error:
            if client is not None:
                client.__exit__(None, None, None)
                client = None
                words = f"stdiod: trying again every {interval_s:g} s: {error.message}"
                click.echo(words, err=True)
        time.sleep(interval_s)


def _ask(client: DaemonClient, *, as_json: bool) -> Status:
    status: Status = result_of(client.known("status", ARGS), as_json=as_json, module="status")
    return status


def _print_line(now: Figures) -> None:
    print_json({"ts": round(time.time(), 3), **msgspec.structs.asdict(now)})
