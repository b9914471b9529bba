"""The op `events`: entries of the journal in the order of `seq`, from where a client left off.

Only committed entries are sent, read in pages: a commit merely wakes the followers. So a client
that names the last `seq` it has seen gets each later entry once, whether it was away for a moment
or the daemon was started again in between.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

import msgspec
import trio

from protocol.errors import Failure, Origin, Reason
from protocol.events import Log, Progress
from protocol.journal_event import REGISTRY, is_own_family
from supervisor.kernel.journal import Journal
from supervisor.kernel.operations.op import Emit
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.seen_entries import Sees
from supervisor.kernel.store.faults import FAILURES, in_words, is_damage
from supervisor.kernel.store.reader import Filter, Reader
from supervisor.kernel.store.writer import Told as StoreTold
from supervisor.runtime.blocking import BlockingWork

_SHOWN = ("path", "from", "to", "cause", "plan", "parent", "key", "uri", "bytes", "capability")
_MORE = ("count", "revision", "version", "pid", "event", "as", "prompt", "answer", "by")


def entry_text(document: dict[str, Any]) -> str:
    """Return the line: the event, the module with its op, how it ended, what is known of it."""
    data = document.get("data") or {}
    words = [document["event"]]
    module, op = document.get("module"), data.get("op")
    if module is not None:
        words.append(f"{module}.{op}" if op else module)
    if (status := document.get("status")) is not None:
        words.append(status)
    if (duration_ms := document.get("duration_ms")) is not None:
        words.append(f"{duration_ms}ms")
    if "from" in data and "to" in data:
        words.append(f"{data['from']} -> {data['to']}: {data.get('cause')}")
    else:
        words += [f"{key}={data[key]}" for key in (*_SHOWN, *_MORE) if _is_short(data.get(key))]
    if (error := document.get("error")) is not None:
        details = error.get("details") or {}
        code, reason = error.get("code"), details.get("reason")
        if details.get("origin") == Origin.MODULE:
            code = f"reported {code}"
        elif reason:
            code = f"{code}/{reason}"
        words.append(f"{code}: {error.get('message')}")
    if (session_id := document.get("session_id")) is not None:
        words.append(f"session={session_id}")
    return " ".join(map(str, words))


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


PAGE_S = 10.0
"""The bound on reading a page; some 20 ms are usual."""

ABANDON_AFTER_S = 1.0
"""A cancelled request waits so long for its thread, then leaves the thread behind."""

T = TypeVar("T")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class EventFeed:
    """Sends entries to clients; all share a connection to the file, one page at a time."""

    def __init__(self, journal: Journal, blocking: BlockingWork) -> None:
        self._journal = journal
        self._blocking = blocking
        self._reader = Reader(journal.path)
        self._one_at_a_time = trio.Lock()
        self._at_work: set[Reader] = set()
        """The readers that a thread uses; a thread that does not answer keeps its reader."""

    async def send(self, args: dict[str, Any], emit: Emit, sees: Sees | None) -> dict[str, Any]:
        """Send what `args` ask for (those of the op); with `follow`, until it is cancelled.

        `sees` tells which entries the principal may see, None that it is all. The first event names
        the journal and its bounds; those with a `seq` in their fields are entries. Raises
        `RefusedError`.
        """
        journal = self._journal
        told = journal.told
        wanted = Filter(
            events=_names(args.get("event")),
            own_events=_own(args.get("event")),
            module=args.get("module"),
            session_id=args.get("session_id"),
            since_ts=args.get("since_ts"),
            sees=sees,
        )
        first = await self._read(lambda reader: reader.first_seq())
        cursor = args.get("since")
        if args.get("journal") not in (None, told.journal):
            cursor = 0  # numbers of another journal: all of this one is new to the client
        if cursor is None:
            cursor = await self._begin_of_last(wanted, args["last"], told.last_seq)
        await emit(_heading(told.journal, first, told.last_seq, int(cursor)))
        limit = args.get("limit")
        if limit is not None:
            emit = _Limited(emit, int(limit))
        try:
            return await self._send_entries(args, wanted, int(cursor), told, emit)
        except _Enough:
            return {"journal": told.journal, "last_seq": told.last_seq}

    async def _send_entries(
        self, args: dict[str, Any], wanted: Filter, cursor: int, told: StoreTold, emit: Emit
    ) -> dict[str, Any]:
        journal = self._journal
        cursor = await self._send_up_to(told.last_seq, wanted, cursor, emit)
        while args.get("follow"):
            await journal.wait_beyond(cursor)
            if journal.told.journal != told.journal:
                # It was begun anew; its numbers go on, so the cursor stays.
                told = journal.told
                await emit(_heading(told.journal, cursor + 1, told.last_seq, cursor))
            cursor = await self._send_up_to(journal.told.last_seq, wanted, cursor, emit)
        return {"journal": told.journal, "last_seq": told.last_seq}

    def close(self) -> None:
        self._reader.close()

    async def _send_up_to(self, last: int, wanted: Filter, cursor: int, emit: Emit) -> int:
        while cursor < last:
            cursor, all_sent = await self._send_page(last, wanted, cursor, emit)
            if not all_sent:
                await emit(None)
        return cursor

    async def _send_page(
        self, last: int, wanted: Filter, cursor: int, emit: Emit
    ) -> tuple[int, bool]:
        """Send what there is room for of a page; return the new cursor, and whether it was all.

        The rest is read again later: a client that does not read must not cost a page for each
        of its requests.
        """

        def read(reader: Reader) -> tuple[list[tuple[int, Log]], int]:
            page = reader.page(wanted, cursor, last)
            return [(seq, _event(seq, body)) for seq, body in page.entries], page.cursor

        events, end = await self._read(read)
        sent = cursor
        with trio.CancelScope() as at_once:
            at_once.cancel()  # felt only by what waits for room
            for seq, event in events:
                await emit(event)
                sent = seq
        return (sent, False) if at_once.cancelled_caught else (end, True)

    async def _begin_of_last(self, wanted: Filter, count: int, last: int) -> int:
        before = last
        while count > 0 and before > 0:
            end = before
            found, before = await self._read(
                lambda reader: reader.begin_of_last(wanted, count, end)  # noqa: B023 - as above
            )
            count -= found
        return before

    async def _read(self, read: Callable[[Reader], T]) -> T:
        async with self._one_at_a_time:
            if self._shown != self._journal.told.journal:
                # Another file has that name now.
                self._shown = self._journal.told.journal
                self._reader.close()
            if self._at_work:
                raise RefusedError(_no_answer())
            reader = self._reader

            def reading() -> T:
                self._at_work.add(reader)
                try:
                    return read(reader)
                finally:
                    if reader is not self._reader:  # the request was cancelled
                        reader.close()
                    self._at_work.discard(reader)

            try:
                with trio.move_on_after(PAGE_S):
                    return await self._blocking.run(
                        "reading the journal", reading, abandon_after_s=ABANDON_AFTER_S
                    )
            except FAILURES as error:
                reader.close()
                if is_damage(error):
                    self._journal.suspect()
                words = f"the journal cannot be read: {in_words(error)}"
                raise RefusedError(Failure.because(Reason.STORAGE, words)) from None
            finally:
                if self._at_work:  # a connection is not to be closed under a thread
                    self._reader = Reader(self._journal.path)
            raise RefusedError(_no_answer())

    _shown = ""
    """The journal that the connection was opened for."""


def _no_answer() -> Failure:
    words = f"the journal was not read within {PAGE_S:g} s; `stuck` of status says why"
    return Failure.because(Reason.DEADLINE, words)


class _Enough(Exception):  # noqa: N818 - not an error
    """The requested number of entries was sent."""


class _Limited:
    """Sends a number of entries and no more."""

    def __init__(self, emit: Emit, limit: int) -> None:
        self._emit = emit
        self._left = limit

    async def __call__(self, event: Progress | None) -> None:
        if event is not None and not self._left:
            raise _Enough
        await self._emit(event)
        self._left -= event is not None


def _names(pattern: str | None) -> tuple[str, ...] | None:
    """Return the events that fit a pattern: it is matched against a few names, not each entry."""
    if pattern is None:
        return None
    names = tuple(name for name in REGISTRY if fnmatchcase(name, pattern))
    if not names and _own(pattern) is None:
        words = f"there is no event {pattern!r:.80}; there are {', '.join(REGISTRY)}"
        raise RefusedError(Failure.because(Reason.INVALID_ARGS, words, pointer="/event"))
    return names


def _own(pattern: str | None) -> str | None:
    """Return the pattern if an event name of a module's own may fit it."""
    if pattern is None:
        return None
    family, colon, _ = pattern.partition(":")
    open_ended = any(char in family for char in "*?[")
    return pattern if open_ended or (colon and is_own_family(family)) else None


def _heading(journal: str, first: int | None, last: int, since: int) -> Log:
    fields = {"journal": journal, "first_seq": first, "last_seq": last, "since": since}
    level: Literal["info", "warn"] = "info"
    if since > last:
        level = "warn"
        words = f"the journal ends at {last}: there is nothing after {since} yet"
    elif first is not None and since < first - 1 and since > 0:
        level = "warn"
        words = f"entries up to {first - 1} were removed for their age or the journal's size"
    else:
        words = f"the journal holds entries up to {last}"
    return Log(version="0", level=level, message=words, fields=fields)


def _event(seq: int, body: bytes) -> Log:
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # SQLite found no fault with it: another program has changed the file.
        return Log(version="0", level="warn", message=f"the entry {seq} cannot be read")
    fields = {"seq": seq, **document}
    return Log(version="0", level="info", message=entry_text(document), fields=fields)
