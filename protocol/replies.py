"""The plain replies of Module Protocol v1 (section 2), and the contents of a `done` event.

One function per operation turns the module's own words into an `Outcome`, or a `Fault` when they
do not have the form the operation asks for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from protocol.descriptor.model import Descriptor
from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import Done, ErrorEvent
from protocol.json_line import SMALL_BYTES, Fault, is_readable, is_utf16
from protocol.problem import Problem, kind, nearest, quoted
from protocol.shape import ANY_TEXT, Array, Fields, OrNull, Rule, object_of, text


class Operation(StrEnum):
    HEALTH = "health"
    DESCRIBE = "describe"
    INVOKE = "invoke"


_WORDS = OrNull(Array('an array of strings such as ["fs.read"]', ANY_TEXT))
_TEXT_OR_NULL = OrNull(ANY_TEXT)


class DescribeReply(msgspec.Struct, frozen=True):
    name: Annotated[str, _TEXT_OR_NULL]
    version: Annotated[str | None, _TEXT_OR_NULL]
    kind: Annotated[str, _TEXT_OR_NULL]
    capabilities: Annotated[list[str], _WORDS]
    inputs: Any
    outputs: Any
    features: Annotated[list[str], _WORDS] = msgspec.field(default_factory=list)


_HEALTH = Fields({"status": text('a string such as "ok"', empty=True)}, required=("status",))
_DESCRIPTION = object_of(DescribeReply, required=())
_OWN_FIELDS: dict[Operation, Mapping[str, Rule]] = {
    Operation.HEALTH: _HEALTH.fields,
    Operation.DESCRIBE: _DESCRIPTION.fields,
}
_TELLING = frozenset(_DESCRIPTION.fields) - {"version", "kind"}
"""A line with none of these describes nothing; a program's log may well have the other two."""

SLIP_CUTOFF = 0.8
"""How near a field has to be to a known one: `data` is nothing like `result`."""

MOST_UNKNOWN = 8
"""In an answer with more unknown fields none is compared with the known ones."""


class _ErrorBody(msgspec.Struct, frozen=True):
    code: Annotated[str, text('a string such as "not_found"', empty=True)]
    message: str
    details: Annotated[dict[str, Any] | None, OrNull(Fields({}))] = None


class InvokeReply(msgspec.Struct, frozen=True, gc=False):
    ok: bool
    request_id: str | None = msgspec.field(default=None, name="requestId")
    error: Annotated[_ErrorBody | None, OrNull(object_of(_ErrorBody))] = None
    summary: Annotated[str | None, _TEXT_OR_NULL] = None
    result: Any = UNSET

    @property
    def outcome(self) -> Outcome | None:
        """Return the outcome; None if the reply says neither success nor an error."""
        if self.ok:
            return Success(None if self.result is UNSET else self.result, self.summary)
        if self.error is None:
            return None
        return Failure.reported(
            self.error.code, self.error.message, self.error.details, self.summary
        )


class _UnbuiltReply(InvokeReply, frozen=True, gc=False):
    result: msgspec.Raw | UnsetType = UNSET


_ANSWER = object_of(InvokeReply, without=("request_id", "result"))
_ANSWER_FIELDS = frozenset({*_ANSWER.fields, "result"})

_decode = msgspec.json.Decoder().decode
decode_invoke_reply = msgspec.json.Decoder(_UnbuiltReply).decode
"""Fast path for the most frequent line, whose result stays bytes. Raises like
`events.decode_event`."""


def plain_outcome(reply: InvokeReply, line: bytes) -> Outcome | None:
    r"""Return the outcome of a reply if it can be passed on without a warning.

    None may be wrong. A `\r`, white space in JSON, ends a line to some readers. Without a result,
    the line has no more colons than its other fields need.
    """
    result = reply.result
    if not reply.ok or reply.error is not None:
        return None if reply.ok or result is not UNSET else reply.outcome
    if result is not UNSET:
        if line.find(b"\r") >= 0:
            return None
        if len(line) > SMALL_BYTES:
            return Success(result, reply.summary) if is_readable(line) else None
        try:
            _decode(result)  # what `is_readable` would do
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return Success(result, reply.summary)
    fields = 1 + (reply.request_id is not None) + (reply.summary is not None)
    return reply.outcome if line.count(b":") <= fields else None


