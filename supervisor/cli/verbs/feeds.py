"""`stdiod logs`, `events`, `ui` and `record`: what happens, and what did."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from protocol.client import Answer
from supervisor.cli.client import DaemonClient, given_args, own_op
from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.event_text import event_line
from supervisor.cli.exit_status import INTERRUPTED, NoDaemonError, NoError, exit_unless, remark
from supervisor.cli.options import (
    MODULE,
    SECONDS,
    TEXT,
    Lines,
    example,
    with_modules,
    with_socket,
)
from supervisor.cli.quantities import moment, stamp
from supervisor.cli.results import (
    echo_json,
    print_json,
    result_of,
    show_message,
    tell_failure,
)
from supervisor.cli.terminal import dim, is_terminal, one_line

MAX_LINES = 10_000
"""The limit of the daemon's op."""

LAST = 50
"""Lines or entries, unless more are asked for."""

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
@with_daemon
def logs(
    *,
    modules: tuple[str, ...],
    follow: bool,
    lines: int | None,
    since: float | None,
    daemon: DaemonVerb,
) -> None:
    """Show the log of each MODULE: time, instance, stream, text.

    Several logs are merged by time. The stream is `stderr`, `event` for what the module logs during
    a request, `log` for what it logs outside of one, or `host` for what the daemon noted. With
    --json each line is {"ts","instance","stream","text"}, `ts` in seconds since 1970.
    """
    with daemon.connect() as client:
        names = client.chosen(modules)
        show = _LineView(daemon, names, since or 0.0)
        if lines is None:
            lines = LAST if since is None else MAX_LINES
        if len(modules) == 1:
            args = {"module": names[0], "lines": lines, "follow": follow}
            answer = client.own("logs", args, lambda event, _: show.event(event, show.line))
            daemon.result(answer, names[0])
        else:
            exit_unless(_merged(client, names, lines, show, follow=follow))


