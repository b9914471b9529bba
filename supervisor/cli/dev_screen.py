"""The screen and the prompt of `stdiod dev`.

On a terminal prompt_toolkit keeps the typed line below the output, with a history, and completes
ops, the names of their args, and values that the schema lists. It is used in a thread. readline
would mix the output into the typed line.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import click
import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from supervisor.cli.args_words import properties_of
from supervisor.cli.terminal import cut, one_line, safe

SHOWN_CELLS = 2000
"""Longer lines are cut."""

NARROW_COLUMNS = 60
"""On a narrower terminal a time has only seconds."""

_COLOURS = {">": "cyan", "<": "green", "!": "yellow"}

Inputs = Callable[[], Mapping[str, Any]]
"""Gives the known schema of each op."""


class LineScreen:
    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def said(self, sign: str, text: str) -> None:
        """Show a line that passed: `>` to the module, `<` from it, `!` its stderr."""
        line = click.style(f"{sign} {cut(one_line(text), SHOWN_CELLS)}", fg=_COLOURS[sign])
        self._write(f"{_time()} {line}")

    def tell(self, text: str) -> None:
        """Show a message of one line or more."""
        for line in text.split("\n"):
            self._write(f"{_time()} = {line}")

    def _write(self, text: str) -> None:
        # Not by click, which takes the output above a prompt for no terminal.
        sys.stdout.write((text if self._colours else click.unstyle(text)) + "\n")
        sys.stdout.flush()


def _time() -> str:
    now = dt.datetime.now().astimezone()
    wide = shutil.get_terminal_size().columns >= NARROW_COLUMNS
    return now.strftime("%H:%M:%S.%f" if wide else "%S.%f")[:-3]


class Prompt:
    """Lines that are typed on a terminal."""

    waits = False
    """Whether a call is answered before the next line is read."""

    def __init__(self, name: Callable[[], str], inputs: Inputs) -> None:
        self._name = name
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            completer=OpCompleter(inputs),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            reserve_space_for_menu=0,
        )
        self._ended = False

    async def line(self) -> str | None:
        """Return a line; None for Ctrl-C. Raises `EOFError` for Ctrl-D."""
        ask = partial(
            self._session.prompt,
            f"{safe(self._name())}> ",
            handle_sigint=False,
            set_exception_handler=False,
        )
        if self._ended:
            raise EOFError
        try:
            return await trio.to_thread.run_sync(ask)
        except KeyboardInterrupt:
            return None

    def end(self) -> None:
        self._ended = True
        app = self._session.app
        if app.loop is not None and app.is_running:
            app.loop.call_soon_threadsafe(self._exit)

    def _exit(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError)


class OpCompleter(Completer):
    """Completes ops, then names of args, then values that the schema lists."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        del event
        typed = document.text_before_cursor
        op, space, rest = typed.partition(" ")
        word = rest.rpartition(" ")[2] if space else op
        for one in self._candidates(op if space else None, word):
            if one.startswith(word):
                yield Completion(one, start_position=-len(word))

    def _candidates(self, op: str | None, word: str) -> Iterator[str]:
        inputs = self._inputs()
        if op is None:
            yield from (*inputs, "/help", "/ops", "/quit", "/restart")
            return
        for name, schema in properties_of(inputs.get(op)).items():
            if not word.startswith(f"{name}="):
                yield f"{name}="
                continue
            values = schema.get("enum", ()) if isinstance(schema, dict) else ()
            yield from (f"{name}={value}" for value in values if isinstance(value, str))


class Piped:
    """Lines that come from elsewhere than a terminal."""

    waits = True

    async def line(self) -> str:
        """Return a line; raises `EOFError` at the end."""
        read: Callable[[], str] = sys.stdin.readline
        line = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        if not line:
            raise EOFError
        return line

    def end(self) -> None:
        """Nothing waits for the reading thread."""


@contextlib.contextmanager
def above_the_prompt(*, on_terminal: bool) -> Iterator[None]:
    """Show all output of the block above the typed line."""
    with patch_stdout(raw=True) if on_terminal else contextlib.nullcontext():
        yield
