"""One message of a WebSocket client, decoded: its action, and its id."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.amcp_errors import ErrorCode
from protocol.frames import DEPTH
from protocol.weight import LONG_BYTES
from supervisor.faces.http.body import read_body
from supervisor.faces.http.head import Refusal

ID_CHARS = 256
"""The longest id of a request; each frame that answers it has the id."""


class Message(msgspec.Struct, gc=False):
    """`{"type":"request","id":...,"payload":{"action":...}}`."""

    id: str | None = None
    type: str = "request"
    payload: dict[str, Any] | None = None
    """None also where it is no object."""


_decode = msgspec.json.Decoder(Message).decode


def read_message(data: bytes) -> Message:
    """Raises `Refusal`."""
    # Only a message with that many brackets can be that deep.
    if len(data) <= LONG_BYTES and data.count(b"{") + data.count(b"[") <= DEPTH:
        try:
            message = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # it is told below what is wrong
        else:
            if message.id is None or len(message.id) <= ID_CHARS:
                return message
    found = read_body(data, "message")
    message_id, kind, payload = found.get("id"), found.get("type", "request"), found.get("payload")
    if not (message_id is None or (isinstance(message_id, str) and len(message_id) <= ID_CHARS)):
        words = f"id has to be a string, of {ID_CHARS} characters at most"
        raise Refusal(ErrorCode.INVALID_MESSAGE, words, field="id")
    return Message(
        message_id,
        kind if isinstance(kind, str) else "",
        payload if isinstance(payload, dict) else None,
    )
