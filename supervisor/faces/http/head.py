"""The head of a request, decoded and checked: its path, query, origin and token.

These refusals come before the body is read and before any lookup. No part of a URL is ever joined
to a path of the file system: its segments are names, and `..` is the name of nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from protocol.amcp_errors import AmcpError, ErrorCode
from protocol.trace_context import is_traceparent
from supervisor.kernel.metrics import Form
from supervisor.policy.http_exposure import is_loopback

Headers = list[tuple[str, str]]

HEAD_BYTES = 16384
"""The request line and all headers."""

HEADERS = 100
"""Per request; browsers send 20."""

QUERY_FIELDS = 32

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

_ABSOLUTE = re.compile(r"https?://([^/?#@]+)([/?].*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::(\d{1,5}))?")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


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


class Head(msgspec.Struct, frozen=True):
    """A request without its body."""

    method: str
    path: str
    segments: tuple[str, ...]
    """The path's segments, decoded."""
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def has_body(self) -> bool:
        length = self.headers.get("content-length", "0")
        return length != "0" or "transfer-encoding" in self.headers

    def accepts(self, media: str) -> bool:
        """Whether the client accepts that type, or any."""
        said = self.headers.get("accept", "*/*").lower()
        return any(one.partition(";")[0].strip() in (media, "*/*") for one in said.split(","))

    @property
    def wants_stream(self) -> str | None:
        """Return the type of the stream that the client prefers, or None."""
        said = self.headers.get("accept", "").lower()
        if SSE not in said and NDJSON not in said:  # mostly, and looking closer takes longer
            return None
        return next((name for name in self._accepted() if name in STREAMS), None)

    @property
    def traceparent(self) -> dict[str, str]:
        """The trace context, as args of an invocation; {} without a valid one."""
        found = self.headers.get("traceparent")
        return {"traceparent": found} if found is not None and is_traceparent(found) else {}

    @property
    def wants_metrics(self) -> Form:
        """The form of metrics that is asked for; Prometheus asks for OpenMetrics among others."""
        return Form.OPENMETRICS if OPENMETRICS in self._accepted() else Form.PROMETHEUS

    def _accepted(self) -> Iterator[str]:
        """Return the accepted types in order."""
        for part in self.headers.get("accept", "").lower().split(","):
            name, *parameters = (one.strip() for one in part.split(";"))
            if not {"q=0", "q=0.0"} & {*parameters}:
                yield name


SSE, NDJSON = "text/event-stream", "application/x-ndjson"
OPENMETRICS = "application/openmetrics-text"
STREAMS = (SSE, NDJSON)


def read_head(method: bytes, target: bytes, raw: Iterable[tuple[bytes, bytes]]) -> Head:
    """Raises `Refusal`."""
    headers = _headers(raw)
    text = target.decode("ascii", errors="replace")
    absolute = _ABSOLUTE.fullmatch(text)
    if absolute is not None:
        headers["host"], text = absolute[1], absolute[2] or "/"
    path, _, query = text.partition("?")
    if not path.startswith("/") and not (path == "*" and method == b"OPTIONS"):
        raise Refusal(ErrorCode.BAD_REQUEST, "the target of a request is a path, such as /api/v1")
    segments = path.split("/")[1:]
    if "%" in path:
        segments = [_decoded(one) for one in segments]
    return Head(
        method.decode("ascii"), path, tuple(segments), _query(query) if query else {}, headers
    )


def check_host(head: Head, served: str | None) -> str:
    """Return the host that a request is meant for; `served` is ours, None if any will do.

    A page of any site can point its own name at 127.0.0.1 (DNS rebinding); its requests then name
    that host.
    """
    host = head.headers.get("host", "")
    found = _AUTHORITY.fullmatch(host)
    if found is None:
        raise Refusal(ErrorCode.BAD_REQUEST, "the request names no host that could be one")
    name = found[1].strip("[]").lower()
    if served is not None and name != served.lower() and not is_loopback(name):
        words = "this daemon is not served under the host that the request names; use localhost"
        raise Refusal(ErrorCode.FORBIDDEN, words, status=421)
    return name


