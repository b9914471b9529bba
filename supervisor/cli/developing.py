"""Run a module while it is written: restart it when its source changes, call its ops.

A round is the time between two changes: a daemon in this process without a socket, with this module
alone; its `prepare` is done in each round. All lines in both directions are shown.

On a terminal prompt_toolkit keeps the typed line below the output, with a history, and completes
ops, the names of their args, and values that the schema lists. It is used in a thread. readline
would mix the output into the typed line.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from protocol.args_schema import op_schemas
from protocol.descriptor.loading import DescriptorError
from protocol.descriptor.model import Descriptor, HealthChecks
from protocol.errors import Reason
from protocol.events import Progress
from protocol.json_document import read_document
from protocol.replies import Operation
from protocol.response import Response
from protocol.transcript import EntrySource, Happened
from supervisor.cli.args import args_of, properties_of, read_words
from supervisor.cli.failure_text import failure_text
from supervisor.cli.one_module import alone, log_from, scratch_folder
from supervisor.cli.quantities import duration
from supervisor.cli.results import compact
from supervisor.cli.terminal import cut, one_line, safe
from supervisor.daemon.inherited import mend_signals
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.local_user import this_user
from supervisor.kernel.parties import Client, Handle, Party
from supervisor.policy.findings import Found
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.directory import read_descriptor
from supervisor.runtime.files.module_log import LogLine
from supervisor.runtime.files.program_files import module_folder, program_files
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.process.program import of_prepare
from supervisor.runtime.taps import Tap

LOOK_S = 0.25
"""The interval between two looks at the files; a change counts once two looks agree."""

MOST_FILES = 2000
"""Further sources are not watched."""

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "target"})

IDLE_S = 1e9
"""Health probes would be all that is shown."""

HELP = (
    "OP KEY=VALUE... or OP {JSON} calls an op; /ops lists them, /restart starts the module anew, "
    "/quit or Ctrl-D ends"
)

ASKS_FOR_HELP = frozenset({"help", "?", "quit", "exit", "restart", "ops"})
"""Words without the slash of a command."""

FileStamps = dict[str, tuple[int, int]]
"""The last change (ns) and the size of each file."""


def develop(path: Path, *, on_terminal: bool, colours: bool) -> None:
    """Run the module of a descriptor file until the input ends, or a signal comes."""
    # All output is shown above the typed line.
    with patch_stdout(raw=True) if on_terminal else contextlib.nullcontext():
        log_from(logging.CRITICAL)
        screen = LineScreen(colours=colours)
        one = Development(path, screen)
        if on_terminal:
            screen.tell("Tab completes; Ctrl-D ends; /ops lists the ops, /restart starts it anew")
        run_timed(one.run, CommandPrompt(one) if on_terminal else Piped())


class Development:
    def __init__(self, path: Path, screen: LineScreen) -> None:
        self.name = path.absolute().parent.name
        self._path = path
        self._screen = screen
        self._daemon: Kernel | None = None
        self._calls: dict[_ShownCall, Handle] = {}
        self._ending = trio.Event()
        self._changed = trio.Event()
        self._begun = trio.Event()

    @property
    def inputs(self) -> dict[str, Any]:
        if self._daemon is None:
            return {}
        module = self._daemon.fleet.modules[self.name]
        said = module.descriptions.current or {}
        return op_schemas(module.descriptor.inputs or said.get("inputs")) or {}

    async def run(self, typed: CommandPrompt | Piped) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            mend_signals()  # the module starts as under a daemon
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_on_signals, received, typed)
                nursery.start_soon(self._read, typed)
                while not self._ending.is_set():
                    await self._round()
                typed.end()
                nursery.cancel_scope.cancel()

    async def _end_on_signals(self, received: Any, typed: CommandPrompt | Piped) -> None:
        async for _ in received:
            self._ending.set()
            self._changed.set()
            typed.end()

    # The input.

    async def _read(self, typed: CommandPrompt | Piped) -> None:
        while not self._ending.is_set():
            try:
                line = await typed.line()
            except EOFError:
                break
            if line is None:
                if not self._cancel():
                    break
            elif line.strip():
                await self._begun.wait()
                await self._obey(line.strip(), wait=typed.waits)
        self._ending.set()
        self._changed.set()

    def _cancel(self) -> bool:
        """Cancel the open calls; False if there are none."""
        handles = list(self._calls.values())
        for handle in handles:
            handle.cancel(Stopped(Reason.CLIENT, "Ctrl-C cancelled it"))
        return bool(handles)

    async def _obey(self, line: str, *, wait: bool) -> None:
        match line:
            case "/restart":
                self._changed.set()
            case "/help":
                self._screen.tell(HELP)
            case "/quit":
                self._ending.set()
                self._changed.set()
            case "/ops":
                for op, schema in self.inputs.items():
                    self._screen.tell(f"{op} {compact(schema)}")
            case _:
                if line in ASKS_FOR_HELP and line not in self.inputs:
                    self._screen.tell(HELP)
                    return
                asker = self._call(line)
                if asker is not None and wait:
                    await asker.answered.wait()

    def _call(self, line: str) -> _ShownCall | None:
        """Call an op; None after a message if the line cannot be read."""
        if self._daemon is None:
            self._screen.tell("the module does not run; correct the descriptor first")
            return None
        try:
            op, args = self._read_call(line)
        except ValueError as error:
            self._screen.tell(f"{line!r} cannot be read: {error}")
            return None
        except click.UsageError as error:
            self._screen.tell(error.message)
            return None
        asker = _ShownCall(self._answered)
        content = {"op": op, "args": args}
        party = Party(this_user("cli"))
        handle = self._daemon.requests.begin(party, self.name, Operation.INVOKE, content, asker)
        if handle is not None and not asker.answered.is_set():
            self._calls[asker] = handle
        return asker

    def _read_call(self, line: str) -> tuple[str, dict[str, Any]]:
        op, _, rest = line.partition(" ")
        if rest.lstrip().startswith("{"):
            document = read_document(rest.encode(errors="surrogateescape"))
            if isinstance(document, list):
                raise ValueError(str(document[0]).partition(";")[0])
            return op, document
        op, *words = shlex.split(line)
        return op, args_of(read_words(tuple(words)), self.inputs.get(op))

    def _answered(self, asker: _ShownCall, response: dict[str, Any]) -> None:
        self._calls.pop(asker, None)
        if response["ok"]:
            took = duration(response["duration_ms"] / 1000)
            ok = click.style("ok", fg="green")
            self._screen.tell(f"{ok} ({took}) {compact(response.get('result'))}")
        else:
            op = str(response.get("op"))
            words = failure_text(response["error"], module=self.name, op=op, with_daemon=False)
            self._screen.tell(words)

    # One round.

    async def _round(self) -> None:
        self._changed = trio.Event()
        async with trio.open_nursery() as nursery:
            try:
                descriptor = await trio.to_thread.run_sync(read_descriptor, self._path)
            except DescriptorError as error:
                self._screen.tell("\n".join(f"{self._path}: {one}" for one in error.problems))
                self._begun.set()
                nursery.start_soon(self._watch, None)
                await self._changed.wait()
            else:
                nursery.start_soon(self._watch, descriptor)
                await self._serve(descriptor)
            nursery.cancel_scope.cancel()

    async def _serve(self, descriptor: Descriptor) -> None:
        self.name = descriptor.name
        with scratch_folder() as folder:
            found = Found((alone(descriptor, health=HealthChecks(interval_s=IDLE_S)),))
            async with Kernel(found, data_dir=folder, with_sessions=False) as daemon:
                module = daemon.fleet.modules[self.name]
                module.taps.attach(_Tap(self._screen))
                unfollow = module.log.follow(self._logged)
                self._daemon = daemon
                self._begun.set()
                await self._changed.wait()
                self._begun = trio.Event()
                self._daemon = None
                daemon.shut_down("its source has changed")
                await daemon.stop_fleet()
                unfollow()

    def _logged(self, line: LogLine) -> None:
        """Show stderr, and the host's notes about the process."""
        if line.stream == "host":
            self._screen.tell(line.text)
        elif line.stream != "event":  # it was shown as it came
            self._screen.said("!", line.text)

    # The watched files.

    async def _watch(self, descriptor: Descriptor | None) -> None:
        """Wait for a change that two looks in a row agree on."""
        first = before = await trio.to_thread.run_sync(look, self._path, descriptor)
        while True:
            await trio.sleep(LOOK_S)
            now = await trio.to_thread.run_sync(look, self._path, descriptor)
            if now == before != first:
                changed = sorted({*now.items()} ^ {*first.items()})
                self._screen.tell(f"{Path(changed[0][0]).name} has changed; it is started anew")
                self._changed.set()
                return
            before = now


