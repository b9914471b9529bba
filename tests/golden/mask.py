"""What of an output is the same each time: ids, times, pids, ports and paths are replaced.

A line that is JSON is written with its members by name, over several lines if it is long, so that a
diff shows the member that differs. Ids are numbered as they come (`R1`, `R2`): what has the same
number in a scenario is the same id.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 120
"""A JSON value that fits into it stays on one line."""

MEASURED = frozenset(
    [
        "at_s",
        "blank_pid",
        "bytes_used",
        "cpu_s",
        "duration_ms",
        "dur_ms",
        "eta",
        "first_seq",
        "for_s",
        "guardian_pid",
        "in_s",
        "last_seq",
        "left_s",
        "longest_ms",
        "max",
        "ms",
        "most",
        "most_ms",
        "next",
        "next_retry_s",
        "open",
        "p50",
        "p99",
        "peak_bytes",
        "pid",
        "retry_in_s",
        "reaped_orphans",
        "rss_bytes",
        "seq",
        "since",
        "spawner_pid",
        "started",
        "started_ts",
        "started_at",
        "took_s",
        "total",
        "ts",
        "ts_ms",
        "uptime_s",
        "used",
        "at",
        "expires",
        "created",
        "updated",
        "ended",
        "since_ts",
        "timestamp",
        "mtime",
        "limit",
        "mtime_ns",
        "created_at",
        "updated_at",
        "ended_at",
        "expires_at",
        "memory_bytes",
        "last_activity",
    ]
)
"""Members whose numbers and times differ from run to run."""

ALWAYS_MEASURED = frozenset(
    ["cpu_s", "duration_ms", "left_s", "pid", "retry_in_s", "seq", "ts", "uptime_s"]
)

KEPT = frozenset({"limits", "payload", "inputs"})
"""Below these the numbers are the module's or the descriptor's, unless they are `ts`."""

IDS = (
    ("R", re.compile(r"\br\d+(?:-[0-9a-f]{4,})?\b")),
    ("AP", re.compile(r"\bap-[0-9a-f]{6,}")),
    ("M", re.compile(r"\bm-[0-9a-f]{6,}")),
    ("TOKEN", re.compile(r"\bstd(?:io)?d?_(?=\S*[A-Z])[A-Za-z0-9_-]{20,}")),
    ("SPAN", re.compile(r"\b[0-9a-f]{8,}-[a-z]*\d+(?:-[0-9a-f]{4,})?\b")),
    ("SECRET", re.compile(r"(?<![\w-])[A-Za-z0-9_-]{43}(?![\w-])")),
    ("PAGE", re.compile(r"\bpage-[0-9a-f]{4,}")),
    ("UUID", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")),
    ("HEX", re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}\b|\b[0-9a-f]{8}\b")),
)
USER = re.compile(rf"\b{re.escape(getpass.getuser())}\b")
INSTANCE = re.compile(r"\b([a-z][a-z0-9_-]*)#(\d+)\b")

WORDS = (
    (re.compile(r'("duration_ms": ?)\d+'), r"\1#"),
    (re.compile(r"it used (no|[\d.]+ s of) CPU"), "it used no CPU"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "TIME"),
    (re.compile(r"\b(pids?|process)([ =])\d+"), r"\1\2#"),
    (re.compile(r"\b(cgroup2|subreaper|process_group)\b"), "CONTAINMENT"),
    (re.compile(r"\b(\d+(\.\d+)?(us|ms|s|m|h|d))+(?![\w])"), "#s"),
    (re.compile(r"\bstdiod-\d+="), "stdiod-PORT="),
    (re.compile(r"mcp-session-id: \S+"), "mcp-session-id: SESSION"),
    (re.compile(r"\b\d+ bytes of memory"), "# bytes of memory"),
    (re.compile(r"the request has id \d+"), "the request has id #"),
    (re.compile(r"entries up to \d+"), "entries up to #"),
    (re.compile(r"\b\d+(\.\d+)? (KiB|MiB|GiB|KB|MB|GB)\b"), "# MiB"),
    (re.compile(r"\b\d+\.\d+ ?%"), "#%"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}\b"), r"\1:PORT"),
    (re.compile(r"\bPython/?\s?3\.\d+(\.\d+)?"), "Python"),
    (re.compile(r"\bpython3\.\d+\b"), "python3"),
)


class Mask:
    """The replacements of one scenario."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Write each of some paths by another name."""
        self._places = sorted(places.items(), key=lambda place: -len(place[0]))
        self._ids: dict[tuple[str, str], str] = {}

    def text(self, text: str) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        text = USER.sub("USER", text)
        text = INSTANCE.sub(lambda found: f"{found[1]}#{self._number(found[1], found[2])}", text)
        for kind, pattern in IDS:
            text = pattern.sub(lambda found: f"{kind}{self._number(kind, found[0])}", text)  # noqa: B023
        for pattern, word in WORDS:
            text = pattern.sub(word, text)
        return text

    def value(self, value: Any, *, kept: bool = False) -> Any:
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item, kept=kept) for item in value]
            case dict():
                return {
                    self.text(name): "#"
                    if name == "requestState"
                    or (
                        name in MEASURED
                        and _varies(member)
                        and (not kept or name in ALWAYS_MEASURED)
                    )
                    else self.value(member, kept=kept or _is_of_module(name, value))
                    for name, member in value.items()
                }
        return value

    def line(self, line: str, *, raw: bool = False) -> Iterator[str]:
        """Give what is shown of a line, in one or more lines."""
        head, found, tail = line.partition("data: ")
        if raw or (head if found else False):
            head, tail = "", line
        else:
            head, tail = (found, tail) if found else ("", line)
        if not raw and tail[:1] in ("{", "["):
            try:
                value = json.loads(tail)
            except ValueError:
                pass
            else:
                shown = spread(self.value(value))
                yield head + next(shown)
                yield from shown
                return
        yield self.text(line) if raw else re.sub(r"(?<=\S)   +", "  ", self.text(line))

    def _number(self, kind: str, found: str) -> int:
        of_kind = [name for name in self._ids if name[0] == kind]
        if (kind, found) not in self._ids:
            self._ids[kind, found] = str(len(of_kind) + 1)
        return int(self._ids[kind, found])


def _is_of_module(name: str, beside: Mapping[str, Any]) -> bool:
    return name in KEPT or (name == "result" and "module" in beside)


def _varies(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (isinstance(value, str) and value[:1].isdigit())


def spread(value: Any, indent: str = "") -> Iterator[str]:
    """Write JSON on one line if that is short, else each member on a line of its own."""
    short = json.dumps(value, sort_keys=True, ensure_ascii=True)
    if len(indent) + len(short) <= WIDTH or not value or not isinstance(value, dict | list):
        yield indent + short
        return
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    members = sorted(value.items()) if isinstance(value, dict) else [("", one) for one in value]
    yield indent + opening
    packed = ""  # short members share a line
    for name, member in members:
        label = f"{json.dumps(name)}: " if isinstance(value, dict) else ""
        first, *rest = spread(member, indent + " ")
        shown = label + first.lstrip()
        if packed and (rest or len(packed) + len(shown) > WIDTH):
            yield packed
            packed = ""
        if rest:
            yield f"{indent} {shown}"
            yield from rest
        else:
            packed = f"{packed}, {shown}" if packed else f"{indent} {shown}"
    if packed:
        yield packed
    yield indent + closing
