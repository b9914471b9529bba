"""The screen of `top`, on prompt_toolkit: it polls `status` and obeys keys.

prompt_toolkit takes the terminal over, draws, reads keys, and gives the terminal back. It does not
handle signals that end the command: `_take_signals` gives the terminal back before they act.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click
from prompt_toolkit import ANSI, Application
from prompt_toolkit.application import in_terminal
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from protocol.client import Answer, ConnectionEndedError, RequestEvent
from supervisor.cli.client import DaemonClient, own_op
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.quantities import duration, time_of_day
from supervisor.cli.terminal import dim, one_line
from supervisor.cli.top.figures import ARGS, ModuleFigures, Status, Trends, figures, in_order
from supervisor.cli.top.view import (
    BLOCKS,
    PLAIN,
    Look,
    attention,
    first_row,
    page,
    rows_shown,
    selected_row,
    view,
)
from supervisor.edge.bindings.asynchronous import AsyncClient

_LATE_S = 3.0
"""A later answer is reported."""

LOG_LINES = 200
"""More than a screen has; there is no scrolling."""

_DEADLY = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGXCPU,
)
_LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?2004l\x1b[?1049l"
_PATIENCE_MS = 1000
"""How long a terminal that takes nothing may delay the end of the command."""


def watch(path: Path, interval_s: float, first: Status) -> bool:
    """Show the modules until a key ends it; returns False for Ctrl-C.

    Raises `EOFError` or `OSError` if the terminal is gone.
    """
    with _signals_taken():
        return asyncio.run(_TopScreen(path, interval_s, first).run())


@contextlib.contextmanager
def _signals_taken() -> Iterator[None]:
    """Give the terminal back before a signal ends the command."""
    before = termios.tcgetattr(0)

    def end_by(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError, termios.error):  # a terminal that is gone needs nothing
            output = select.poll()
            output.register(1, select.POLLOUT)
            if output.poll(_PATIENCE_MS):
                os.write(1, _LEAVE)
            termios.tcsetattr(0, termios.TCSANOW, before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with contextlib.ExitStack() as stack:
        for number in _DEADLY:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                stack.callback(signal.signal, number, signal.signal(number, end_by))
        yield


_BOUND_KEYS = (
    *"qQsrlyjkgG ",
    *("up", "down", "pageup", "pagedown", "home", "end", "c-m", "c-j", "c-c", "c-z", "c-\\"),
    Keys.SIGINT,
    Keys.Any,
)
"""All keys come to `_press`; the named ones would otherwise go to prompt_toolkit's own bindings."""


