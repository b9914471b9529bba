"""How the answers of the daemon are told over HTTP: status, headers and body (docs/http.md).

A failure of an invocation is told as its response is; any other failure as an error of the route,
with AMCP's codes. What a module said is passed on in its own spelling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from protocol.amcp_errors import LATER, TRY_LATER, ErrorCode, error_of, status_of
from protocol.client import Answer, RequestEvent
from protocol.errors import Failure, Origin, Reason
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.problem import named
from supervisor.edge.http.daemon import DAEMON, SHARED_BYTES
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import (
    JSON,
    RETRY,
    Refusal,
    WholeResponse,
)

Tell = Callable[["DoneLine"], WholeResponse]
"""Makes the reply of a route of what ended its request."""

Result = dict[str, Any]


class _Line(msgspec.Struct):
    ok: bool
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None
    session_id: str | None = None


_read = msgspec.json.Decoder(_Line).decode


class DoneLine:
    """The `done` of a request, read as far as its route needs."""

    def __init__(
        self, answer: Answer, events: list[RequestEvent] | None = None, *, is_late: bool = False
    ) -> None:
        """Raises `Refusal` for what is no answer of the op: its login's end, or rate.

        Not if it `is_late`, since a stream has begun.
        """
        self.answer = answer
        self.ok = answer.ok
        self.events = events or []
        """Of a route that gathers them."""
        if not answer.ok and not is_late:
            failure = self.failure
            if failure.details.get("origin") == Origin.HOST:
                _refuse(failure)

    @property
    def line(self) -> _Line:
        return _read(self.answer.line)

    @property
    def result(self) -> bytes:
        """The result, as its module spelled it."""
        return bytes(self.line.result)

    @property
    def built(self) -> Any:
        return msgspec.json.decode(self.result)

    @property
    def failure(self) -> Failure:
        failure = self.line.error
        assert failure is not None  # noqa: S101 - the daemon's protocol
        return failure

    @property
    def response(self) -> bytes:
        """The response: the line without the members of an event, which come first in it."""
        head = b'{"version":"0","type":"done","requestId":"%s",' % self.answer.request_id.encode()
        line = self.answer.line
        if line.startswith(head):
            return b"{" + line[len(head) :]
        return encode(self.answer.document)


def _refuse(failure: Failure) -> None:
    match failure.details.get("reason"):
        case Reason.RATE_LIMITED:
            wait_s = failure.details.get("retry_in_s", 1)
            again = [("Retry-After", str(math.ceil(wait_s)))]
            code, words = ErrorCode.RATE_LIMITED, failure.message
            raise Refusal(code, words, headers=again, retry_in_s=wait_s)
        case Reason.LOGIN_OVER:
            words = "the token that it was asked with is over"
            raise Refusal(ErrorCode.CANCELLED, words)


async def ask(exchange: Exchange, tool: str, operation: str, given: dict[str, Any]) -> DoneLine:
    """Ask as a request's login; `given` is empty then.

    Raises as `Daemon.ask`, `Refusal`, and `ClientGoneError`.
    """
    gathers = exchange.route.gathers
    with exchange.until_hung_up():
        # A principal that narrows itself narrows its login, which others may have, too.
        narrows = tool == DAEMON and given.get("op") == "narrow"
        if exchange.body_bytes <= SHARED_BYTES and not gathers and not narrows:
            return DoneLine(await exchange.ask(tool, operation, given))
        events: list[RequestEvent] = []
        async with exchange.stream(tool, operation, given) as stream:
            async for event in stream:
                if isinstance(event, Answer):
                    return DoneLine(event, events)
                if gathers and isinstance(event, RequestEvent):
                    events.append(event)
    raise AssertionError  # a stream ends with its answer, or raises


# Failures.


def refusal_of(failure: Failure, status: int | None = None) -> WholeResponse:
    """Tell a failure as an error of the route."""
    error = error_of(failure)
    again = [RETRY] if failure.details.get("reason") in LATER else []
    try:
        body = encode(error.body())
    except UNENCODABLE:  # a path that is no UTF-8, say
        body = encode(msgspec.structs.replace(error, details={}).body())
    return WholeResponse(status or error.status, [JSON, *again], body)


# Ops of the daemon.


def result(view: Callable[[Any], Any] | None = None, status: int = 200) -> Tell:
    """Tell the result of an op, or the part of it that `view` selects."""

    def tell(done: DoneLine) -> WholeResponse:
        if not done.ok:
            return refusal_of(done.failure)
        return WholeResponse(
            status, [JSON], done.result if view is None else encode(view(done.built))
        )

    return tell


def tagged(view: Callable[[Any], Any] | None = None) -> Tell:
    """Tell a result with a session's revision as its tag; another one is a failed precondition."""
    plain = result(view)

    def tell(done: DoneLine) -> WholeResponse:
        if done.ok:
            reply = plain(done)
            reply.headers.append(("ETag", f'"{done.built["revision"]}"'))
            return reply
        is_other = done.failure.details.get("reason") == Reason.REVISION_CONFLICT
        return refusal_of(done.failure, 412 if is_other else None)

    return tell