def read_reply(operation: Operation, document: dict[str, Any], shown: str) -> Outcome | Fault:
    """Read a plain reply to `operation`; `shown` is the line's beginning, for a fault.

    An object with a boolean `ok` is the envelope of section 2 for every operation: then its
    `result` is read in place of the object.
    """
    named = document.get("requestId")
    if not isinstance(named, str | None):
        words = f'"requestId" is {kind(named)}, must be the string that the request has'
        return _malformed(operation, words, shown)
    if _is_envelope(operation, document):
        found: list[Problem] = []
        _ANSWER(document, "", found)
        if found:
            return _malformed(operation, _words(found), shown)
        outcome = msgspec.convert(document, InvokeReply).outcome
        if outcome is None:
            missing = _ANSWER.missing("error", document, "")
            return _malformed(operation, f'"ok" is false and {_words([missing])}', shown)
        if operation is Operation.INVOKE or isinstance(outcome, Failure):
            return outcome
        return read_result(operation, outcome.result, shown)
    # The id belongs to the frame, not to the answer.
    answer = {key: value for key, value in document.items() if key != "requestId"}
    return _read_probe(operation, answer, "", shown)


def _is_envelope(operation: Operation, document: dict[str, Any]) -> bool:
    if operation is Operation.INVOKE or isinstance(document.get("ok"), bool):
        return True
    return "ok" in document and _OWN_FIELDS[operation].keys().isdisjoint(document)


def read_result(operation: Operation, result: Any, shown: str) -> Outcome | Fault:
    """Read the `result` that answers `health` or `describe`; an invoke's may be anything."""
    if operation is Operation.INVOKE:
        return Success(result)
    if not isinstance(result, dict):
        words = "missing" if result is None else f"{kind(result)}, must be an object"
        return _malformed(operation, f'"result" is {words}', shown)
    return _read_probe(operation, result, "/result", shown)


def _read_probe(
    operation: Operation, answer: dict[str, Any], at: str, shown: str
) -> Outcome | Fault:
    found: list[Problem] = []
    (_HEALTH if operation is Operation.HEALTH else _DESCRIPTION)(answer, at, found)
    if found:
        return _malformed(operation, _words(found), shown)
    if operation is Operation.DESCRIBE and answer and not _TELLING & answer.keys():
        return _malformed(operation, f"there is none of {_listed(_TELLING)} in it", shown)
    return _health(answer) if operation is Operation.HEALTH else Success(answer)


def slips(operation: Operation, document: dict[str, Any], request_id: str) -> str | None:
    """Name a field without effect that was probably meant as another; None if there is none.

    Unknown fields are tolerated: reported are those near an absent known one, the request's
    id under another name, and the ineffective one of `result` and `error`.
    """
    own = {} if _is_envelope(operation, document) else _OWN_FIELDS[operation]
    known = {*(own or _ANSWER_FIELDS), "requestId", "version", "type"}
    told = _near_misses(document, known)
    if "requestId" not in document:
        told += [_slip(key, "requestId") for key in document if document[key] == request_id]
    if not own and document.get("result") is not None and document.get("error") is not None:
        counts, other = ("result", "error") if document["ok"] else ("error", "result")
        ok = "true" if document["ok"] else "false"
        told.append(f'"{other}" is ignored: "ok" is {ok}, so "{counts}" is what counts')
    return "; ".join(dict.fromkeys(told)) or None


def slips_of_done(fields: Collection[str]) -> str | None:
    """Name a field of a `done` event that was probably meant as another one; None if none was."""
    return "; ".join(_near_misses(fields, {*Done.__struct_encode_fields__, "type"})) or None


def _near_misses(fields: Collection[str], known: set[str]) -> list[str]:
    unknown = [field for field in fields if field not in known]
    if len(unknown) > MOST_UNKNOWN:
        return []
    absent = known.difference(fields)
    meant = ((field, nearest(field, absent, SLIP_CUTOFF)) for field in unknown)
    return [_slip(field, one) for field, one in meant if one is not None]


def _slip(field: str, meant: str) -> str:
    return f'{quoted(field)} is an unknown field; did you mean "{meant}"?'


def completed(operation: Operation, outcome: Outcome, descriptor: Descriptor) -> Outcome:
    """Complete the answer to a probe from the descriptor.

    A module that does not know `health` or `describe` is healthy, and described by its descriptor.
    """
    if isinstance(outcome, Failure):
        if outcome.code != Code.UNSUPPORTED_OP or operation is Operation.INVOKE:
            return outcome
        outcome = Success({"status": "ok"} if operation is Operation.HEALTH else {})
    if operation is not Operation.DESCRIBE:
        return outcome
    stated = {
        "name": descriptor.name,
        "version": descriptor.version,
        "kind": str(descriptor.kind),
        "capabilities": list(descriptor.capabilities),
        "inputs": descriptor.inputs or {},
        "outputs": descriptor.outputs or {},
    }
    said = {key: value for key, value in outcome.result.items() if value is not None}
    return Success({**stated, **said}, outcome.summary)