class _TopScreen:
    def __init__(self, path: Path, interval_s: float, first: Status) -> None:
        self._path = path
        self._look = Look(interval_s=interval_s, bars=_bars(sys.stdout.encoding))
        self._trends = Trends()
        self._status = first
        self._now = figures(None, first)
        self._trends.add(self._now)
        self._question = ""
        """The question about the selected module that the next key answers."""
        self._trouble = ""
        """Why there are no new figures."""
        self._outcome = ""
        """The result of a key, until the next one."""
        self._restarted = ""
        """The module that is being restarted."""
        self._log: _ModuleLog | None = None
        """The log that is shown instead of the modules."""
        keys = KeyBindings()
        for key in _BOUND_KEYS:
            keys.add(key)(self._press)
        control = FormattedTextControl(lambda: ANSI("\n".join(self._lines())), show_cursor=False)
        self._app: Application[bool] = Application(
            Layout(Window(control)), key_bindings=keys, full_screen=True
        )

    async def run(self) -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, facts: self._fail(facts))
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._app.create_background_task(self._poll())
        return await self._app.run_async(set_exception_handler=False)

    def _fail(self, facts: dict[str, Any]) -> None:
        """End the screen by the exception of a key or a task."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=facts.get("exception") or RuntimeError(facts["message"]))

    def _suspend(self) -> None:
        self._app.create_background_task(self._stop_process())

    async def _stop_process(self) -> None:
        """Stop as SIGTSTP would have stopped it; continues after SIGCONT."""
        loop = asyncio.get_running_loop()
        async with in_terminal():
            loop.remove_signal_handler(signal.SIGTSTP)
            os.kill(0, signal.SIGTSTP)
            loop.add_signal_handler(signal.SIGTSTP, self._suspend)

    def _lines(self) -> list[str]:
        height, width = self._app.output.get_size()
        if self._log is not None:
            return self._log.page(width, height)
        self._look.message = self._question or self._trouble or self._outcome
        return view(self._now, self._trends.of, self._look, width, height)

    async def _poll(self) -> None:
        client: AsyncClient | None = None
        while True:
            await asyncio.sleep(self._look.interval_s)
            try:
                client = client or _connected(self._path)
                answer = await self._answer_in_time(client)
            except NoDaemonError as error:
                client = None
                self._trouble = f"trying again every {self._look.interval_s:g} s: {error.message}"
            else:
                if answer.ok:
                    self._now = figures(self._status, answer.result)
                    self._status = answer.result
                    self._trends.add(self._now)
                    self._trouble = ""
                else:
                    self._trouble = f"the daemon answers: {answer.error.get('message')}"
            self._app.invalidate()

    async def _answer_in_time(self, client: AsyncClient) -> Answer:
        """Ask for `status`, and report a late answer; raises `NoDaemonError`."""
        asked_at = time.monotonic()
        asking = asyncio.ensure_future(_answer(client, "status", ARGS))
        while not (await asyncio.wait([asking], timeout=_LATE_S))[0]:
            silent_s = time.monotonic() - asked_at
            self._trouble = f"the daemon has not answered for {duration(silent_s)}"
            self._app.invalidate()
        return await asking

    def _press(self, event: KeyPressEvent) -> None:
        key = event.key_sequence[0].key
        self._outcome = ""
        match key:
            case "c-c" | Keys.SIGINT:
                self._app.exit(result=False)
            case "c-z":
                self._suspend()
            case "c-\\":
                signal.raise_signal(signal.SIGQUIT)
            case _ if self._log is not None:
                if key in ("q", "Q", "l", "c-m", "c-j"):
                    self._log.task.cancel()
                    self._log = None
            case _ if self._question:
                self._question = ""
                if key == "y":
                    self._app.create_background_task(self._restart(self._restarted))
                else:
                    self._restarted = ""
            case "q" | "Q":
                self._app.exit(result=True)
            case "s":
                self._look.order = self._look.order.following
            case _ if self._now.modules:
                self._press_about_a_module(key, in_order(self._now.modules, self._look.order))

    def _press_about_a_module(self, key: str, rows: list[ModuleFigures]) -> None:
        height = self._app.output.get_size().rows
        at = selected_row(rows, self._look.selected)
        name = rows[at].name
        match key:
            case "r" if self._restarted:
                self._outcome = f"{self._restarted} is still being restarted"
            case "r":
                self._restarted = name
                self._question = f"restart {name}? y: yes, any other key: no"
            case "l" | "c-m" | "c-j":
                self._log = _ModuleLog(self._app, self._path, name)
            case "up" | "k":
                at -= 1
            case "down" | "j":
                at += 1
            case "pageup":
                at -= max(1, rows_shown(height))
            case "pagedown" | " ":
                at += max(1, rows_shown(height))
            case "home" | "g":
                at = 0
            case "end" | "G":
                at = len(rows)
            case _:
                return
        at = max(0, min(at, len(rows) - 1))
        self._look.selected = rows[at].name
        self._look.top_row = first_row(self._look.top_row, at, len(rows), height)

    async def _restart(self, module: str) -> None:
        try:
            async with _connected(self._path) as client:
                answer = await _answer(client, "restart", {"module": module})
        except NoDaemonError as error:
            self._outcome = f"{module} is not restarted: {error.message}"
        else:
            words = "is restarted" if answer.ok else f"is not ready: {answer.error.get('message')}"
            self._outcome = f"{module} {words}"
        self._restarted = ""
        self._app.invalidate()


class _ModuleLog:
    def __init__(self, app: Application[bool], path: Path, module: str) -> None:
        self._app = app
        self._title = click.style(one_line(f"log of {module}"), bold=True)
        self._end = ""
        """Why the log has ended."""
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self.task = app.create_background_task(self._follow(path, module))

    def page(self, width: int, height: int) -> list[str]:
        lines = [self._title, attention(self._end), *[*self._lines][-max(1, height - 3) :]]
        return page(lines, ["q back"], width, height)

    async def _follow(self, path: Path, module: str) -> None:
        args = {"module": module, "lines": LOG_LINES, "follow": True}
        try:
            async with (
                _connected(path) as client,
                await client.request(*own_op("logs", args)) as events,
            ):
                async for event in events:
                    if isinstance(event, RequestEvent):
                        self._lines.append(_log_line(event.document))
                    elif isinstance(event, Answer):
                        self._end = str(event.error.get("message", "the daemon has ended it"))
                    self._app.invalidate()
        except NoDaemonError as error:
            self._end = error.message
        except ConnectionEndedError:
            self._end = _CLOSED
        self._app.invalidate()


def _log_line(document: dict[str, Any]) -> str:
    said = one_line(str(document.get("message")))
    fields = document.get("fields")
    if not fields:  # the daemon says that lines were left out
        return dim(said)
    words = f"{time_of_day(fields['ts'])} {one_line(fields['instance'])} {said}"
    return dim(words) if fields["stream"] == "host" else words


_CLOSED = "the daemon closed the connection"


def _connected(path: Path) -> AsyncClient:
    """Raises `NoDaemonError`."""
    with DaemonClient(path) as client:
        connection = client.detach()
    connection.setblocking(False)
    return AsyncClient(connection)


async def _answer(client: AsyncClient, op: str, args: dict[str, Any]) -> Answer:
    """Ask the daemon; raises `NoDaemonError`."""
    try:
        async with await client.request(*own_op(op, args)) as events:
            return await events.answer()
    except ConnectionEndedError:
        raise NoDaemonError(_CLOSED) from None


def _bars(encoding: str) -> str:
    try:
        BLOCKS.encode(encoding)
    except UnicodeEncodeError:
        return PLAIN
    return BLOCKS
