"""`stdiod events`: entries of the daemon's journal, in their order."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import Answer, DaemonClient
from supervisor.cli.exit_status import NoDaemonError, NoError
from supervisor.cli.options import TEXT, example, with_json, with_socket
from supervisor.cli.quantities import moment, time_of_day, utc_stamp
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import dim, is_terminal, one_line

MAX_LAST = 10_000
"""The limit of the daemon's op."""

LAST = 50

RECONNECT_S = (0.1, 0.2, 0.5, 1.0)
"""The pauses between a follower's attempts to reconnect; the last one repeats."""

_GOING = frozenset({"shutdown", "disconnect"})
"""Reasons by which an ending daemon answers its followers."""


@click.command(epilog=example("events -f --module dice"))
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Continue until Ctrl-C (status 130), even when the daemon is restarted.",
)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, MAX_LAST),
    metavar="N",
    help=f"How many of the last entries to show.  [default: {LAST}; all with --since]",
)
@click.option(
    "--since",
    type=lambda text: int(text) if text.isdecimal() else moment(text),
    metavar="SEQ|TIME",
    help="Show all entries after the one with this number (0: all there are), or since 10m, 2h or"
    " 3d ago, or since 18:30 or 2026-01-31T18:30.",
)
@click.option("--event", type=TEXT, metavar="PATTERN", help="Only events such as 'module:*'.")
@click.option("--module", type=TEXT, metavar="NAME", help="Only what is about this module.")
@click.option("--session", type=TEXT, metavar="ID", help="Only what is about this session.")
@with_json
@with_socket
def events(
    *,
    follow: bool,
    lines: int | None,
    since: float | None,
    event: str | None,
    module: str | None,
    session: str | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Show the journal: time, number, event, and what it was about.

    With --json each line is an entry (`stdiod schema event`), "seq" its number. With -f, nothing is
    lost or repeated when the daemon is restarted: the command waits for it and continues.
    """
    if follow and lines is not None and since is not None:
        raise click.UsageError(
            "--lines counts from the end, and --since from a number or time: give one with -f"
        )
    asked: dict[str, Any] = {"event": event, "module": module, "session_id": session}
    asked["follow"] = follow
    if isinstance(since, float):
        asked["since_ts"], since = since, 0
    last = lines if since is not None else None
    feed = _Feed(
        {name: value for name, value in asked.items() if value}, as_json=as_json, last=last
    )
    feed.place = {"last": LAST if lines is None else lines} if since is None else {"since": since}
    while True:
        answer = feed.read(socket)
        if answer is None:
            continue
        if answer.ok:
            feed.show_last()
            return
        if as_json:
            end_with_failure(answer, as_json=True, module="events")
        raise NoError(one_line(str(answer.error.get("message"))))


class _Feed:
    """The reader's place in the journal, over several connections."""

    def __init__(self, asked: dict[str, Any], *, as_json: bool, last: int | None) -> None:
        """Show each entry as it comes; or, with `last`, only the last ones, by `show_last`."""
        self._held: deque[tuple[dict[str, Any], str]] | None = (
            None if last is None else deque(maxlen=last)
        )
        self.place: dict[str, Any] = {}
        self._asked = asked
        self._follow = bool(asked.get("follow"))
        self._as_json = as_json
        self._live = is_terminal(sys.stdout)
        self._tries = 0
        self._gone = False

    def read(self, socket: Path) -> Answer | None:
        """Show entries up to the end; returns None if a follower is to reconnect."""
        try:
            with DaemonClient(socket) as client:
                answer = client.own("events", {**self._asked, **self.place}, self._show)
        except NoDaemonError:
            if not self._follow or "journal" not in self.place:
                raise
        else:
            details = answer.error.get("details") or {}
            if not (self._follow and details.get("reason") in _GOING):
                return answer
        self._wait()
        return None

    def _wait(self) -> None:
        if not self._gone:
            self._gone = True
            seq = self.place.get("since", 0)
            click.echo(f"stdiod: the daemon went away after {seq}; waiting for it", err=True)
        time.sleep(RECONNECT_S[min(self._tries, len(RECONNECT_S) - 1)])
        self._tries += 1

    def _show(self, event: dict[str, Any], line: bytes) -> None:
        del line
        fields = event.get("fields") or {}
        if "seq" not in fields:
            self._take_heading(event, fields)
            return
        self.place["since"] = fields["seq"]
        if self._held is None:
            self._show_entry(fields, event["message"])
        else:
            self._held.append((fields, event["message"]))

    def show_last(self) -> None:
        for fields, words in self._held or ():
            self._show_entry(fields, words)

    def _show_entry(self, fields: dict[str, Any], words: str) -> None:
        if self._as_json:
            print_json(fields)
            return
        when = time_of_day(fields["ts"]) if self._live else utc_stamp(fields["ts"])
        click.echo(f"{dim(when)} {fields['seq']} {one_line(words)}")

    def _take_heading(self, event: dict[str, Any], fields: dict[str, Any]) -> None:
        if self._gone:
            click.echo("stdiod: the daemon is back", err=True)
        self._gone, self._tries = False, 0
        if "journal" in fields:
            # From here on the place is a number, with the journal that it belongs to.
            self.place = {"since": fields["since"], "journal": fields["journal"]}
        if event.get("level") != "info":
            click.echo(f"stdiod: {one_line(str(event.get('message')))}", err=True)
