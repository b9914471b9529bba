"""The op `events`: entries of the journal in the order of `seq`, from where a client left off.

Only committed entries are sent, read in pages: a commit merely wakes the followers. So a client
that names the last `seq` it has seen gets each later entry once, whether it was away for a moment
or the daemon was started again in between.

A page is bounded in entries, in bytes and in entries examined, so that no reader holds the write-
ahead log for long, and a filter that nothing fits costs the others nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sized
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import trio

from protocol.errors import Failure, Origin, Reason
from protocol.events import Log, Progress
from protocol.journal_event import REGISTRY, is_own_family
from supervisor.kernel.journal import Journal
from supervisor.kernel.operations.events import Sees
from supervisor.kernel.operations.op import Emit
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.store.database import FAILURES, check_regular, in_words, is_damage
from supervisor.kernel.store.writer import JournalState
from supervisor.policy.causes import seen_cause
from supervisor.policy.principals import SUPERVISOR, Principal
from supervisor.runtime.threads import Threads

PAGE_ENTRIES = 256
PAGE_BYTES = 1 << 20
"""A page ends with the entry that passes this."""

PAGE_SPAN = 20_000
"""Entries that are examined for one page; some 20 ms."""


BODY = "coalesce(CAST(body AS BLOB), x'')"
"""Bytes, also where damage has changed their type."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a request; None is for all."""

    events: tuple[str, ...] | None = None
    """Names of the registry."""
    own_events: str | None = None
    """A pattern for names that modules made up, beside `events`."""
    module: str | None = None
    session_id: str | None = None
    since_ts: float | None = None
    sees: Callable[[bytes], bool] | None = None
    """Whether the principal may see an entry."""
    principal: Principal = SUPERVISOR
    """Who reads."""


class Page(NamedTuple):
    """Entries as (seq, Event v1 as JSON); those up to `cursor` have been examined."""

    entries: list[tuple[int, bytes]]
    cursor: int


class Reader:
    """A read-only connection, opened at the first page; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def page(self, wanted: Filter, after: int, last: int) -> Page:
        """Return the entries with `after` < seq <= `last` that fit, or the first of them.

        Raises `sqlite3.Error` and `OSError`.
        """
        connection = self._open(wanted)
        (first,) = connection.execute(
            "SELECT min(seq) FROM events WHERE seq > ?", [after]
        ).fetchone()
        if first is None or first > last:
            return Page([], last)
        upto = min(last, first + PAGE_SPAN - 1)
        where, values = _conditions(wanted)
        found: list[tuple[int, bytes]] = []
        size = 0
        rows = connection.execute(
            f"SELECT seq, {BODY} FROM events WHERE seq BETWEEN ? AND ?{where} ORDER BY seq",  # noqa: S608 - fixed words
            [first, upto, *values],
        )
        with contextlib.closing(rows):
            for seq, body in rows:
                found.append((seq, body))
                size += len(body)
                if len(found) >= PAGE_ENTRIES or size >= PAGE_BYTES:
                    return Page(found, seq)
        return Page(found, upto)

    def begin_of_last(self, wanted: Filter, count: int, before: int) -> tuple[int, int]:
        """Return how many of `count` are found in the span that ends at `before`, and its begin.

        The second figure is the cursor (a seq to read after) from which they follow.
        """
        begin = max(0, before - PAGE_SPAN)
        where, values = _conditions(wanted)
        rows = self._open(wanted).execute(
            f"SELECT seq FROM events WHERE seq BETWEEN ? AND ?{where} "  # noqa: S608 - fixed words
            "ORDER BY seq DESC LIMIT ?",
            [begin + 1, before, *values, count],
        )
        found = [seq for (seq,) in rows]
        return len(found), found[-1] - 1 if len(found) == count and found else begin

    def first_seq(self) -> int | None:
        """Return the oldest entry's number, None if there is no entry."""
        (first,) = self._open().execute("SELECT min(seq) FROM events").fetchone()
        return None if first is None else int(first)

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, wanted: Filter | None = None) -> sqlite3.Connection:
        if self._connection is None:
            check_regular(self._path)
            # Never made here: a missing journal is a failure.
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=1.0
            )
            self._connection.create_function("fits", 2, fnmatchcase, deterministic=True)
        if wanted is not None and wanted.sees is not None:
            self._connection.create_function("seen", 1, wanted.sees)
        return self._connection