def read_done(
    operation: Operation, done: Done, last_error: ErrorEvent | None, shown: str
) -> Outcome | Fault:
    """Read the event that closes a stream (docs/protocol.md).

    A failure's words are those of the `error` in `done`, else of the last `error` event, else the
    summary.
    """
    summary = None if done.summary is UNSET else done.summary
    if done.ok:
        success = Success(None if done.result is UNSET else done.result, summary)
        if operation is Operation.INVOKE:
            return success
        if operation is Operation.HEALTH and done.result is UNSET:
            return Success({"status": "ok"}, summary)
        return read_result(operation, success.result, shown)
    if done.error is not UNSET:
        try:
            body = msgspec.convert(done.error, _ErrorBody)
        except msgspec.ValidationError:
            pass  # Spec 001 section 3: an additional field of another shape is ignored.
        else:
            return Failure.reported(body.code, body.message, body.details, summary)
    if last_error is not None:
        return read_error(last_error, summary)
    words = summary or "the module reported a failure and gave no error event"
    return Failure.reported(Code.INTERNAL, words, summary=summary, reason=str(Reason.REPORTED))


def read_error(event: ErrorEvent, summary: str | None = None) -> Failure:
    details = None if event.details is UNSET else event.details
    return Failure.reported(event.error_code, event.error_message, details, summary)


def _health(result: Any) -> Outcome:
    status = result["status"]
    if status == "ok":
        return Success(result)
    return Failure.because(
        Reason.NOT_READY, f'the module says its health is "{status:.80}"', health=result
    )


def _malformed(operation: Operation, words: str, shown: str) -> Fault:
    return Fault(
        Reason.INVALID_EVENT,
        f"bad reply to {operation}: {words}; expected {EXPECTED[operation]}",
        shown,
    )


def _words(found: list[Problem]) -> str:
    """Return the first problem; a place is named as a program would write it."""
    first = min(found)
    return f'"{".".join(first.pointer.split("/")[1:])}" {first.message}'


def _listed(names: Collection[str]) -> str:
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}"


_FAILED = '{"ok":false,"error":{"code":"...","message":"..."}}'
_DECLINED = '{"ok":false,"error":{"code":"unsupported_op","message":"..."}}'
EXPECTED = {
    Operation.HEALTH: f'{{"status":"ok"}}, or {_DECLINED}',
    Operation.DESCRIBE: f'{{"inputs":{{...}}}} with all that is to be known, or {_DECLINED}',
    Operation.INVOKE: f'{{"ok":true,"result":...}} or {_FAILED}',
}
"""The right forms of an answer, for the author of a wrong one."""


_ANSWER_KEYS = frozenset({"ok", "result", "error", "status", "type"})
_MARK = re.compile(rb"\xef\xbb\xbf|\xff\xfe|\xfe\xff")
_BEGINS_JSON = re.compile(rb'\{\s*(?:\Z|")')
_BEGINS_SHOWN = re.compile(rb"\{\s*'?(?:ok|result|error|status|type|requestId)'?\s*:")
"""How Python and JavaScript print an object for people."""


def is_meant_as_answer(
    line: bytes | dict[str, Any], operation: Operation = Operation.INVOKE
) -> bool:
    """Tell whether a wrong or unreadable line is meant as an answer; else it is a program's output.

    It is if it is an empty object, or has one of the keys that answers have, or cannot be read and
    begins as such an object would; so does a `{` alone, with which JSON over several lines begins.
    A banner, or a program's own log in JSON, answers no request. A `describe` may be meant by its
    `name`, too.
    """
    if isinstance(line, bytes):
        line = _MARK.sub(b"", line, count=1) if _MARK.match(line) else line
        if is_utf16(line):
            line = line.replace(b"\0", b"")
        return bool(_BEGINS_JSON.match(line) or _BEGINS_SHOWN.match(line))
    if not line or not _ANSWER_KEYS.isdisjoint(line):
        return True
    return operation is Operation.DESCRIBE and "name" in line


def unreadable_answer(line: bytes, fault: Fault, operation: Operation) -> Fault:
    """Return the fault of a line that is meant as an answer, with what would be right."""
    hint = ""
    if _BEGINS_SHOWN.match(line):
        hint = " (an object as the language shows it? JSON.stringify and json.dumps make JSON)"
    words = f"bad reply to {operation}: {fault.message}{hint}; expected {EXPECTED[operation]}"
    return msgspec.structs.replace(fault, message=words)