def check_origin(head: Head, scheme: str, origins: Container[str]) -> None:
    """Refuse requests of pages of other origins, except the allowed ones."""
    if head.headers.get("origin") not in origins and not is_of_own_origin(head, scheme):
        raise Refusal(ErrorCode.FORBIDDEN, "pages of other origins may not use this daemon")


def is_of_own_origin(head: Head, scheme: str) -> bool:
    """Whether the request is none of another origin's page, allowed or not."""
    site = head.headers.get("sec-fetch-site")
    if site is not None:  # no page can write that, and it holds behind a proxy with TLS, too
        return site in ("same-origin", "none")
    same = f"{scheme}://{head.headers.get('host', '')}".lower()
    return head.headers.get("origin", same).lower() == same


def is_visit(head: Head) -> bool:
    """Whether a browser navigates: no page of another origin sees the answer."""
    headers = head.headers
    return (
        head.method == "GET"
        and "origin" not in headers
        and (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        == ("navigate", "document")
    )


def is_preflight(head: Head) -> bool:
    """Whether this is a CORS preflight, which carries no token."""
    return head.method == "OPTIONS" and "access-control-request-method" in head.headers


def cors(head: Head, origins: Container[str]) -> Headers:
    """Return the CORS headers for a page of one of these origins."""
    origin = head.headers.get("origin")
    if origin is None or origin not in origins:
        return []
    said = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
    if is_preflight(head):
        return [*said, *_PAGES_MAY]
    return [*said, ("Access-Control-Expose-Headers", "ETag, Retry-After, Content-Range")]


_PAGES_MAY = [
    ("Access-Control-Allow-Methods", "GET, HEAD, POST, PATCH, DELETE"),
    (
        "Access-Control-Allow-Headers",
        "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, Range",
    ),
    ("Access-Control-Max-Age", "600"),
]


def token_of(head: Head) -> str | None:
    """Return the token of a request, None if it has none; raises `Refusal`."""
    said = head.headers.get("authorization")
    if said is None:
        return None
    scheme, _, value = said.partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                whole = base64.b64decode(value.strip(), validate=True).decode()
            except (binascii.Error, ValueError):
                whole = ""
            return whole.partition(":")[2]
    raise unauthorized("Authorization takes Bearer, or Basic with the token as the password")


def cookie_of(head: Head, name: str) -> str | None:
    """Return the cookie of that name, None if there is none.

    Of several it is the last one: cookies for a longer path come first, and ours is for all paths
    (RFC 6265 5.4).
    """
    found = None
    for one in head.headers.get("cookie", "").split(";"):
        key, _, value = one.strip().partition("=")
        found = value if key == name else found
    return found


def unauthorized(words: str) -> Refusal:
    """Refuse a request without a token, or with an invalid one."""
    challenge = [("WWW-Authenticate", 'Bearer realm="stdiod"')]
    return Refusal(ErrorCode.UNAUTHORIZED, words, headers=challenge)


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    count = size = 0
    for name_bytes, value in raw:
        count += 1
        size += len(name_bytes) + len(value)
        name = name_bytes.decode("latin-1")
        if name in found:
            if name in _ONCE:
                words = f"the header {name} stands there twice"
                raise Refusal(ErrorCode.BAD_REQUEST, words)
            found[name] += ", " + value.decode("latin-1")
        else:
            found[name] = value.decode("latin-1")
    if count > HEADERS or size > HEAD_BYTES:
        words = f"a request may have {HEADERS} headers, and {HEAD_BYTES} bytes of them"
        raise Refusal(ErrorCode.BAD_REQUEST, words, status=431)
    if "content-length" in found and "transfer-encoding" in found:
        # Whoever stands before us may believe the other one (RFC 9112 6.3).
        words = "Content-Length and Transfer-Encoding are two lengths of one body"
        raise Refusal(ErrorCode.BAD_REQUEST, words)
    return found


def _query(text: str) -> dict[str, str]:
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


def _decoded(segment: str) -> str:
    try:
        if _BAD_ESCAPE.search(segment):
            raise ValueError  # noqa: TRY301 - as below
        return unquote(segment, errors="strict")
    except ValueError:
        words = "a part of the path is not percent-encoded UTF-8"
        raise Refusal(ErrorCode.BAD_REQUEST, words) from None
