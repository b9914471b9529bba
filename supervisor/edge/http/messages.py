"""HTTP messages without I/O: the heads and bodies of requests are read, and refusals made.

The head is checked before anything is looked up: what is odd in it means one thing to us and
another to a proxy before us. No part of a URL is ever joined to a path of the file system: its
segments are names, and `..` is the name of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from protocol.amcp_errors import AmcpError, ErrorCode
from protocol.frames import DEPTH, encode
from protocol.json_line import Fault, read_object
from protocol.weight import LONG_BYTES, MOST_VALUES, ValueCount, collector_paused, is_deeper

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[str, str]]

SSE, NDJSON = "text/event-stream", "application/x-ndjson"
OPENMETRICS = "application/openmetrics-text"
STREAMS = (SSE, NDJSON)

JSON = ("Content-Type", "application/json")
RETRY = ("Retry-After", "1")

HEAD_BYTES = 16384
"""The request line and all headers."""

HEADERS = 100
"""Per request; browsers send 20."""

QUERY_FIELDS = 32

BODY_BYTES = 16 << 20
"""As a line of the control socket may have."""

WHOLE = "http.response.whole"
"""The type of a message of ours to the server: status, headers and body of an answer at once."""

SECRET_FIELDS = frozenset(
    {"token", "access_token", "auth", "authorization", "api_key", "apikey", "key", "password"}
)
"""URLs stand in the logs of all they pass through, and in browsers' histories."""

_ONCE = frozenset(
    {
        *("accept", "authorization", "content-type", "cookie", "expect", "host", "if-match"),
        *("if-none-match", "last-event-id", "origin", "range", "sec-fetch-site"),
    }
)
"""Two of them would mean one thing to us and another to a proxy before us."""

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
ALWAYS = ("X-Content-Type-Options", "nosniff")
NO_STORE = ("Cache-Control", "no-store")
CLOSE = ("Connection", "close")


class Refusal(Exception):  # noqa: N818 - an answer, not a mistake
    """A request that is answered with an error of the route's own."""

    def __init__(
        self,
        code: ErrorCode,
        words: str,
        *,
        status: int | None = None,
        headers: Iterable[tuple[str, str]] = (),
        **details: Any,
    ) -> None:
        super().__init__(words)
        self.error = AmcpError(code, words, details)
        self.status = status or code.status
        self.headers = list(headers)

    def reply(self) -> WholeResponse:
        return WholeResponse(self.status, [*self.headers, JSON], encode(self.error.body()))


class WholeResponse(NamedTuple):
    """A response with its whole body."""

    status: int
    headers: Headers
    body: bytes


def too_large(most: int = BODY_BYTES) -> Refusal:
    words = f"the body is longer than the {most} bytes that it may have"
    return Refusal(ErrorCode.BAD_REQUEST, words, status=413)


def refuse_many(count: ValueCount, noun: str = "body") -> None:
    """Raise `Refusal` for what holds more than is built: others would wait for it."""
    if count.values > MOST_VALUES:
        words = f"the {noun} holds more than {MOST_VALUES} {count.name}"
        raise Refusal(ErrorCode.BAD_REQUEST, words, status=413)


def read_json(data: bytes, noun: str = "body") -> dict[str, Any]:
    """Read a JSON object; raises `Refusal`, which calls the data the `noun`."""
    if len(data) > LONG_BYTES:
        with collector_paused():
            found = read_object(data)
    else:
        found = read_object(data)
    if isinstance(found, Fault):
        is_json = found.reason == "not_object"
        code = ErrorCode.VALIDATION_ERROR if is_json else ErrorCode.INVALID_JSON
        raise Refusal(code, found.message.replace("the line", f"the {noun}"))
    if len(data) > 2 * DEPTH and is_deeper(found, DEPTH, data):
        words = f"the {noun} is nested more than {DEPTH} levels deep"
        raise Refusal(ErrorCode.VALIDATION_ERROR, words)
    return found


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    size, found = 0, dict[str, str]()
    for name_bytes, value_bytes in raw:
        size += len(name_bytes) + len(value_bytes)
        name, value = name_bytes.decode("latin-1"), value_bytes.decode("latin-1")
        if name not in found:
            found[name] = value
        elif name in _ONCE:
            raise Refusal(ErrorCode.BAD_REQUEST, f"the header {name} stands there twice")
        else:
            found[name] += ", " + value
    if len(raw) > HEADERS or size > HEAD_BYTES:
        words = f"a request may have {HEADERS} headers, and {HEAD_BYTES} bytes of them"
        raise Refusal(ErrorCode.BAD_REQUEST, words, status=431)
    if "content-length" in found and "transfer-encoding" in found:
        # Whoever stands before us may believe the other one (RFC 9112 6.3).
        words = "Content-Length and Transfer-Encoding are two lengths of one body"
        raise Refusal(ErrorCode.BAD_REQUEST, words)
    return found


def read_query(text: str) -> dict[str, str]:
    try:
        if _BAD_ESCAPE.search(text):
            raise ValueError  # noqa: TRY301 - as below
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS
        )
    except ValueError:
        words = f"the query is not UTF-8, or has more than {QUERY_FIELDS} fields"
        raise Refusal(ErrorCode.BAD_REQUEST, words) from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name.lower() in SECRET_FIELDS:
            words = f"{name} in a URL would end up in logs; say the token in Authorization"
            raise Refusal(ErrorCode.BAD_REQUEST, words)
        if name in found:
            words = f"{name:.80} stands twice in the query"
            raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name[:80])
        found[name] = value
    return found


def read_segment(segment: str) -> str:
    try:
        if _BAD_ESCAPE.search(segment):
            raise ValueError  # noqa: TRY301 - as below
        return unquote(segment, errors="strict")
    except ValueError:
        words = "a part of the path is not percent-encoded UTF-8"
        raise Refusal(ErrorCode.BAD_REQUEST, words) from None
