"""Show figures on a screen until somebody has seen enough: the loop of keys, answers and time."""

from __future__ import annotations

import contextlib
import os
import select
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from supervisor.cli.client import SUPERVISOR, Answer, Client, NoAnswerError, own_op
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.quantities import duration
from supervisor.cli.top.figures import Figures, Status, Trends, figures
from supervisor.cli.top.keys import Key, Keys
from supervisor.cli.top.screen import STDIN, STDOUT, Screen
from supervisor.cli.top.view import BLOCKS, PLAIN, Look, first_row, rows_shown, view

ARGS: dict[str, Any] = {"histogram": True}

_REST_OF_A_LINE_S = 0.05
"""How long to wait for the rest of an answer that has begun, before keys are looked at again."""


class Link:
    """One question at a time; what it takes to wait for the answer is a descriptor to select on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: Client | None = None
        self._asked = ""

    @property
    def waits(self) -> bool:
        """Whether a question is open."""
        return bool(self._asked)

    def descriptors(self) -> list[int]:
        """Return what can be read when an answer comes."""
        return [] if self._client is None else [self._client.fileno()]

    def ask(self) -> None:
        """Ask; raises `NoDaemonError` if nobody listens."""
        if self._client is None:
            self._client = Client(self._path)
        self._asked = self._client.send(SUPERVISOR, "invoke", own_op("status", ARGS))

    def answer(self) -> Answer | None:
        """Return the answer if it is complete; raises `NoDaemonError` if the daemon went away."""
        if self._client is None:
            return None
        try:
            for document, _ in self._client.events(_REST_OF_A_LINE_S):
                if document.get("type") == "done" and document.get("requestId") == self._asked:
                    self._asked = ""
                    return Answer(document)
        except NoAnswerError:
            return None
        raise NoDaemonError("the daemon closed the connection")

    def drop(self) -> None:
        """Close the connection, if there is one."""
        client, self._client, self._asked = self._client, None, ""
        if client is not None:
            client.__exit__(None, None, None)


_LATE_S = 3.0
"""An answer that takes longer is worth a word."""


class Live:
    """What is shown, and what it is made of."""

    def __init__(
        self, screen: Screen, link: Link, interval_s: float, *, colour: bool, encoding: str
    ) -> None:
        self._screen = screen
        self._link = link
        self._colour = colour
        self._encoding = encoding
        self._keys = Keys()
        self._trends = Trends()
        self._status: Status | None = None
        self._now: Figures | None = None
        self._asked_at = time.monotonic()
        self._look = Look(interval_s=interval_s, bars=_bars(encoding))
        self._wants_to_quit = False
        self._drawn = True

    def run(self, first: Status) -> None:
        """Go on until `q`; raises `ClosedTerminalError`."""
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
        waited_for = [STDIN, self._screen.wake_up, *self._link.descriptors()]
        # A terminal that took nothing gets its lines when it does again.
        undrawn = [] if self._drawn else [STDOUT]
        ready, _, _ = select.select(waited_for, undrawn, [], max(0.0, until - time.monotonic()))
        for one in ready:
            if one == STDIN:
                for key in self._keys.feed(self._screen.typed()):
                    self._press(key)
            elif one == self._screen.wake_up:
                with contextlib.suppress(BlockingIOError):
                    os.read(one, 1024)
            else:
                self._read()

    def _ask(self, now: float) -> None:
        if self._link.waits:
            silent_s = now - self._asked_at
            if silent_s >= _LATE_S:
                self._say(f"the daemon has not answered for {duration(silent_s)}")
            return
        self._asked_at = now
        try:
            self._link.ask()
        except NoDaemonError as error:
            self._lost(error)

    def _read(self) -> None:
        try:
            answer = self._link.answer()
        except NoDaemonError as error:
            self._lost(error)
            return
        if answer is None:
            return
        if answer.ok:
            self._take(answer.result)
        else:
            self._say(_refused(answer))

    def _take(self, status: Status) -> None:
        self._now = figures(self._status, status)
        self._status = status
        self._trends.add(self._now)
        self._say("")

    def _lost(self, error: NoDaemonError) -> None:
        self._link.drop()
        self._say(f"trying again every {self._look.interval_s:g} s: {error.message}")

    def _say(self, message: str) -> None:
        self._look = msgspec.structs.replace(self._look, message=message)

    def _press(self, key: Key) -> None:
        rows, height = len(self._now.modules) if self._now else 0, self._screen.size()[1]
        row = first_row(self._look.top_row, rows, height)
        page = max(1, rows_shown(height))
        match key:
            case Key.QUIT:
                self._wants_to_quit = True
            case Key.SORT:
                following = self._look.order.following
                self._look = msgspec.structs.replace(self._look, order=following)
            case Key.UP:
                row -= 1
            case Key.DOWN:
                row += 1
            case Key.PAGE_UP:
                row -= page
            case Key.PAGE_DOWN:
                row += page
            case Key.TOP:
                row = 0
            case Key.BOTTOM:
                row = rows
        self._look = msgspec.structs.replace(self._look, top_row=first_row(row, rows, height))

    def _draw(self) -> None:
        if self._now is None:
            return
        lines = view(self._now, self._trends.of, self._look, *self._screen.size())
        shown = lines if self._colour else [click.unstyle(line) for line in lines]
        self._drawn = self._screen.draw(shown, self._encoding)


def _refused(answer: Answer) -> str:
    return f"the daemon answers: {answer.error.get('message')}"


def _bars(encoding: str) -> str:
    try:
        BLOCKS.encode(encoding)
    except UnicodeEncodeError:
        return PLAIN
    return BLOCKS