def look(path: Path, descriptor: Descriptor | None) -> FileStamps:
    """Return the stamps of the descriptor and the sources, without files that `prepare` makes."""
    files = {str(path.absolute())}
    if descriptor is not None:
        named = set(program_files(descriptor))
        if descriptor.transport.prepare:
            named = set(program_files(of_prepare(descriptor))) - named
        suffixes = {Path(one).suffix for one in named if Path(one).is_file()} - {""}
        files |= {one for one in named if Path(one).is_file()}
        files |= set(_of_kind(Path(module_folder(descriptor)), suffixes))
    seen: FileStamps = {}
    for one in files:
        try:
            found = Path(one).stat()
        except OSError:
            continue  # the file is being replaced, or gone
        seen[one] = (found.st_mtime_ns, found.st_size)
    return seen


def _of_kind(folder: Path, suffixes: set[str]) -> list[str]:
    found: list[str] = []
    for home, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and one not in SKIPPED]
        found += [str(Path(home, one)) for one in names if Path(one).suffix in suffixes]
        if len(found) > MOST_FILES:
            break
    return found[:MOST_FILES]


class _Tap(Tap):
    """Shows each line that passes."""

    def __init__(self, screen: LineScreen) -> None:
        self._screen = screen
        self._rest = {EntrySource.HOST: b"", EntrySource.MODULE: b""}

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        del instance
        if source not in self._rest:
            return
        *lines, self._rest[source] = (self._rest[source] + data).split(b"\n")
        for line in lines:
            self._show(source, line)

    def _show(self, source: EntrySource, line: bytes) -> None:
        sign = ">" if source is EntrySource.HOST else "<"
        self._screen.said(sign, line.decode(errors="backslashreplace"))

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        """Report the start of the process, and its last line if it has no newline."""
        if event is Happened.SPAWNED:
            self._screen.tell(f"{instance} runs, pid {facts['pid']}")
        elif event is Happened.EXITED:
            for source, rest in self._rest.items():
                if rest:
                    self._show(source, rest)
            self._rest = dict.fromkeys(self._rest, b"")


