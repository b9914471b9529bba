"""The op `record`: stream a module's conversation to a client, as the entries of a transcript.

Each entry is a `log` event: its message is one readable line, its `fields` the entry as a file has
it, the header first. A client that does not read slows down only itself: entries that do not fit
into the recording's buffer are dropped and counted, and an entry says so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec
import trio

from protocol.errors import Reason
from protocol.events import Log
from protocol.json_line import excerpt
from protocol.transcript import Entry, Header
from supervisor.kernel.operations.op import MODULE, Emit, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.supervision.module import Module
from supervisor.transcripts.recording import Recording, header_of

MAX_SECONDS = 7 * 24 * 3600.0
"""The longest recording, also if the args name no time."""

ENTRIES_AT_ONCE = 64
"""Entries that are sent in one turn."""


class RecordOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "record": args_schema(
            ("module",),
            module=MODULE,
            seconds={
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_SECONDS,
                "description": "end after so long; else when it is cancelled",
            },
            until_exit={
                "type": "boolean",
                "default": False,
                "description": "end when a process of it has ended",
            },
            restart={
                "type": "boolean",
                "default": False,
                "description": "replace its process, and record the new one from the spawn on",
            },
        ),
    }

    def ops(self) -> Mapping[str, Op]:
        return {"record": self._record}

    async def _record(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        module = self._parts.module(args["module"], asked.principal)
        if not module.descriptor.transport.command:
            words = f"{module.name} is a service: only what a process says can be recorded"
            raise RefusedError.because(Reason.INVALID_ARGS, words)
        restart = args.get("restart", False)
        until_exit = args.get("until_exit", False)
        recording = _Streamed(asked.party.account, until_exit=until_exit)
        when = dt.datetime.now(dt.UTC)
        await asked.emit(
            _log(header_of(module.descriptor, when.isoformat(timespec="milliseconds")))
        )
        module.taps.attach(recording.recording, from_spawn=restart)
        try:
            try:
                if restart:
                    module.restart("a recording")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_with, module, recording)
                    await recording.stream(asked.emit, args.get("seconds", MAX_SECONDS))
                    nursery.cancel_scope.cancel()
            finally:
                module.taps.detach(recording.recording)
            await recording.end(asked.emit)
        finally:
            recording.recording.drop()
        return {
            "module": module.name,
            "entries": recording.entries,
            "missing_bytes": recording.recording.missing_bytes,
        }

    async def _stop_with(self, module: Module, recording: _Streamed) -> None:
        """End the recording once its module is gone; a module that comes back is another."""
        places = (self._parts.fleet.modules, self._parts.fleet.leaving)
        await self._parts.fleet.wait_until(
            lambda: all(one.get(module.name) is not module for one in places) or None
        )
        recording.stop("the module was removed")


class _Streamed:
    """A recording on its way to a client."""

    def __init__(self, account: Account, *, until_exit: bool) -> None:
        self.recording = Recording(self._wake, account)
        self.entries = 0
        self._until_exit = until_exit
        self._some = trio.Event()
        self._why = ""

    async def stream(self, emit: Emit, seconds: float) -> None:
        """Send entries until the time is over, or a process has ended if that was asked for."""
        ends_at = trio.current_time() + seconds
        while not self._why:
            # Only waiting is cut short: taken entries are sent, or they would be lost.
            with trio.move_on_at(ends_at):
                await self._some.wait()
            self._some = trio.Event()
            self._why = self._why_now(ends_at)
            await self._send(emit, self.recording.take())

    def _why_now(self, ends_at: float) -> str:
        if self._why:
            return self._why
        if self._until_exit and self.recording.saw_an_end:
            return "a process ended"
        return "the time is over" if trio.current_time() >= ends_at else ""

    def stop(self, why: str) -> None:
        """Make `stream` return."""
        self._why = self._why or why
        self._wake()

    async def end(self, emit: Emit) -> None:
        """Send the rest; the recording is detached by now."""
        await self._send(emit, self.recording.take())
        await self._send(emit, [self.recording.end(self.recording.elapsed_s, self._why)])

    async def _send(self, emit: Emit, entries: Iterable[Entry]) -> None:
        for entry in entries:
            await emit(_log(entry))
            self.entries += 1
            if self.entries % ENTRIES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()  # `emit` does not wait while there is room

    def _wake(self) -> None:
        self._some.set()


def _log(record: Header | Entry) -> Log:
    return Log(
        version="0", level="info", message=_words(record), fields=msgspec.to_builtins(record)
    )


def _words(record: Header | Entry) -> str:
    if isinstance(record, Header):
        return f"transcript of {record.module}"
    what = "outcome" if record.outcome is not None else record.event or "request"
    said = excerpt(record.content()) if record.is_line else what
    return f"{record.instance or ''} {record.source}: {said}".strip()
