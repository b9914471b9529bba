"""What a module says beside its answers: stderr, `log` and `error`, kept in a ring and in a file.

stderr is always drained, never parsed as protocol. A module that floods it costs a
bounded ring and a bounded rate of disk writes; how much was left out is counted and written down.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec
import trio
from msgspec import UNSET

from protocol.events import CallEvent, ErrorEvent, Log, Object
from protocol.frames import encode
from protocol.problem import without_password
from supervisor.runtime.files.log_files import LogFiles


def log_text(event: Log) -> str:
    """Return level, message and fields; newlines in the message become spaces."""
    return _line(f"{event.level}: {event.message}", event.fields)


def error_text(event: ErrorEvent) -> str:
    """Return code, message and details in the form of `log_text`."""
    return _line(f"error: {event.error_code}: {event.error_message}", event.details)


def _line(words: str, fields: Object) -> str:
    text = " ".join(words.splitlines())
    if isinstance(fields, msgspec.Raw):  # there is no room for more of it
        return f"{text} {bytes(memoryview(fields)[:LINE_BYTES]).decode(errors='replace')}"
    if fields is UNSET or not fields:
        return text
    try:
        return f"{text} {encode(fields).decode()}"
    except RecursionError:
        return f"{text} (fields nested too deeply to be written)"


LINE_BYTES = 8192
"""A longer line of stderr is cut into pieces of this size."""

RING_CHARS = 16384
"""How much of the end of its stderr is remembered per process."""

TAIL_LINES = 20
TAIL_LINE_CHARS = 500
"""How much of that goes into evidence."""

RATE_BYTES_S = 1 << 20
BURST_BYTES = 4 << 20
"""How fast a module may fill its log file; above it, lines are counted and left out."""


NOTED = (Log, ErrorEvent)
"""The events of a request that are written to the log, too (Spec 001 4.1, 4.5)."""

LEAST_BYTES = 64
"""No line is shorter, with what stands before its text."""

# What follows the name of the log's own module, which may hold spaces and `#` itself. A line of the
# host's that is about no instance has no generation.
_HEAD = re.compile(r"(#\d+)? (stderr|log|event|host) ")
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


class LogLine(msgspec.Struct, frozen=True):
    """One line of a module's log; `ts` is Unix time (s), `instance` a bare name for the module."""

    ts: float
    instance: str
    stream: str
    text: str

    def encode(self) -> bytes:
        """Return the line as it stands in the file: time, instance, stream, text."""
        stamp = dt.datetime.fromtimestamp(self.ts, dt.UTC)
        when = stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"{when} {self.instance} {self.stream} {self.text}\n".encode(errors="replace")

    @classmethod
    def decode(cls, line: bytes, module: str) -> LogLine:
        """Read a line of a module's file; one that has another form is all text."""
        text = line.decode(errors="replace")
        when, _, rest = text.partition(" ")
        head = _HEAD.match(rest, len(module)) if rest.startswith(module) else None
        try:
            stamp = dt.datetime.fromisoformat(when)
        except ValueError:
            head = None
            stamp = _EPOCH
        if head is None:
            return cls(0.0, "", "", text)
        return cls(stamp.timestamp(), rest[: head.start(2) - 1], head[2], rest[head.end() :])


class LogTail:
    """The last lines of a log, each made when its turn comes: there may be thousands."""

    def __init__(self, module: str, lines: Sequence[bytes]) -> None:
        self.size_bytes = sum(map(len, lines)) + LEAST_BYTES * len(lines)
        """What they take in memory."""
        self._module = module
        self._lines = lines

    def __iter__(self) -> Iterator[LogLine]:
        return (LogLine.decode(line, self._module) for line in self._lines)