def _conditions(wanted: Filter) -> tuple[str, list[str | float]]:
    words = ""
    values: list[str | float] = []
    if wanted.since_ts is not None:
        words += " AND ts >= ?"
        values.append(wanted.since_ts)
    if wanted.events is not None:
        named = f"event IN ({_places(wanted.events)})"
        values += wanted.events
        if wanted.own_events is not None:
            # Not GLOB, which takes a time that a pattern of many "*" makes long.
            named += f" OR (event NOT IN ({_places(REGISTRY)}) AND fits(event, ?))"
            values += [*REGISTRY, wanted.own_events]
        words += f" AND ({named})"
    for column, value in (("module", wanted.module), ("session_id", wanted.session_id)):
        if value is not None:
            words += f" AND {column} = ?"
            values.append(value)
    if wanted.sees is not None:
        words += f" AND seen({BODY})"
    return words, values


def _places(values: Sized) -> str:
    return ",".join("?" * len(values))


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

    def __init__(self, journal: Journal, threads: Threads) -> None:
        self._journal = journal
        self._threads = threads
        self._reader = Reader(journal.path)
        self._one_at_a_time = trio.Lock()
        self._at_work: set[Reader] = set()
        """The readers that a thread uses; a thread that does not answer keeps its reader."""

    async def send(
        self,
        args: dict[str, Any],
        emit: Emit,
        sees: Sees | None,
        principal: Principal = SUPERVISOR,
    ) -> dict[str, Any]:
        """Send what `args` ask for (those of the op); with `follow`, until it is cancelled.

        `sees` tells which entries the principal may see, None that it is all; causes name no module
        that it may not see. The first event names the journal and its bounds; those with a `seq` in
        their fields are entries. Raises `RefusedError`.
        """
        journal = self._journal
        state = journal.state
        wanted = Filter(
            events=_names(args.get("event")),
            own_events=_own(args.get("event")),
            module=args.get("module"),
            session_id=args.get("session_id"),
            since_ts=args.get("since_ts"),
            sees=sees,
            principal=principal,
        )
        first = await self._read(lambda reader: reader.first_seq())
        cursor = args.get("since")
        if args.get("journal") not in (None, state.journal):
            cursor = 0  # numbers of another journal: all of this one is new to the client
        if cursor is None:
            cursor = await self._begin_of_last(wanted, args["last"], state.last_seq)
        await emit(_heading(state.journal, first, state.last_seq, int(cursor)))
        limit = args.get("limit")
        if limit is not None:
            emit = _limited(emit, int(limit))
        try:
            return await self._send_entries(args, wanted, int(cursor), state, emit)
        except _Enough:
            return {"journal": state.journal, "last_seq": state.last_seq}

    async def _send_entries(
        self, args: dict[str, Any], wanted: Filter, cursor: int, state: JournalState, emit: Emit
    ) -> dict[str, Any]:
        journal = self._journal
        cursor = await self._send_up_to(state.last_seq, wanted, cursor, emit)
        while args.get("follow"):
            await journal.wait_beyond(cursor)
            if journal.state.journal != state.journal:
                # It was begun anew; its numbers go on, so the cursor stays.
                state = journal.state
                await emit(_heading(state.journal, cursor + 1, state.last_seq, cursor))
            cursor = await self._send_up_to(journal.state.last_seq, wanted, cursor, emit)
        return {"journal": state.journal, "last_seq": state.last_seq}

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
            return [
                (seq, _event(seq, body, wanted.principal)) for seq, body in page.entries
            ], page.cursor

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
            if self._shown != self._journal.state.journal:
                # Another file has that name now.
                self._shown = self._journal.state.journal
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
                    return await self._threads.run(
                        "reading the journal", reading, abandon_after_s=ABANDON_AFTER_S
                    )
            except FAILURES as error:
                reader.close()
                if is_damage(error):
                    self._journal.suspect()
                words = f"the journal cannot be read: {in_words(error)}"
                raise RefusedError.because(Reason.STORAGE, words) from None
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


def _limited(emit: Emit, left: int) -> Emit:
    """Return a function that sends a number of entries and no more."""

    async def send(event: Progress | None) -> None:
        nonlocal left
        if event is not None and not left:
            raise _Enough
        await emit(event)
        left -= event is not None

    return send


def _names(pattern: str | None) -> tuple[str, ...] | None:
    """Return the events that fit a pattern: it is matched against a few names, not each entry."""
    if pattern is None:
        return None
    names = tuple(name for name in REGISTRY if fnmatchcase(name, pattern))
    if not names and _own(pattern) is None:
        words = f"there is no event {pattern!r:.80}; there are {', '.join(REGISTRY)}"
        raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/event")
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


def _event(seq: int, body: bytes, principal: Principal) -> Log:
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # SQLite found no fault with it: another program has changed the file.
        return Log(version="0", level="warn", message=f"the entry {seq} cannot be read")
    data = document.get("data")
    if isinstance(data, dict) and isinstance(cause := data.get("cause"), str):
        document["data"] = {**data, "cause": seen_cause(cause, principal)}
    fields = {"seq": seq, **document}
    return Log(version="0", level="info", message=entry_text(document), fields=fields)
