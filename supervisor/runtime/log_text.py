"""Put a `log` or an `error` event into one line of text."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from protocol.events import ErrorEvent, Log
from protocol.frames import encode


def log_text(event: Log) -> str:
    """Return level, message and fields; newlines in the message become spaces."""
    return _line(f"{event.level}: {event.message}", event.fields)


def error_text(event: ErrorEvent) -> str:
    """Return code, message and details in the same form."""
    return _line(f"error: {event.error_code}: {event.error_message}", event.details)


def _line(words: str, fields: dict[str, Any] | UnsetType) -> str:
    text = " ".join(words.splitlines())
    if fields is UNSET or not fields:
        return text
    try:
        return f"{text} {encode(fields).decode()}"
    except RecursionError:
        return f"{text} (fields nested too deeply to be written)"