class ModuleLog:
    """The log of one module, over all its instances."""

    def __init__(self, module: str, files: LogFiles, clock: Callable[[], float]) -> None:
        """`clock` gives Unix time (s), for the stamps."""
        self.module = module
        self.left_out_lines = 0
        self._files = files
        self._clock = clock
        self._followers: set[Callable[[LogLine], None]] = set()
        self._allowance = float(BURST_BYTES)
        self._allowed_at = 0.0
        self._unreported = 0

    def stderr_lines(self, instance: str, texts: Sequence[str]) -> None:
        self._write(instance, "stderr", texts)

    def log_event(self, instance: str, text: str) -> None:
        """Keep a `log` event that belonged to no request (docs/protocol.md)."""
        self._write(instance, "log", [text])

    def events(self, instance: str, events: Sequence[CallEvent]) -> None:
        """Keep events of requests, of `NOTED`, that arrived together.

        Of a flood no text is made that could not be written anyway.
        """
        kept = events
        if not self._followers:
            self._refill()
            kept = events[: int(self._allowance) // LEAST_BYTES]
            self._leave_out(len(events) - len(kept))
        self._write(
            instance,
            "event",
            [
                (error_text(one) if isinstance(one, ErrorEvent) else log_text(one))[:LINE_BYTES]
                for one in kept
                if isinstance(one, NOTED)
            ],
        )

    def host_line(self, instance: str | None, text: str) -> None:
        """Note a finding of the daemon about an instance, or else about the module."""
        self._write(instance or self.module, "host", [text])

    def follow(self, follower: Callable[[LogLine], None]) -> Callable[[], None]:
        """Call `follower` with each line from now on; returns what ends that."""
        self._followers.add(follower)
        return lambda: self._followers.discard(follower)

    def end(self) -> None:
        """Clear its error: its module is gone."""
        self._files.forget(self.module)

    async def last_lines(self, count: int) -> LogTail:
        """Return the last lines that were written before this call."""
        token = trio.lowlevel.current_trio_token()
        arrived = trio.Event()
        lines: list[bytes] = []

        def deliver(found: list[bytes]) -> None:
            lines.extend(found)
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(arrived.set)

        give_up = self._files.tail(self.module, count, deliver)
        try:
            await arrived.wait()
        finally:
            give_up()
        return LogTail(self.module, lines)

    def _write(self, instance: str, stream: str, texts: Sequence[str]) -> None:
        # A chunk of stderr may hold 65,536 lines: what a line costs here delays the neighbours.
        ts = self._clock()
        texts = list(map(without_password, texts))
        for follower in tuple(self._followers):
            for text in texts:
                follower(LogLine(ts, instance, stream, text))
        head = LogLine(ts, instance, stream, "").encode().rstrip(b"\n")
        self._refill()
        written: list[bytes] = []
        for text in texts:
            line = head + text.encode(errors="replace") + b"\n"
            if self._allowance < len(line):
                self._leave_out(1)
                continue
            self._allowance -= len(line)
            if self._unreported:
                words = f"{self._unreported} lines were left out: more than {RATE_BYTES_S} bytes/s"
                written.append(LogLine(ts, instance, "host", words).encode())
                self._unreported = 0
            written.append(line)
        if written:
            self._files.append(self.module, b"".join(written))

    def _leave_out(self, count: int) -> None:
        self._unreported += count
        self.left_out_lines += count

    def _refill(self) -> None:
        now = trio.current_time()
        grown = self._allowance + (now - self._allowed_at) * RATE_BYTES_S
        self._allowance, self._allowed_at = min(grown, float(BURST_BYTES)), now


class Stderr:
    """The stderr of one process: cut into lines of text whatever its bytes are, its end kept."""

    def __init__(self, instance: str, log: ModuleLog) -> None:
        self._instance = instance
        self._log = log
        self._partial = b""
        self._ring: deque[str] = deque()
        self._ring_chars = 0

    def feed(self, data: bytes) -> None:
        *whole, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_BYTES:
            whole.append(self._partial)
            self._partial = b""
        if whole:
            self._keep(whole)

    def finish(self) -> None:
        if self._partial:
            self._keep([self._partial])
            self._partial = b""

    def tail(self) -> list[str]:
        """Return the last lines, each cut to a bounded length, as evidence."""
        last = list(self._ring)[-TAIL_LINES:]
        if self._partial:
            last = [*last, self._partial.decode(errors="replace")][-TAIL_LINES:]
        return [without_password(text)[:TAIL_LINE_CHARS] for text in last]

    def _keep(self, lines: list[bytes]) -> None:
        pieces: list[str] = []
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if len(text) <= LINE_BYTES:
                pieces.append(text)
            else:
                pieces += [text[at : at + LINE_BYTES] for at in range(0, len(text), LINE_BYTES)]
        for piece in pieces[-RING_CHARS:]:  # each takes at least one
            self._ring.append(piece)
            self._ring_chars += len(piece) + 1
            while self._ring_chars > RING_CHARS:
                self._ring_chars -= len(self._ring.popleft()) + 1
        self._log.stderr_lines(self._instance, pieces)
