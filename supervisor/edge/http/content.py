"""The bytes of an asset as the body of a response: whole or a range, and nothing that runs.

An asset may be a page with a script in it. So no asset is shown as a page of this gateway: all but
plain pictures, sound and text is a download, and no script of it runs.

The bytes come over a connection of the request's own, a piece at a time, and the next piece is read
once the client has taken most of the last one: a file of any length takes no memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.client import Answer, RequestEvent
from protocol.errors import Reason
from supervisor.edge.http.answers import DoneLine, refusal_of
from supervisor.edge.http.daemon import DAEMON, DaemonAwayError
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import (
    Headers,
)

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


class _Bytes(msgspec.Struct, frozen=True):
    data: bytes
    """In the line as base64."""


class _Piece(msgspec.Struct, frozen=True):
    fields: _Bytes


_piece = msgspec.json.Decoder(_Piece).decode


def range_args(headers: Mapping[str, str]) -> dict[str, int]:
    """Return the args of `asset.content` for the requested range; {} for the whole asset.

    Anything but one valid range may be ignored (RFC 9110 14.2), and a conditional one is.
    """
    found = _RANGE.fullmatch(headers.get("range", "").strip())
    if found is None or "if-range" in headers:
        return {}
    first, last, suffix = found.groups()
    if suffix is not None:
        return {"last": int(suffix)}
    if not last:
        return {"offset": int(first)}
    length = int(last) - int(first) + 1
    return {"offset": int(first), "length": length} if length > 0 else {}


async def send_content(exchange: Exchange, args: dict[str, Any]) -> None:
    """Answer with the bytes of an asset; raises as `Daemon.stream`."""
    given = {"op": "asset.content", "args": args | range_args(exchange.headers)}
    with exchange.until_hung_up():
        try:
            async with exchange.stream(DAEMON, "invoke", given) as events:
                async for event in events:
                    if isinstance(event, Answer):
                        await _end(exchange, event)
                    elif isinstance(event, RequestEvent) and exchange.is_begun:
                        await exchange.write(_piece(event.line).fields.data)
                    elif isinstance(event, RequestEvent):
                        status, headers = _head(event.document["fields"], exchange.headers)
                        await exchange.begin(status, headers)
                        if exchange.method == "HEAD" or status == NOT_MODIFIED:
                            await exchange.end()
                            return
        except DaemonAwayError:
            if not exchange.is_begun:
                raise
            await exchange.cut_off()


NOT_MODIFIED, PARTIAL, BEYOND = 304, 206, 416


async def _end(exchange: Exchange, answer: Answer) -> None:
    if answer.ok:
        await exchange.end()
    elif exchange.is_begun:
        await exchange.cut_off()  # it is shorter than was said
    else:
        failure = DoneLine(answer).failure
        if failure.details.get("reason") == Reason.BEYOND_END:
            reply = refusal_of(failure, BEYOND)
            reply.headers.append(("Content-Range", f"bytes */{failure.details['size']}"))
        else:
            reply = refusal_of(failure)
        await exchange.respond(*reply)


def _head(known: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, Headers]:
    """Return the status and the headers for what is known of the asset and the range."""
    tag = f'"{known["sha256"]}"' if known["sha256"] else None
    said: Headers = [] if tag is None else [("ETag", tag)]
    if tag is not None and headers.get("if-none-match") == tag:
        return NOT_MODIFIED, [*said, *_SAFE]
    media, size = known["media_type"], known["size"]
    offset, length = known["offset"], known["length"]
    said += [
        *_SAFE,
        ("Content-Type", media if _MEDIA.fullmatch(media) else "application/octet-stream"),
        ("Content-Length", str(length)),
        ("Content-Disposition", "inline" if _SHOWN.fullmatch(media) else "attachment"),
    ]
    if length == size:
        return 200, said
    return PARTIAL, [*said, ("Content-Range", f"bytes {offset}-{offset + length - 1}/{size}")]