_NOT_FOUND_OF = {"tool": ErrorCode.TOOL_NOT_FOUND, "agent": ErrorCode.AGENT_NOT_FOUND}


def one_of(kind: str) -> Tell:
    """Tell a module's status if it is of a kind: to AMCP there is no other one of that name."""

    def tell(done: DoneLine) -> WholeResponse:
        if done.ok and done.built["kind"] == kind:
            return WholeResponse(200, [JSON], done.result)
        if done.ok:
            words = f"there is no {kind} {named(done.built['name'], 80)}"
            return Refusal(_NOT_FOUND_OF[kind], words).reply()
        error = error_of(done.failure)
        if error.code is ErrorCode.NOT_FOUND:
            error = msgspec.structs.replace(error, code=_NOT_FOUND_OF[kind])
        return WholeResponse(error.status, [JSON], encode(error.body()))

    return tell


def gathered(name: str, first: int = 0) -> Tell:
    """Tell a result with the fields of the `log` events, from that number on, as one member."""

    def tell(done: DoneLine) -> WholeResponse:
        if not done.ok:
            return refusal_of(done.failure)
        shown = [fields_of(one) for one in done.events[first:]]
        return WholeResponse(200, [JSON], encode({name: shown, **done.built}))

    return tell


def fields_of(event: RequestEvent) -> Result:
    """Return the fields of a `log` of an op, with its message if that says more."""
    document = event.document
    fields: Result = document.get("fields", {})
    if "seq" in fields or "approval" in fields:
        return fields
    return {"message": document["message"], **fields}


def metrics(done: DoneLine) -> WholeResponse:
    """Tell the metrics' text."""
    if not done.ok:
        return refusal_of(done.failure)
    shown = done.built
    return WholeResponse(200, [("Content-Type", shown["content_type"])], shown["text"].encode())


# Invocations.


def response(done: DoneLine) -> WholeResponse:
    """Tell the response of an invocation (docs/http.md has the table)."""
    status = 200 if done.ok else status_of(done.failure)
    again = [RETRY] if status == TRY_LATER else []
    return WholeResponse(status, [JSON, *again], done.response)


def module_protocol(done: DoneLine) -> WholeResponse:
    """Tell a response of Module Protocol v1: a module's own error unwrapped, and no status."""
    if done.ok:
        return WholeResponse(200, [JSON], b'{"ok":true,"result":%s}' % done.result)
    failure = done.failure
    if failure.details.get("origin") == Origin.MODULE:
        return WholeResponse(200, [JSON], encode({"ok": False, "error": failure.as_reported}))
    plain = {"code": failure.code, "message": failure.message, "details": failure.details}
    return WholeResponse(200, [JSON], encode({"ok": False, "error": plain}))


def module_answer(done: DoneLine) -> WholeResponse:
    """Tell the answer to `health` or `describe` as Module Protocol v1 does."""
    return WholeResponse(200, [JSON], done.result) if done.ok else module_protocol(done)


def prompt(done: DoneLine) -> WholeResponse:
    """Tell the answer to a prompt, or its failure: an error of the module is no 5xx."""
    if done.ok:
        line, shown = done.line, done.built
        answer = {"session_id": line.session_id, "status": "complete", **shown}
        return WholeResponse(200, [JSON], encode({**answer, "response": shown["content"]}))
    code = error_of(done.failure).code
    return refusal_of(done.failure, status_of(done.failure) if code.status >= 500 else None)  # noqa: PLR2004


# The parts of results that routes answer with, under the names of AMCP where it has some.


def modules(status: Result) -> Result:
    return {"modules": status["modules"], "quarantined": status["quarantined"]}


def of_kind(kind: str) -> Callable[[Result], Result]:
    """Show the modules of a kind, under its plural."""
    return lambda status: {f"{kind}s": [one for one in status["modules"] if one["kind"] == kind]}


def session(shown: Result) -> Result:
    return {"id": shown["session_id"], "agent_name": shown["roles"].get("agent"), **shown}


def sessions(page: Result) -> Result:
    return {**page, "sessions": [session(one) for one in page["sessions"]]}


def info(described: Result) -> Result:
    """Show the daemon's description of itself."""
    known = {name: described[name] for name in ("name", "version", "features")}
    return {**known, "api_version": "v1", "ops": list(described["inputs"])}


def state(shown: Result) -> Any:
    return shown["state"]


def history(shown: Result) -> Result:
    return {name: shown[name] for name in ("session_id", "invocations", "history")}