def _merged(
    client: DaemonClient, names: list[str], lines: int, show: _LineView, *, follow: bool
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

    def take(number: int, event: dict[str, Any], _: bytes) -> None:
        if number in waiting:
            show.event(event, last.append)
        else:
            show.event(event, come.append if waiting else show.line)

    well = True
    for number, answer in client.together(
        [own_op("logs", one) for one in (*follows, *tails)], take
    ):
        if number < len(follows):
            continue  # an unknown module: the answer for its last lines reports it
        waiting.remove(number)
        if not answer.ok:
            well = False
            module = names[number - len(follows)]
            tell_failure(answer, as_json=show.as_json, module=module, alone=False)
        if not waiting:
            for entry in _by_time(last, come):
                show.line(entry)
    return well


def _by_time(last: list[Entry], come: list[Entry]) -> list[Entry]:
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


class _LineView:
    """Shows lines; each of several modules has a colour."""

    def __init__(self, daemon: DaemonVerb, names: list[str], since: float) -> None:
        several = len(names) > 1
        self._colours = dict(zip(names, cycle(_COLOURS), strict=False)) if several else {}
        self.as_json = daemon.as_json
        self._since = since
        self._live = is_terminal(sys.stdout)

    def event(self, event: dict[str, Any], take: Callable[[Entry], object]) -> None:
        """Pass on the line of an event; or show a message of the daemon."""
        fields = event.get("fields")
        if fields and fields["ts"] >= self._since:
            take({**fields, "text": event["message"]})
        elif not fields:  # lines were left out
            show_message(event)

    def line(self, entry: Entry) -> None:
        if self.as_json:
            print_json(entry)
            return
        when = stamp(entry["ts"], live=self._live)
        instance = one_line(entry["instance"])
        module = instance.rpartition("#")[0] or instance
        where = click.style(instance, fg=self._colours.get(module))
        said = one_line(entry["text"])
        text = dim(said) if entry["stream"] == "host" else said
        click.echo(f"{dim(when)} {where} {entry['stream']} {text}")


MAX_LAST = 10_000
"""The limit of the daemon's op."""

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
@with_daemon
def events(
    *,
    follow: bool,
    lines: int | None,
    since: float | None,
    event: str | None,
    module: str | None,
    session: str | None,
    daemon: DaemonVerb,
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
    asked = {name: value for name, value in asked.items() if value}
    feed = _Feed(daemon, asked, last=lines if since is not None else None)
    feed.place = {"last": LAST if lines is None else lines} if since is None else {"since": since}
    while (answer := feed.read()) is None:
        pass
    if answer.ok:
        feed.show_last()
        return
    if daemon.as_json:
        daemon.result(answer, "events")
    raise NoError(one_line(str(answer.error.get("message"))))


class _Feed:
    """The reader's place in the journal, over several connections."""

    def __init__(self, daemon: DaemonVerb, asked: dict[str, Any], *, last: int | None) -> None:
        """Show each entry as it comes; or, with `last`, only the last ones, by `show_last`."""
        self._held = None if last is None else deque[dict[str, Any]](maxlen=last)
        self.place: dict[str, Any] = {}
        self._daemon = daemon
        self._asked = asked
        self._live = is_terminal(sys.stdout)
        self._tries = 0
        self._gone = False

    def read(self) -> Answer | None:
        """Show entries up to the end; returns None if a follower is to reconnect."""
        follow = "follow" in self._asked
        try:
            with self._daemon.connect() as client:
                answer = client.own("events", {**self._asked, **self.place}, self._take)
        except NoDaemonError:
            if not follow or "journal" not in self.place:
                raise
        else:
            details = answer.error.get("details") or {}
            if not (follow and details.get("reason") in _GOING):
                return answer
        if not self._gone:
            self._gone = True
            seq = self.place.get("since", 0)
            remark(f"the daemon went away after {seq}; waiting for it")
        time.sleep(RECONNECT_S[min(self._tries, len(RECONNECT_S) - 1)])
        self._tries += 1
        return None

    def _take(self, event: dict[str, Any], _: bytes) -> None:
        fields = event.get("fields") or {}
        if "seq" in fields:
            self.place["since"] = fields["seq"]
            if self._held is None:
                self._show(event)
            else:
                self._held.append(event)
            return
        if self._gone:
            remark("the daemon is back")
        self._gone, self._tries = False, 0
        if "journal" in fields:
            # From here on the place is a number, with the journal that it belongs to.
            self.place = {"since": fields["since"], "journal": fields["journal"]}
        if event.get("level") != "info":
            show_message(event)

    def show_last(self) -> None:
        for event in self._held or ():
            self._show(event)

    def _show(self, event: dict[str, Any]) -> None:
        def text(entry: dict[str, Any]) -> str:
            when = dim(stamp(entry["ts"], live=self._live))
            return f"{when} {entry['seq']} {one_line(event['message'])}"

        self._daemon.show(event["fields"], text)


@click.command(epilog=example("ui --event 'approval.*'"))
@click.option(
    "--event",
    "events",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="Only those of this name; tool.* for all that begin so.",
)
@click.option("--session", type=TEXT, metavar="ID", help="Only those of a session.")
@click.option("--module", type=TEXT, metavar="NAME", help="Only those of a module.")
@with_daemon
def ui(
    *, events: tuple[str, ...], session: str | None, module: str | None, daemon: DaemonVerb
) -> None:
    """Show each `ui_event` as it comes, and where it comes from, until Ctrl-C (status 130).

    While somebody watches for an event, the client that invoked gets no placeholder for it. With
    --json, each event is one line.
    """

    def show(event: dict[str, Any], line: bytes) -> None:
        if event.get("type") != "ui_event":  # a message of the daemon
            show_message(event)
        elif daemon.as_json:
            echo_json(line)
        else:
            origin = event.get("origin") or {}
            its = f" {origin['session_id']}" if "session_id" in origin else ""
            where = one_line(f"{origin.get('module')}.{origin.get('op')}{its}")
            click.echo(f"{dim(where)} {event_line(event)}")

    wanted = {"session_id": session, "module": module, "events": events or None}
    daemon.follow("ui.subscribe", show, **wanted)


def tell_of_replaced(path: Path) -> None:
    """Report that a file with content is replaced."""
    with contextlib.suppress(OSError):
        if path.is_file() and (size := path.stat().st_size):
            words = f"{one_line(str(path))} ({size} bytes) is replaced"
            remark(words)


@contextlib.contextmanager
def _new_file(path: Path | None) -> Iterator[IO[bytes] | None]:
    """Make a file for its owner alone; None is stdout. Raises `NoError` if it cannot be written."""
    if path is None:
        yield None
        return
    tell_of_replaced(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            yield file
    except OSError as error:
        raise NoError(f"{path} cannot be written: {error.strerror}") from None


class _Transcript:
    """A growing transcript; its last line says that it has ended, however it ends."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self._began_at = time.monotonic()
        self._begun = self._ended = False
        self._entries = self._missing_bytes = 0

    def write(self, record: dict[str, Any]) -> None:
        line = msgspec.json.encode(record)
        self._begun = True
        self._entries += "transcript" not in record
        if record.get("event") == "missing":
            self._missing_bytes += record.get("bytes", 0)
        if record.get("event") == "ended":
            self._ended = True
            self._missing_bytes = record.get("missing_bytes", 0)
        with _uninterrupted():
            if self._file is None:
                echo_json(line)
            else:
                self._file.write(line + b"\n")
                self._file.flush()

    def end(self, why: str) -> None:
        """Write the end, if there was a beginning and the daemon wrote no end."""
        if self._begun and not self._ended:
            elapsed_s = round(time.monotonic() - self._began_at, 6)
            ended = {"at_s": elapsed_s, "from": "recorder", "event": "ended"}
            self.write({**ended, "missing_bytes": self._missing_bytes, "why": why})

    def report(self, output: Path | None) -> None:
        lost = self._missing_bytes
        tail = f"; {lost} bytes are missing, it was too fast" if lost else ""
        remark(f"{self._entries} entries{'' if output is None else f' in {output}'}{tail}")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until after the block: half a line before the end is no valid transcript."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@click.command(epilog=example("record dice --restart --seconds 5 -o dice.jsonl"))
@click.argument("modules", type=MODULE, nargs=-1, required=True, metavar="MODULE")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE, which only its owner can read, instead of stdout.",
)
@click.option(
    "--seconds", type=SECONDS, help="End after this time; otherwise Ctrl-C ends it (status 130)."
)
@click.option("--until-exit", is_flag=True, help="End when a process of MODULE has ended.")
@click.option(
    "--restart", is_flag=True, help="Replace its process first, so that the recording is complete."
)
@with_socket
def record(*, modules: tuple[str, ...], output: Path | None, socket: Path, **options: Any) -> None:
    """Record what MODULE and the daemon say to each other, without a restart.

    A transcript holds EVERYTHING that is said, passwords and keys included: read it before you
    pass it on. `stdiod replay` plays it again.
    """
    module, *others = modules
    if others:
        raise click.UsageError("a transcript is of one module; record the others beside it")
    with DaemonClient(socket) as client, _new_file(output) as file:
        transcript = _Transcript(file)

        def keep(event: dict[str, Any], _: bytes) -> None:
            transcript.write(event.get("fields") or {})

        try:
            answer = client.own("record", given_args(module=module, **options), keep)
        except KeyboardInterrupt:
            transcript.end("Ctrl-C")
            transcript.report(output)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except NoDaemonError:
            transcript.end("the daemon went away")
            raise
        if not answer.ok:
            transcript.end(str(answer.error.get("message")))
            result_of(answer, as_json=False, module=module)
        transcript.end("the daemon ended it")
    transcript.report(output)