class _ShownCall(Client):
    def __init__(self, tell: Callable[[_ShownCall, dict[str, Any]], None]) -> None:
        self.answered = trio.Event()
        self._tell = tell

    def event(self, event: Progress, line: bytes | None) -> None:
        """Do nothing: the module's own line is shown."""

    def finished(self, response: Response) -> None:
        self.answered.set()
        self._tell(self, response.document())


SHOWN_CELLS = 2000
"""Longer lines are cut."""

NARROW_COLUMNS = 60
"""On a narrower terminal a time has only seconds."""

_COLOURS = {">": "cyan", "<": "green", "!": "yellow"}


class LineScreen:
    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def said(self, sign: str, text: str) -> None:
        """Show a line that passed: `>` to the module, `<` from it, `!` its stderr."""
        line = click.style(f"{sign} {cut(one_line(text), SHOWN_CELLS)}", fg=_COLOURS[sign])
        self._write(f"{_time()} {line}")

    def tell(self, text: str) -> None:
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


class CommandPrompt:
    """Lines that are typed on a terminal."""

    waits = False
    """Whether a call is answered before the next line is read."""

    def __init__(self, development: Development) -> None:
        self._development = development
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            completer=OpCompleter(lambda: development.inputs),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            reserve_space_for_menu=0,
        )
        self._ended = False

    async def line(self) -> str | None:
        """Return a line; None for Ctrl-C. Raises `EOFError` for Ctrl-D."""
        ask = partial(
            self._session.prompt,
            f"{safe(self._development.name)}> ",
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

    def __init__(self, inputs: Callable[[], Mapping[str, Any]]) -> None:
        self._inputs = inputs

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        del event
        inputs = self._inputs()
        op, space, rest = document.text_before_cursor.partition(" ")
        word = rest.rpartition(" ")[2] if space else op
        candidates = [*inputs, "/help", "/ops", "/quit", "/restart"]
        if space:
            properties = properties_of(inputs.get(op))
            candidates = [f"{name}=" for name in properties]
            name, equals, _ = word.partition("=")
            if equals and name in properties:
                schema = properties[name]
                values = schema.get("enum", ()) if isinstance(schema, dict) else ()
                candidates = [f"{name}={one}" for one in values if isinstance(one, str)]
        for one in candidates:
            if one.startswith(word):
                yield Completion(one, start_position=-len(word))


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
