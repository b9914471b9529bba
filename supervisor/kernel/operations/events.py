"""The ops that tell what happens: `record`, of a module, and `events`, of the journal.

Each entry that `record` streams is a `log` event: its message is one readable line, its `fields`
the entry of a transcript as a file has it, the header first. A client that does not read slows down
only itself: entries that do not fit into the recording's buffer are dropped and counted, and an
entry says so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import trio
from msgspec import Meta

from protocol.errors import Reason
from protocol.json_line import excerpt
from protocol.transcript import Entry, Header, header_of
from supervisor.kernel.operations.op import (
    Args,
    ModuleName,
    Natural,
    OfModule,
    OwnRequest,
    Word,
    op,
    seen_module,
)
from supervisor.kernel.parties import RefusedError
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.supervision.module import Module
from supervisor.transcripts.recording import Recording

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

Sees = Callable[[bytes], bool]
"""Takes an entry as it is stored; called in the thread that reads."""

MAX_SECONDS = 7 * 24 * 3600.0
"""The longest recording, also if the args name no time."""


class RecordArgs(OfModule):
    seconds: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_SECONDS)] | None,
        "end after so long; else when it is cancelled",
    ] = None
    until_exit: Annotated[bool, "end when a process of it has ended"] = False
    restart: Annotated[bool, "replace its process, and record the new one from the spawn on"] = (
        False
    )


@op("record", Scope.ADMIN, RecordArgs, whole_module=True)
async def record(kernel: Kernel, args: RecordArgs, request: OwnRequest) -> dict[str, Any]:
    module = seen_module(kernel, args.module, request.principal)
    if not module.descriptor.transport.command:
        words = f"{module.name} is a service: only what a process says can be recorded"
        raise RefusedError.because(Reason.INVALID_ARGS, words)
    recording = Recording(request.party.account, until_exit=args.until_exit)
    entries = 0

    async def send(some: list[Entry]) -> None:
        nonlocal entries
        for one in some:
            await _tell_entry(request, one)
        entries += len(some)
        await trio.lowlevel.checkpoint()  # `emit` does not wait while there is room

    async def end_in_time() -> None:
        await trio.sleep(args.seconds or MAX_SECONDS)
        recording.end("the time is over")

    when = dt.datetime.now(dt.UTC)
    header = header_of(module.descriptor, when.isoformat(timespec="milliseconds"))
    await _tell_entry(request, header)
    module.taps.attach(recording, from_spawn=args.restart)
    try:
        if args.restart:
            module.restart("a recording")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_in_time)
            nursery.start_soon(_end_with, kernel, module, recording)
            await recording.stream(send)
            nursery.cancel_scope.cancel()
    finally:
        module.taps.detach(recording)
        recording.drop()
    missing = recording.missing_bytes
    return {"module": module.name, "entries": entries, "missing_bytes": missing}


async def _end_with(kernel: Kernel, module: Module, recording: Recording) -> None:
    """End the recording once its module is gone; a module that comes back is another."""
    places = (kernel.fleet.modules, kernel.fleet.leaving)
    await kernel.fleet.wait_until(
        lambda: all(one.get(module.name) is not module for one in places) or None
    )
    recording.end("the module was removed")


async def _tell_entry(request: OwnRequest, entry: Header | Entry) -> None:
    if isinstance(entry, Header):
        words = f"transcript of {entry.module}"
    else:
        what = "outcome" if entry.outcome is not None else entry.event or "request"
        said = excerpt(entry.content()) if entry.is_line else what
        words = f"{entry.instance or ''} {entry.source}: {said}".strip()
    await request.say(words, msgspec.to_builtins(entry))


EVENTS = 50
MAX_EVENTS = 10_000
"""The last entries that are sent if the args name no number."""

PATTERN_CHARS = 200
"""The longest event has 20; a slow pattern must not be long too."""


class EventsArgs(Args):
    since: Annotated[
        Natural | None, "entries after the one with this seq; the last ones if left out"
    ] = None
    since_ts: Annotated[Annotated[float, Meta(ge=0)] | None, "no older ones (Unix time, s)"] = None
    last: Annotated[int, Meta(ge=0, le=MAX_EVENTS)] = EVENTS
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_EVENTS)] | None, "no more than so many; all if left out"
    ] = None
    follow: bool = False
    event: Annotated[
        Annotated[str, Meta(max_length=PATTERN_CHARS)] | None,
        "a pattern for the name: *, ? and [...]",
    ] = None
    module: ModuleName | None = None
    session_id: Word | None = None
    journal: Annotated[
        Word | None, "whose seq `since` is; from the first event of a former answer"
    ] = None


@op("events", Scope.READ, EventsArgs)
async def events(kernel: Kernel, args: EventsArgs, request: OwnRequest) -> dict[str, Any]:
    if kernel.feed is None:
        words = "this daemon keeps no journal"
        raise RefusedError.because(Reason.STORAGE, words)
    principal = request.principal
    sees = sight(principal, kernel.sessions.owner_of)
    return await kernel.feed.send(msgspec.structs.asdict(args), request.emit, sees, principal)


class _By(msgspec.Struct, frozen=True):
    name: str


class _Data(msgspec.Struct, frozen=True):
    op: Any = None


class _Entry(msgspec.Struct, frozen=True):
    module: str | None = None
    session_id: str | None = None
    request_id: str | None = None
    by: _By | None = None
    data: _Data | None = None


_decode = msgspec.json.Decoder(_Entry).decode


def sight(principal: Principal, owner_of: Callable[[str], str | None]) -> Sees | None:
    """Return the test whether an entry may be seen, or None if all may be.

    The entries of a request belong to the owner of its session (`owner_of`), or else to its
    principal, if that is known. An entry about a module is for principals whose globs cover it, or
    the op that the entry is about; an entry about none, and of no session, for those whose globs
    cover everything.
    """
    if principal.covers_all() and principal.owns(None):
        return None

    def sees(body: bytes) -> bool:
        try:
            entry = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        session_id = entry.session_id
        if session_id is not None or entry.request_id is not None:
            owner = None if session_id is None else owner_of(session_id)
            if owner is None and entry.by is not None:
                owner = entry.by.name
            if not principal.owns(owner):
                return False
        if entry.module is None:
            return session_id is not None or principal.covers_all()
        op = None if entry.data is None else entry.data.op
        return principal.covers(entry.module, op if isinstance(op, str) else None)

    return sees
