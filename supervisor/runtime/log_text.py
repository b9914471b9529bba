"""Put a `log` event into one line of text."""

from __future__ import annotations

from msgspec import UNSET

from protocol.events import Log
from protocol.frames import encode


def log_text(event: Log) -> str:
    """Return level, message and fields; newlines in the message become spaces."""
    text = f"{event.level}: {' '.join(event.message.splitlines())}"
    if event.fields is UNSET or not event.fields:
        return text
    try:
        return f"{text} {encode(event.fields).decode()}"
    except RecursionError:
        return f"{text} (fields nested too deeply to be written)"
