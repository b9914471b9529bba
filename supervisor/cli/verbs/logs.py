"""`stdiod logs`: what modules wrote to stderr, and what the daemon noted about them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import Answer, DaemonClient
from supervisor.cli.exit_status import NO
from supervisor.cli.many_modules import chosen, with_modules
from supervisor.cli.options import Lines, example, with_json, with_socket
from supervisor.cli.quantities import moment, time_of_day, utc_stamp
from supervisor.cli.results import print_json, result_of, tell_failure
from supervisor.cli.terminal import dim, is_terminal, one_line

MAX_LINES = 10_000
"""The limit of the daemon's op."""

LAST = 50

Entry = dict[str, Any]
"""A line of a log: `ts`, `instance`, `stream`, `text`."""

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow")


@click.command(epilog=example("logs dice -n 100", "logs -f dice torch"))
@with_modules
@click.option("-f", "--follow", is_flag=True, help="Continue until Ctrl-C (status 130).")
@click.option(
    "-n",
    "--lines",
    type=Lines(MAX_LINES),
    metavar="N",
    help=f"How many of the last lines of each.  [default: {LAST}; {MAX_LINES} with --since]",
)
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="Only lines since 10m, 2h or 3d ago, or since 18:30 or 2026-01-31T18:30.",
)
@with_json
@with_socket
def logs(
    *,
    modules: tuple[str, ...],
    every: bool,
    follow: bool,
    lines: int | None,
    since: float | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Show the log of each MODULE: time, instance, stream, text.

    Several logs are merged by time. The stream is `stderr`, `event` for what the module logs during
    a request, `log` for what it logs outside of one, or `host` for what the daemon noted. With
    --json each line is {"ts","instance","stream","text"}, `ts` in seconds since 1970.
    """
    with DaemonClient(socket) as client:
        names = chosen(client, modules, every=every)
        show = _Shown(names, as_json=as_json, since=since or 0.0)
        if lines is None:
            lines = LAST if since is None else MAX_LINES
        if len(modules) == 1:
            args = {"module": names[0], "lines": lines, "follow": follow}
            answer = client.own("logs", args, lambda event, _: show.event(event, show.line))
            result_of(answer, as_json=as_json, module=names[0])
        elif not _merged(client, names, lines, show, follow=follow):
            raise click.exceptions.Exit(NO)


def _merged(
    client: DaemonClient, names: list[str], lines: int, show: _Shown, *, follow: bool
) -> bool:
    """Show the last lines of all logs by time, then new ones.

    Returns whether all logs exist. New lines are followed before the last ones are asked for, so
    that none is missed; a line that comes twice is shown once.
    """
    follows = [{"module": one, "lines": 0, "follow": True} for one in names] if follow else []
    tails = [{"module": one, "lines": lines, "follow": False} for one in names]
    last: list[Entry] = []
    come: list[Entry] = []
    waiting = set(range(len(follows), len(follows) + len(tails)))

    def take(number: int, event: dict[str, Any], line: bytes) -> None:
        del line
        if number in waiting:
            show.event(event, last.append)
        else:
            show.event(event, come.append if waiting else show.line)

    well = True
    for number, answer in client.own_together([("logs", one) for one in (*follows, *tails)], take):
        if number < len(follows):
            continue  # an unknown module: the answer for its last lines reports it
        waiting.remove(number)
        if not answer.ok:
            well = False
            show.failure(answer, names[number - len(follows)])
        if not waiting:
            for entry in _in_order(last, come):
                show.line(entry)
    return well


def _in_order(last: list[Entry], come: list[Entry]) -> list[Entry]:
    """Merge by time; a line in both lists is taken once."""
    twice = Counter(map(_key, last)) & Counter(map(_key, come))
    fresh = []
    for entry in come:
        if twice[_key(entry)]:
            twice[_key(entry)] -= 1
        else:
            fresh.append(entry)
    return sorted([*last, *fresh], key=lambda entry: entry["ts"])


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[one] for one in ("ts", "instance", "stream", "text"))


class _Shown:
    """Shows lines; each of several modules has a colour."""

    def __init__(self, names: list[str], *, as_json: bool, since: float) -> None:
        several = len(names) > 1
        self._colours = dict(zip(names, cycle(_COLOURS), strict=False)) if several else {}
        self._as_json = as_json
        self._since = since
        self._live = is_terminal(sys.stdout)

    def event(self, event: dict[str, Any], take: Callable[[Entry], object]) -> None:
        """Pass on the line of an event; or show a message of the daemon."""
        fields = event.get("fields")
        if fields and fields["ts"] >= self._since:
            take({**fields, "text": event["message"]})
        elif not fields:  # lines were left out
            click.echo(f"stdiod: {one_line(str(event.get('message')))}", err=True)

    def line(self, entry: Entry) -> None:
        if self._as_json:
            print_json(entry)
            return
        when = time_of_day(entry["ts"]) if self._live else utc_stamp(entry["ts"])
        instance = one_line(entry["instance"])
        module = instance.rpartition("#")[0] or instance
        where = click.style(instance, fg=self._colours.get(module))
        said = one_line(entry["text"])
        text = dim(said) if entry["stream"] == "host" else said
        click.echo(f"{dim(when)} {where} {entry['stream']} {text}")

    def failure(self, answer: Answer, module: str) -> None:
        tell_failure(answer, as_json=self._as_json, module=module)
