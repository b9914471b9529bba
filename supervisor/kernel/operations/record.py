"""The op `record`: stream a module's conversation to a client, as the entries of a transcript.

Each entry is a `log` event: its message is one readable line, its `fields` the entry as a file has
it, the header first. A client that does not read slows down only itself: entries that do not fit
into the recording's buffer are dropped and counted, and an entry says so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import trio

from protocol.errors import Reason
from protocol.events import Log
from protocol.json_line import excerpt
from protocol.transcript import Entry, Header, header_of
from supervisor.kernel.operations.op import MODULE, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.runtime.supervision.module import Module
from supervisor.transcripts.recording import Recording

MAX_SECONDS = 7 * 24 * 3600.0
"""The longest recording, also if the args name no time."""


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
        recording = Recording(asked.party.account, until_exit=args.get("until_exit", False))
        entries = 0

        async def send(some: list[Entry]) -> None:
            nonlocal entries
            for one in some:
                await asked.emit(_log(one))
            entries += len(some)
            await trio.lowlevel.checkpoint()  # `emit` does not wait while there is room

        async def end_in_time() -> None:
            await trio.sleep(args.get("seconds", MAX_SECONDS))
            recording.end("the time is over")

        when = dt.datetime.now(dt.UTC)
        await asked.emit(
            _log(header_of(module.descriptor, when.isoformat(timespec="milliseconds")))
        )
        module.taps.attach(recording, from_spawn=restart)
        try:
            if restart:
                module.restart("a recording")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_in_time)
                nursery.start_soon(self._end_with, module, recording)
                await recording.stream(send)
                nursery.cancel_scope.cancel()
        finally:
            module.taps.detach(recording)
            recording.drop()
        missing = recording.missing_bytes
        return {"module": module.name, "entries": entries, "missing_bytes": missing}

    async def _end_with(self, module: Module, recording: Recording) -> None:
        """End the recording once its module is gone; a module that comes back is another."""
        places = (self._parts.fleet.modules, self._parts.fleet.leaving)
        await self._parts.fleet.wait_until(
            lambda: all(one.get(module.name) is not module for one in places) or None
        )
        recording.end("the module was removed")


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
