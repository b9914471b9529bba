"""The plain replies of Module Protocol v1 (section 2), and what a `done` event carries instead.

One function per operation turns the module's own words into an `Outcome`, or a `Fault` when they
do not have the form the operation asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import Done, ErrorEvent
from protocol.json_line import Fault


class Operation(StrEnum):
    """What a host asks of a module."""

    HEALTH = "health"
    DESCRIBE = "describe"
    INVOKE = "invoke"


class HealthReply(msgspec.Struct, frozen=True):
    """`health`: well when `status` is `"ok"`."""

    status: str


class DescribeReply(msgspec.Struct, frozen=True):
    """`describe`: who the module is and which ops it has."""

    name: str
    version: str | None
    kind: str
    capabilities: list[str]
    inputs: Any
    outputs: Any
    features: list[str] = msgspec.field(default_factory=list)


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: dict[str, Any] | None = None


class _InvokeReply(msgspec.Struct, frozen=True):
    ok: bool
    result: Any = None
    error: _ErrorBody | None = None
    summary: str | None = None


_NULL = msgspec.Raw(b"null")


class _PlainReply(msgspec.Struct, frozen=True):
    """The line a module answers an invoke with; parsed straight from its bytes.

    The result is only skipped: it has to pass `json_line.passes_unread`.
    """

    ok: bool
    result: msgspec.Raw = _NULL
    error: _ErrorBody | None = None
    summary: str | None = None
    request_id: str | None = msgspec.field(default=None, name="requestId")


decode_invoke_reply = msgspec.json.Decoder(_PlainReply).decode
"""Fast path for the commonest line of all; raises like `events.decode_event`."""


def invoke_outcome(reply: _PlainReply | _InvokeReply) -> Outcome | None:
    """Return what an invoke reply says, or None when it says neither success nor an error."""
    if reply.ok:
        return Success(reply.result, reply.summary)
    if reply.error is None:
        return None
    return Failure(reply.error.code, reply.error.message, reply.error.details or {})


def read_reply(operation: Operation, document: dict[str, Any], shown: str) -> Outcome | Fault:
    """Read a plain reply to `operation`; `shown` is the line's beginning, for a fault.

    An object with a boolean `ok` is the envelope of section 2 whatever the operation was: its
    `result` is then looked at in place of the object.
    """
    if operation is Operation.INVOKE or isinstance(document.get("ok"), bool):
        try:
            reply = msgspec.convert(document, _InvokeReply)
        except msgspec.ValidationError as error:
            return _malformed(operation, str(error), shown)
        outcome = invoke_outcome(reply)
        if outcome is None:
            return _malformed(operation, '"ok" is false and "error" is missing', shown)
        if operation is Operation.INVOKE or isinstance(outcome, Failure):
            return outcome
        return read_result(operation, outcome.result, shown)
    # The id belongs to the frame, not to the answer.
    answer = {key: value for key, value in document.items() if key != "requestId"}
    return read_result(operation, answer, shown)


def read_result(operation: Operation, result: Any, shown: str) -> Outcome | Fault:
    """Read the object that answers `health` or `describe`; an invoke's result may be anything."""
    match operation:
        case Operation.INVOKE:
            return Success(result)
        case Operation.HEALTH:
            reader: Callable[[Any], Outcome] = _health
        case Operation.DESCRIBE:
            reader = _describe
        case _:
            assert_never(operation)
    try:
        return reader(result)
    except msgspec.ValidationError as error:
        return _malformed(operation, str(error), shown)


def read_done(
    operation: Operation, done: Done, last_error: ErrorEvent | None, shown: str
) -> Outcome | Fault:
    """Read the event that closes a stream (docs/protocol.md).

    A failure is told by the `error` that `done` carries, else by the last `error` event, else by
    the summary alone.
    """
    summary = None if done.summary is UNSET else done.summary
    if done.ok:
        if operation is Operation.INVOKE:
            return Success(None if done.result is UNSET else done.result, summary)
        if operation is Operation.HEALTH and done.result is UNSET:
            return Success({"status": "ok"}, summary)
        return read_result(operation, None if done.result is UNSET else done.result, shown)
    if done.error is not UNSET:
        try:
            body = msgspec.convert(done.error, _ErrorBody)
        except msgspec.ValidationError:
            pass  # Spec 001 section 3: an additional field of another shape is ignored.
        else:
            return Failure(body.code, body.message, body.details or {}, summary)
    if last_error is not None:
        details = {} if last_error.details is UNSET else last_error.details
        return Failure(last_error.error_code, last_error.error_message, details, summary)
    return Failure(
        Code.INTERNAL,
        summary or "the module reported a failure and gave no error event",
        {"reason": str(Reason.REPORTED)},
        summary,
    )


def _health(result: Any) -> Outcome:
    reply = msgspec.convert(result, HealthReply)
    if reply.status == "ok":
        return Success(result)
    return Failure.because(
        Reason.NOT_READY, f'the module says its health is "{reply.status:.80}"', health=result
    )


def _describe(result: Any) -> Outcome:
    msgspec.convert(result, DescribeReply)
    return Success(result)


def _malformed(operation: Operation, words: str, shown: str) -> Fault:
    return Fault(
        Reason.INVALID_EVENT,
        f"bad reply to {operation}: {words}; expected {_EXPECTED[operation]}",
        shown,
    )


_EXPECTED = {
    Operation.HEALTH: '{"status":"ok"}',
    Operation.DESCRIBE: "an object with name, version, kind, capabilities, inputs and outputs",
    Operation.INVOKE: '{"ok":true,"result":...} or {"ok":false,"error":{"code","message"}}',
}
