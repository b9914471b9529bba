"""The journal's entries of invocations that ended, but for plain ones (`Recorder.span_ended`).

Texts that a client or a module chose are cut here, so that no entry is as long as a line of the
wire may be; the response itself has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from protocol.errors import Failure
from protocol.events import ErrorEvent
from protocol.host_call import UNENCODABLE
from protocol.replies import read_error
from protocol.response import Response
from supervisor.kernel.parties import Provenance
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.store.settings import IN_FLIGHT, NAME_CHARS

MESSAGE_CHARS = 2000
DETAILS_BYTES = 8192
"""Bytes of an error's details; evidence fits, with 20 lines of a `stderr_tail` of usual length."""

ERRORS_RECORDED = 16
"""The `error` events of one request that are recorded; the entry of its end counts all."""

NOTHING: Mapping[str, str] = MappingProxyType({})

_encode = msgspec.json.Encoder().encode

log = structlog.get_logger()


def record_response(
    recorder: Recorder,
    response: Response,
    span_id: str,
    *,
    parent: str | None,
    by: msgspec.Raw,
    was_in_flight: bool,
    errors: int = 0,
    attributes: Mapping[str, str] = NOTHING,
) -> None:
    """Record how an invocation ended, also one that was never accepted.

    At any moment the disk says that, or that it is in flight. `errors` is the number of its `error`
    events, `attributes` are its dialect's.
    """
    _log(response)
    outcome = response.outcome
    # `type() is`: `isinstance` of a msgspec type is slow to say no, and mostly it is a success.
    error = bounded_error(outcome) if type(outcome) is Failure else None
    session_id = response.session_id
    data: dict[str, Any] = {"op": response.op[:NAME_CHARS], **attributes}
    if parent is not None:
        data["parent_span_id"] = parent
    if response.notices:
        data["warnings"] = len(response.notices)
    if errors:
        data["errors"] = errors
    recorder.record(
        "module:invoke",
        module=response.module[:NAME_CHARS],
        status="ok" if error is None else "error",
        duration_ms=response.duration_ms,
        data=data,
        error=error,
        session_id=None if session_id is None else session_id[:NAME_CHARS],
        request_id=response.request_id,
        span_id=span_id,
        by=by,
        in_place_of=(IN_FLIGHT, span_id) if was_in_flight else None,
    )


def record_error(recorder: Recorder, event: ErrorEvent, origin: Provenance) -> None:
    """Record an `error` event as the word of a module (Spec 001 4.5)."""
    session_id = origin.session_id
    recorder.record(
        "module:error",
        module=origin.module[:NAME_CHARS],
        data={"op": origin.op[:NAME_CHARS]},
        error=bounded_error(read_error(event)),
        session_id=None if session_id is None else session_id[:NAME_CHARS],
        request_id=origin.request_id,
        span_id=origin.span_id,
        by=origin.by,
    )


def bounded_error(failure: Failure) -> dict[str, Any]:
    """Return an error as Error Schema v1, cut to a bounded size.

    The command line of an exec call (`ran`) is made of its args, which no journal has.
    """
    details = {key: value for key, value in failure.details.items() if key != "ran"}
    try:
        fits = len(_encode(details)) <= DETAILS_BYTES
    except UNENCODABLE:
        fits = False  # a module's own, as deep as its line was
    if not fits:
        short = {
            key: value
            for key, value in details.items()
            if isinstance(value, int | float)
            or (isinstance(value, str) and len(value) < NAME_CHARS)
        }
        details = {**dict(list(short.items())[:20]), "cut": True}
    return {
        "code": failure.code[:NAME_CHARS],
        "message": failure.message[:MESSAGE_CHARS],
        "details": details,
    }


def _log(response: Response) -> None:
    failure = response.outcome
    if type(failure) is not Failure:  # see `record_response`
        return
    log.warning(
        "invocation failed",
        module=response.module,
        op=response.op,
        request=response.request_id,
        instance=failure.details.get("instance"),
        code=failure.code,
        origin=failure.details.get("origin"),
        reason=failure.details.get("reason"),
        words=failure.message,
        duration_ms=response.duration_ms,
    )
