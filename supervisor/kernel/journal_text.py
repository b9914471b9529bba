"""Say what an entry of the journal is in one line, for people."""

from __future__ import annotations

from typing import Any

from protocol.errors import Origin

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
