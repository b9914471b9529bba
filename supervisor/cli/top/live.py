"""The loop of `top`: keys, answers and time."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from protocol.client import Answer, RequestEvent
from supervisor.cli.client import DaemonClient, own_op
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.quantities import duration, time_of_day
from supervisor.cli.terminal import one_line
from supervisor.cli.top.figures import Figures, ModuleFigures, Status, Trends, figures, in_order
from supervisor.cli.top.screen import STDIN, STDOUT, Key, Keys, Screen
from supervisor.cli.top.view import (
    BLOCKS,
    PLAIN,
    LogText,
    Look,
    first_row,
    log_view,
    rows_shown,
    selected_row,
    view,
)
from supervisor.edge.bindings.blocking import RequestTimeoutError

ARGS: dict[str, Any] = {"histogram": True}

_LATE_S = 3.0
"""A later answer is reported."""


class Live:
    def __init__(
        self, screen: Screen, socket: Path, interval_s: float, *, colour: bool, encoding: str
    ) -> None:
        self._screen = screen
        self._socket = socket
        self._link = LiveConnection(socket)
        self._restart = LiveConnection(socket)
        self._restarted = ""
        """The module that is being restarted, or that the question is about."""
        self._log: LogPage | None = None
        """The log that is shown instead of the modules."""
        self._colour = colour
        self._encoding = encoding
        self._keys = Keys()
        self._trends = Trends()
        self._status: Status | None = None
        self._now: Figures | None = None
        self._asked_at = time.monotonic()
        self._look = Look(interval_s=interval_s, bars=_bars(encoding))
        self._question = ""
        """The question that the next key answers."""
        self._trouble = ""
        """Why there are no new figures."""
        self._outcome = ""
        """The result of a key, until the next one."""
        self._wants_to_quit = False
        self._drawn = True

    def run(self, first: Status) -> None:
        """Loop until `q`; raises `ClosedTerminalError`."""
        self._take(first)
        next_at = self._asked_at + self._look.interval_s
        while not self._wants_to_quit:
            self._draw()
            self._wait(next_at)
            now = time.monotonic()
            if now >= next_at:
                next_at = now + self._look.interval_s
                self._ask(now)

    def _wait(self, until: float) -> None:
        readers = {
            STDIN: self._read_keys,
            self._screen.wake_up: self._wake_up,
            **dict.fromkeys(self._link.descriptors(), self._read),
            **dict.fromkeys(self._restart.descriptors(), self._read_restart),
        }
        if self._log is not None:
            readers |= dict.fromkeys(self._log.link.descriptors(), self._log.read)
        # A terminal that took nothing gets its lines once it is writable.
        undrawn = [] if self._drawn else [STDOUT]
        ready, _, _ = select.select([*readers], undrawn, [], max(0.0, until - time.monotonic()))
        for one in ready:
            readers[one]()

    def _read_keys(self) -> None:
        for key in self._keys.feed(self._screen.typed()):
            self._press(key)

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._screen.wake_up, 1024)

    def _ask(self, now: float) -> None:
        if self._link.waits:
            silent_s = now - self._asked_at
            if silent_s >= _LATE_S:
                self._trouble = f"the daemon has not answered for {duration(silent_s)}"
            return
        self._asked_at = now
        try:
            self._link.ask("status", ARGS)
        except NoDaemonError as error:
            self._lose(error)

    def _read(self) -> None:
        try:
            answer = self._link.answer()
        except NoDaemonError as error:
            self._lose(error)
            return
        if answer is None:
            return
        if answer.ok:
            self._take(answer.result)
        else:
            self._trouble = f"the daemon answers: {answer.error.get('message')}"

    def _take(self, status: Status) -> None:
        self._now = figures(self._status, status)
        self._status = status
        self._trends.add(self._now)
        self._trouble = ""

    def _lose(self, error: NoDaemonError) -> None:
        self._link.drop()
        self._trouble = f"trying again every {self._look.interval_s:g} s: {error.message}"

    def _press(self, key: Key) -> None:
        self._outcome = ""
        if self._log is not None:
            if key in (Key.QUIT, Key.LOGS):
                self._log.link.drop()
                self._log = None
        elif self._question:
            self._question = ""
            if key is Key.YES:
                self._begin_restart()
        elif key is Key.QUIT:
            self._wants_to_quit = True
        elif key is Key.SORT:
            self._look.order = self._look.order.following
        elif self._rows():
            self._press_about_a_module(key)

    def _rows(self) -> list[ModuleFigures]:
        return in_order(self._now.modules, self._look.order) if self._now else []

    def _press_about_a_module(self, key: Key) -> None:
        rows, height = self._rows(), self._screen.size()[1]
        at = selected_row(rows, self._look.selected)
        page = max(1, rows_shown(height))
        match key:
            case Key.RESTART if self._restart.waits:
                self._outcome = f"{self._restarted} is still being restarted"
            case Key.RESTART:
                self._restarted = rows[at].name
                self._question = f"restart {rows[at].name}? y: yes, any other key: no"
            case Key.LOGS:
                self._log = LogPage(self._socket, rows[at].name)
            case Key.UP:
                at -= 1
            case Key.DOWN:
                at += 1
            case Key.PAGE_UP:
                at -= page
            case Key.PAGE_DOWN:
                at += page
            case Key.TOP:
                at = 0
            case Key.BOTTOM:
                at = len(rows)
            case _:
                return
        at = max(0, min(at, len(rows) - 1))
        self._look.selected = rows[at].name
        self._look.top_row = first_row(self._look.top_row, at, len(rows), height)

    def _begin_restart(self) -> None:
        try:
            self._restart.ask("restart", {"module": self._restarted})
        except NoDaemonError as error:
            self._outcome = f"{self._restarted} is not restarted: {error.message}"

    def _read_restart(self) -> None:
        try:
            answer = self._restart.answer()
        except NoDaemonError:
            self._restart.drop()  # the next `status` reports it
            return
        if answer is None:
            return
        self._restart.drop()
        words = "is restarted" if answer.ok else f"is not ready: {answer.error.get('message')}"
        self._outcome = f"{self._restarted} {words}"

    def _draw(self) -> None:
        if self._now is None:
            return
        width, height = self._screen.size()
        if self._log is not None:
            page = self._log
            lines = log_view(page.title, tuple(page.lines), page.message, width, height)
        else:
            self._look.message = self._question or self._trouble or self._outcome
            lines = view(self._now, self._trends.of, self._look, width, height)
        shown = lines if self._colour else [click.unstyle(line) for line in lines]
        self._drawn = self._screen.draw(shown, self._encoding)


def _bars(encoding: str) -> str:
    try:
        BLOCKS.encode(encoding)
    except UnicodeEncodeError:
        return PLAIN
    return BLOCKS


_REST_OF_A_LINE_S = 0.05
"""How long to wait for the rest of an answer that has begun, before keys are read again."""


class LiveConnection:
    """A connection that asks the daemon one op at a time and never blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: DaemonClient | None = None
        self._asked = ""

    @property
    def waits(self) -> bool:
        return bool(self._asked)

    def descriptors(self) -> list[int]:
        """Return the descriptors that are readable when an answer comes."""
        return [] if self._client is None else [self._client.fileno()]

    def ask(self, op: str, args: dict[str, Any]) -> None:
        """Ask; raises `NoDaemonError` without a daemon."""
        if self._client is None:
            self._client = DaemonClient(self._path)
        self._asked = self._client.send(*own_op(op, args))

    def answer(self) -> Answer | None:
        """Return the answer if it is complete; raises `NoDaemonError` if the daemon went away."""
        for event in self.events():
            if isinstance(event, Answer):
                self._asked = ""
                return event
        return None

    def events(self) -> Iterator[RequestEvent | Answer]:
        """Yield the events of the question so far; raises `NoDaemonError`, as `answer`."""
        if self._client is None:
            return
        try:
            for event in self._client.events(_REST_OF_A_LINE_S):
                if isinstance(event, RequestEvent | Answer) and event.request_id == self._asked:
                    yield event
        except RequestTimeoutError:
            return
        raise NoDaemonError("the daemon closed the connection")

    def drop(self) -> None:
        client, self._client, self._asked = self._client, None, ""
        if client is not None:
            client.__exit__(None, None, None)


LINES = 200
"""More than a screen has; there is no scrolling."""


class LogPage:
    def __init__(self, socket: Path, module: str) -> None:
        self.title = f"log of {module}"
        self.message = ""
        """Why the log has ended."""
        self.lines: deque[LogText] = deque(maxlen=LINES)
        self.link = LiveConnection(socket)
        try:
            self.link.ask("logs", {"module": module, "lines": LINES, "follow": True})
        except NoDaemonError as error:
            self._end(error.message)

    def read(self) -> None:
        try:
            for event in self.link.events():
                if isinstance(event, RequestEvent):
                    self.lines.append(_log_text(event.document))
                else:
                    self._end(str(event.error.get("message", "the daemon has ended it")))
                    return
        except NoDaemonError as error:
            self._end(error.message)

    def _end(self, why: str) -> None:
        self.message = why
        self.link.drop()


def _log_text(document: dict[str, Any]) -> LogText:
    said = one_line(str(document.get("message")))
    fields = document.get("fields")
    if not fields:  # the daemon says that lines were left out
        return LogText(said, of_module=False)
    words = f"{time_of_day(fields['ts'])} {one_line(fields['instance'])} {said}"
    return LogText(words, of_module=fields["stream"] != "host")
