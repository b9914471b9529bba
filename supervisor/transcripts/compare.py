"""Compare a replay with its transcript: the module's lines, as JSON, and the outcomes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

import msgspec

from protocol.errors import Reason
from protocol.framing import EXCERPT_BYTES, UNCOUNTED, Line, LineSplitter, Overlong
from protocol.json_line import Fault, excerpt, read_object
from protocol.transcript import KEPT_LINE_BYTES, Entry, EntrySource

ALWAYS_IGNORED = ("/requestId", "/timestamp")
"""Members that differ from run to run by their nature."""

RPC_IDS = (
    "/id",
    "/params/progressToken",
    "/params/_meta/io.modelcontextprotocol~1subscriptionId",
)
"""The ids of JSON-RPC, where they were others."""

SHOWN_SAME = 3
"""How many equal lines are shown around a difference."""

DIFFED_LINES = 2000
"""Longer conversations are compared position by position: a diff takes quadratic time."""


class Heard(msgspec.Struct, frozen=True):
    """A line of a module: its compared form, its shown form, and the request it names."""

    compared: bytes
    shown: str
    request_id: str | None


def heard(line: Line, ignored: Sequence[str]) -> Heard:
    """Prepare a line (without its newline) to be compared; `ignored` are JSON pointers."""
    if isinstance(line, Overlong):
        return _overlong(line.excerpt, line.limit)
    if len(line) > KEPT_LINE_BYTES:
        return _by_digest(len(line), hashlib.sha256(line).hexdigest())
    document = read_object(line)
    if isinstance(document, Fault):
        return Heard(line, excerpt(line), None)
    named = document.get("requestId")
    for pointer in (*ALWAYS_IGNORED, *ignored):
        _remove(document, pointer)
    compared = msgspec.json.encode(document, order="sorted")
    return Heard(compared, compared.decode(), named if isinstance(named, str) else None)


def recorded_lines(
    entries: Sequence[Entry], ignored: Sequence[str], line_bytes: int
) -> list[Heard]:
    """Return the module's lines among a process's entries, as a dialect would see them."""
    splitter = LineSplitter(line_bytes, UNCOUNTED)
    lines: list[Heard] = []
    for entry in entries:
        if entry.source is not EntrySource.MODULE or not entry.is_line:
            continue
        size = entry.size or 0
        if entry.whole:
            lines += [heard(one, ignored) for one in splitter.feed(entry.content() + b"\n")]
        elif size > line_bytes:
            lines.append(_overlong(entry.content()[:EXCERPT_BYTES], line_bytes))
        else:
            lines.append(_by_digest(size, entry.sha256 or ""))
    return lines


def _overlong(beginning: bytes, limit_bytes: int) -> Heard:
    shown = f"{excerpt(beginning)} (more than {limit_bytes} bytes)"
    return Heard(shown.encode(), shown, None)


def _by_digest(size: int, sha256: str) -> Heard:
    shown = f"{size} bytes with the SHA-256 {sha256}"
    return Heard(shown.encode(), shown, None)


def differences(recorded: Sequence[Heard], said: Sequence[Heard]) -> list[str]:
    """Return a diff: lines that begin with `-` were recorded, with `+` are new; empty if equal.

    Requests may be answered in another order when several are open; so lines that name one are
    compared request by request.
    """
    old, new = _by_request(recorded, recorded), _by_request(said, recorded)
    if [one.compared for one in old] == [one.compared for one in new]:
        return []
    if max(len(old), len(new)) > DIFFED_LINES:
        return _by_position(old, new)
    matcher = SequenceMatcher(
        None, [one.compared for one in old], [one.compared for one in new], autojunk=False
    )
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(SHOWN_SAME):
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                lines += [f"  {one.shown}" for one in old[old_from:old_to]]
            else:
                lines += [f"- {one.shown}" for one in old[old_from:old_to]]
                lines += [f"+ {one.shown}" for one in new[new_from:new_to]]
    return lines


def _by_position(old: Sequence[Heard], new: Sequence[Heard]) -> list[str]:
    lines: list[str] = []
    for before, after in zip_longest(old, new):
        if before is None or after is None or before.compared != after.compared:
            lines += [f"- {before.shown}"] if before else []
            lines += [f"+ {after.shown}"] if after else []
    return lines


def _by_request(lines: Sequence[Heard], recorded: Sequence[Heard]) -> list[Heard]:
    order: dict[str | None, int] = {}
    for one in recorded:
        order.setdefault(one.request_id, len(order))
    return sorted(lines, key=lambda one: order.get(one.request_id, len(order)))


def _remove(value: Any, pointer: str) -> None:
    """Remove what a JSON pointer leads to, if it is there."""
    *above, last = [one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]]
    try:
        for step in above:
            value = value[int(step) if isinstance(value, list) else step]
        if isinstance(value, list):
            value[int(last)] = None  # removing it would move the others
        else:
            del value[last]
    except (LookupError, TypeError, ValueError):
        pass


BY_HOST = frozenset(
    {
        Reason.DEADLINE,
        Reason.SILENCE,
        Reason.EXIT_DEADLINE,
        Reason.START_DEADLINE,
        Reason.SPAWN_FAILED,
        Reason.STOPPING,
        Reason.BROKEN_PIPE,
        Reason.CLIENT,
        Reason.DISCONNECT,
        Reason.SHUTDOWN,
    }
)
"""Reasons that do not follow from the conversation and the process's end."""

EVIDENCE = frozenset(
    {"instance", "pid", "uptime_s", "stderr_tail", "unfinished_line", "survivors", "limit"}
    | {"stopped_by_host", "exit_code", "signal", "retry_in_s"}
)
"""Keys of `details` about that run of the process, which are not compared."""


def is_of_host(outcome: dict[str, Any]) -> bool:
    """Tell whether an outcome is the host's own decision."""
    return reason_of(outcome) in BY_HOST


def reason_of(outcome: dict[str, Any]) -> str | None:
    error = outcome.get("error")
    details = error.get("details") if isinstance(error, dict) else None
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason if isinstance(reason, str) else None


def same(recorded: dict[str, Any], replayed: dict[str, Any] | None) -> bool:
    """Compare outcomes; what the recorded one leaves out is not compared."""
    if replayed is None:
        return False
    return all(_compared(value) == _compared(replayed.get(key)) for key, value in recorded.items())


def _compared(value: Any) -> bytes:
    if isinstance(value, dict) and isinstance(details := value.get("details"), dict):
        kept = {key: inner for key, inner in details.items() if key not in EVIDENCE}
        value = {**value, "details": kept}
    return msgspec.json.encode(value, order="sorted")  # in Python, True equals 1
