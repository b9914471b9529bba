"""The client of one request (kernel.parties.Client): what it is told becomes a response.

Answer      one body once it is answered; events are left out, or gathered into it
Stream      each event as it comes (`event_stream`)
Content     the bytes of an asset (`content`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.amcp_errors import error_of
from protocol.errors import Code, Failure, Origin, Reason, Success
from protocol.events import Log, Progress, built
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.response import Response
from supervisor.faces.http.connection import JSON, RETRY, HttpConnection, error_body
from supervisor.faces.http.head import Headers
from supervisor.kernel.parties import Client, Handle
from supervisor.policy.verdict import Stopped

Selection = Callable[[Any], Any]
"""Selects the shown part of a result, given as `Success.encodable`."""


class Told(msgspec.Struct, frozen=True):
    """A response with its body encoded."""

    status: int
    body: bytes
    headers: Headers


Gathered = Callable[[Any, list[msgspec.Raw]], Any]
"""Makes the result and what was gathered of events into the document to encode."""

Tell = Callable[[Response], Told]
"""Makes the response of a route out of the response of a request."""


def whole(result: Any) -> Any:
    return result


def tell_result(response: Response, view: Selection = whole, status: int = 200) -> Told:
    outcome = response.outcome
    if isinstance(outcome, Success):
        shown = view(outcome.encodable)
        headers = [JSON]
        if isinstance(shown, Tagged):
            headers.append(("ETag", shown.tag))
            shown = shown.value
        return Told(status, encoded(shown), headers)
    return tell_failure(outcome)


class Tagged(msgspec.Struct, frozen=True):
    """A value, and the tag of this version of it."""

    value: Any
    tag: str


def tell_failure(failure: Failure, status: int | None = None) -> Told:
    error = error_of(failure)
    again = [RETRY] if failure.details.get("reason") in _LATER else []
    headers = [JSON, *again]
    try:
        body = error_body(error)
    except UNENCODABLE:  # a path that is no UTF-8, say
        body = error_body(msgspec.structs.replace(error, details={}))
    return Told(status or error.status, body, headers)


def tell_response(response: Response) -> Told:
    """Return the response of an invocation (docs/http.md has the table)."""
    status = 200 if response.ok else status_of(response.outcome)  # type: ignore[arg-type]
    again = [RETRY] if status == _TRY_LATER else []
    return Told(status, encoded(response.shown()), [JSON, *again])


def tell_module_protocol(response: Response) -> Told:
    """Return a response of Module Protocol v1: a module's own error unwrapped, and no status."""
    outcome = response.outcome
    if isinstance(outcome, Failure) and outcome.details.get("origin") == Origin.MODULE:
        return Told(200, encoded({"ok": False, "error": outcome.as_reported}), [JSON])
    document = response.document(built=False)
    plain = {key: document[key] for key in ("ok", "result", "error") if key in document}
    return Told(200, encoded(plain), [JSON])


def tell_answer(response: Response) -> Told:
    """Return the answer to `health` or `describe` as Module Protocol v1 does."""
    if isinstance(response.outcome, Success):
        return Told(200, encoded(response.outcome.encodable), [JSON])
    return tell_module_protocol(response)


_TRY_LATER = 503
_LATER = frozenset({Reason.QUEUE_FULL, Reason.STOPPING})
_NOT_FOUND = frozenset({Reason.UNKNOWN_MODULE, Reason.UNKNOWN_SESSION, Reason.SESSION_ENDED})
_STATUS = {
    Code.BAD_REQUEST: 400,
    Code.UNSUPPORTED_OP: 400,
    Code.FORBIDDEN: 403,
    Code.TIMEOUT: 504,
    Code.UNREACHABLE: 502,
    Code.CANCELLED: 499,
    Code.OOM: 500,
    Code.INTERNAL: 500,
}


def status_of(failure: Failure) -> int:
    """Return the status of a failed invocation; a failure that the module reports is always 422."""
    if failure.details.get("origin") == Origin.MODULE:
        return 422
    reason = failure.details.get("reason")
    if reason in _LATER:
        return _TRY_LATER
    return 404 if reason in _NOT_FOUND else _STATUS[Code(failure.code)]


def tell_metrics(response: Response) -> Told:
    outcome = response.outcome
    if isinstance(outcome, Failure):
        return tell_failure(outcome)
    content_type = [("Content-Type", outcome.result["content_type"])]
    return Told(200, outcome.result["text"].encode(), content_type)


def tell_prompt(response: Response) -> Told:
    """Return the answer to a prompt, or its failure: an error of the module is no 5xx."""
    outcome = response.outcome
    if isinstance(outcome, Success):
        answer = {"session_id": response.session_id, "status": "complete", **outcome.result}
        return Told(200, encoded({**answer, "response": answer["content"]}), [JSON])
    code = error_of(outcome).code
    return tell_failure(outcome, status_of(outcome) if code.status >= 500 else None)  # noqa: PLR2004


class Answer(Client):
    """A request that is answered by one body."""

    def __init__(
        self, connection: HttpConnection, tell: Tell, gather: Gathered | None = None
    ) -> None:
        """With `gather`, the fields of the events are a part of the body."""
        self.handle: Handle | None = None
        self._connection = connection
        self._tell = tell
        self._gather = gather
        self._gathered: list[msgspec.Raw] = []
        self._bytes = 0

    def event(self, event: Progress, line: bytes | None) -> None:
        del line
        if self._gather is None or not isinstance(event, Log):
            return
        one = encoded(fields_of(event))
        self._bytes += len(one)
        self._gathered.append(msgspec.Raw(one))
        if not self._connection.account.takes_answer(self._bytes) and self.handle is not None:
            words = "there is no room for the answer; ask for less at a time"
            self.handle.cancel(Stopped(Reason.QUEUE_FULL, words))

    def finished(self, response: Response) -> None:
        self.handle = None  # they hold each other
        outcome = response.outcome
        if self._gather is not None and isinstance(outcome, Success):
            shown = self._gather(outcome.result, self._gathered)
            response = msgspec.structs.replace(response, outcome=Success(shown))
        told = self._tell(response)
        account = self._connection.account
        if len(told.body) > account.free_bytes and not account.takes_answer(len(told.body)):
            words = f"an answer of {len(told.body)} bytes found no room to wait in"
            told = tell_failure(Failure.because(Reason.QUEUE_FULL, words, succeeded=response.ok))
        head = self._connection.head
        if head is not None and ("ETag", head.headers.get("if-none-match")) in told.headers:
            told = Told(304, b"", [one for one in told.headers if one != JSON])
        self._connection.respond(told.status, told.headers, told.body)


def numbered(result: Any, gathered: list[msgspec.Raw]) -> Any:
    """Return entries of the journal; the first event describes them."""
    return {"events": gathered[1:], **result}


def logged(result: Any, gathered: list[msgspec.Raw]) -> Any:
    return {"lines": gathered, **result}


def fields_of(event: Log) -> dict[str, Any]:
    """Return the fields of a `log` of an op, with its message if that says more."""
    fields = built(event.fields)
    return (
        fields if "seq" in fields or "approval" in fields else {"message": event.message, **fields}
    )


def encoded(value: Any) -> bytes:
    """Encode a body; an error in its place if that fails."""
    try:
        return encode(value)
    except UNENCODABLE as error:
        words = f"the answer cannot be passed on: {type(error).__name__}"
        return encode({"error": words, "code": "INTERNAL_ERROR"})
