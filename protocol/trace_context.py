"""W3C Trace Context: the `traceparent` of an invocation, for dialects that carry one.

The trace is the caller's, or else that of the first invocation of the tree; the parent in it is the
invocation itself. Ids are digests of the journal's own, so that none is stored.
"""

from __future__ import annotations

import re

_TRACEPARENT = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/#traceparent-header-field-values, version 00."""

EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

_SAMPLED = "01"
"""Always set: a server would otherwise drop spans that the journal keeps."""


def is_traceparent(value: object) -> bool:
    return isinstance(value, str) and _TRACEPARENT.fullmatch(value) is not None


def traceparent(span_id: str, first_span_id: str, caller: str | None) -> str:
    """Return the traceparent of a span; `caller` is the one that the first caller gave, if any."""
    from hashlib import blake2b  # noqa: PLC0415 - whoever only checks needs no OpenSSL

    if caller is None:
        trace, flags = blake2b(first_span_id.encode(), digest_size=16).hexdigest(), _SAMPLED
    else:
        _, trace, _, flags = caller.split("-")
    return f"00-{trace}-{blake2b(span_id.encode(), digest_size=8).hexdigest()}-{flags}"
