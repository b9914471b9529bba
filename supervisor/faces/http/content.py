"""The bytes of an asset as the body of a response: whole or a range, and nothing that runs.

An asset may be a page with a script in it. So no asset is shown as a page of this daemon: all but
plain pictures, sound and text is a download, and no script of it runs.
"""

from __future__ import annotations

import re
from typing import Any

from protocol.errors import Failure, Reason
from protocol.events import Log, Progress
from protocol.response import Response
from supervisor.faces.http.connection import HttpConnection
from supervisor.faces.http.exchange import tell_failure
from supervisor.faces.http.head import Head, Headers
from supervisor.kernel.parties import Client, Handle
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion

_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")
_MEDIA = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(; ?[a-z]+=[A-Za-z0-9_.-]+)*")
_SHOWN = re.compile(
    r"(image/(png|jpeg|gif|webp)|(audio|video)/[\w.-]+|text/plain|application/json)(;.*)?"
)
"""To a browser a type that ends with `+xml` is a document, whatever it begins with."""

_SAFE: Headers = [
    ("Content-Security-Policy", "default-src 'none'; sandbox"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Accept-Ranges", "bytes"),
]


def range_args(head: Head) -> dict[str, int]:
    """Return the args of the op for the requested range; {} for the whole asset.

    Anything but one valid range may be ignored (RFC 9110 14.2), and a conditional one is.
    """
    found = _RANGE.fullmatch(head.headers.get("range", "").strip())
    if found is None or "if-range" in head.headers:
        return {}
    first, last, suffix = found.groups()
    if suffix is not None:
        return {"last": int(suffix)}
    if not last:
        return {"offset": int(first)}
    length = int(last) - int(first) + 1
    return {"offset": int(first), "length": length} if length > 0 else {}


class Content(Client):
    """A request for an asset's bytes (kernel.parties.Client)."""

    def __init__(self, connection: HttpConnection, head: Head) -> None:
        self.handle: Handle | None = None
        self._connection = connection
        self._head = head
        self._begun = False
        self._over = False

    def event(self, event: Progress, line: bytes | None) -> None:
        del line
        if self._over or not isinstance(event, Log) or not isinstance(event.fields, dict):
            return
        if self._begun:
            self._connection.put_body(event.fields["data"])
        else:
            self._begin(event.fields)

    def finished(self, response: Response) -> None:
        self.handle = None
        outcome = response.outcome
        if self._over:
            return
        if not isinstance(outcome, Failure):
            self._connection.end_body()
        elif self._begun:
            self._connection.abort()  # it is shorter than was said: the client sees that
        elif outcome.details.get("reason") == Reason.BEYOND_END:
            told = tell_failure(outcome, status=416)
            size = ("Content-Range", f"bytes */{outcome.details['size']}")
            self._connection.respond(told.status, [*told.headers, size], told.body)
        else:
            told = tell_failure(outcome)
            self._connection.respond(told.status, told.headers, told.body)

    def congested(self) -> Congestion:
        return Congestion.SLOW if self._connection.outbox.congested else Congestion.NONE

    def _begin(self, known: dict[str, Any]) -> None:
        self._begun = True
        tag = f'"{known["sha256"]}"' if known["sha256"] else None
        tagged = [("ETag", tag)] if tag is not None else []
        if tag is not None and self._head.headers.get("if-none-match") == tag:
            self._end(304, [*tagged, *_SAFE])
            return
        media, size = known["media_type"], known["size"]
        offset, length = known["offset"], known["length"]
        status = 200
        headers = [
            *tagged,
            *_SAFE,
            ("Content-Type", media if _MEDIA.fullmatch(media) else "application/octet-stream"),
            ("Content-Length", str(length)),
            ("Content-Disposition", "inline" if _SHOWN.fullmatch(media) else "attachment"),
        ]
        if length != size:
            status = 206
            headers.append(("Content-Range", f"bytes {offset}-{offset + length - 1}/{size}"))
        if self._head.method == "HEAD":
            self._end(status, headers)
        else:
            self._connection.begin_body(status, headers)

    def _end(self, status: int, headers: Headers) -> None:
        self._over = True
        self._connection.begin_body(status, headers)
        handle = self.handle
        if handle is not None:
            handle.cancel(Stopped(Reason.CLIENT, "its head was all that was asked for"))
        self._connection.end_body()
