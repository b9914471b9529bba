"""The six events of Spec 001 section 4, decoded and validated in one pass.

`decode_event` is the fast path: one typed parse, no intermediate dictionary. It refuses a line with
fields that Spec 001 does not name, which `host_events` takes, and with them those of so many
values that they are better left bytes (`json_line.is_dense`). Only when that refuses it too does
`read_event` go through it again, slowly, to name what is wrong. A test holds them, and
`schemas/narratoria-event.v0.json`, to the same verdict on any input.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, final

import msgspec
from msgspec import UNSET, UnsetType

from protocol.errors import Reason
from protocol.json_line import Fault, excerpt
from protocol.problem import Problem, did_you_mean, kind
from protocol.shape import object_of, text

VERSION = "0"

Object = dict[str, Any] | msgspec.Raw | UnsetType
"""An object in an event, possibly still the module's own bytes; `built` decodes them. Bytes are
JSON that `built` accepts, without line breaks; a decoded event never has any."""


def built(value: Object) -> dict[str, Any]:
    """Return an object of an event, decoded at each call; an empty one if it is absent."""
    if isinstance(value, msgspec.Raw):
        return _OBJECT(value)
    return {} if isinstance(value, UnsetType) else value


_OBJECT = msgspec.json.Decoder(dict[str, Any]).decode


# Out of the garbage collector: decoded JSON cannot form a cycle, and there may be a million.
class _Envelope(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Spec 001 section 3; unknown fields (section 8) are left to `host_events`."""

    version: Literal["0"]
    request_id: Annotated[str | UnsetType, text("a string, that of the request", empty=True)] = (
        msgspec.field(default=UNSET, name="requestId")
    )
    timestamp: str | UnsetType = UNSET


class Log(_Envelope, tag="log", frozen=True, kw_only=True):
    """4.1: progress or diagnostics; never an error by itself."""

    level: Literal["debug", "info", "warn", "error"]
    message: str
    fields: Object = UNSET


class StatePatch(_Envelope, tag="state_patch", frozen=True, kw_only=True):
    """4.2: a change of the session's state; always an object."""

    patch: dict[str, Any] | msgspec.Raw


class Asset(_Envelope, tag="asset", frozen=True, kw_only=True):
    """4.3: a file the module made."""

    asset_id: str = msgspec.field(name="assetId")
    kind: str
    media_type: str = msgspec.field(name="mediaType")
    path: str
    metadata: Object = UNSET


RESOURCE_UPDATED = "resource.updated"
"""A `ui_event` outside requests: the resource with the `uri` in its payload has changed."""


class UiEvent(_Envelope, tag="ui_event", frozen=True, kw_only=True):
    """4.4: something a user interface may act on."""

    event: str
    payload: Object = UNSET


class ErrorEvent(_Envelope, tag="error", frozen=True, kw_only=True):
    """4.5: a structured error; it does not end the invocation."""

    error_code: str = msgspec.field(name="errorCode")
    error_message: str = msgspec.field(name="errorMessage")
    details: dict[str, Any] | UnsetType = UNSET


class Done(_Envelope, tag="done", frozen=True, kw_only=True):
    """4.6: the end; `result` and `error` are ours (docs/protocol.md), allowed by section 3."""

    ok: bool
    summary: str | UnsetType = UNSET
    result: Any = UNSET
    error: Any = UNSET


@final
class AssetBytes(msgspec.Struct, frozen=True, kw_only=True, tag="asset_bytes", gc=False):
    """A part of a file that a module hands over in its answer: no line of Spec 001, and no path.

    The parts of one `asset_id` come in order. The host writes them to a file, and makes an `Asset`
    of it with the `last` one; clients never see this event.
    """

    asset_id: str
    kind: str
    media_type: str
    data: bytes | str
    """A string is base64: it is decoded where it is written, not where it is read."""
    last: bool = False
    metadata: dict[str, Any] | UnsetType = UNSET


Event = Log | StatePatch | Asset | UiEvent | ErrorEvent | Done
Progress = Log | StatePatch | Asset | UiEvent | ErrorEvent
"""The events that do not end an invocation."""

CallEvent = Progress | AssetBytes


class StatePatched(StatePatch, tag="state_patch", frozen=True, kw_only=True):
    """The event for a client about a patch that was merged; modules cannot send it.

    It is no part of `Event`: a module's own field `revision` has no meaning, whatever its type.
    """

    revision: int


BY_TYPE: dict[str, type[Event]] = {
    "log": Log,
    "state_patch": StatePatch,
    "asset": Asset,
    "ui_event": UiEvent,
    "error": ErrorEvent,
    "done": Done,
}
TYPES = tuple(BY_TYPE)

OPTIONAL: Final = {
    name: frozenset(
        field.encode_name
        for field in msgspec.structs.fields(event)
        if field.default is UNSET and field.type is not Any
    )
    for name, event in BY_TYPE.items()
}
"""The optional fields of each; a `null` counts as absent, which costs a second parse."""

_DECODER = msgspec.json.Decoder(Event)

decode_event = _DECODER.decode
"""Parse a line without unknown fields. Raises `msgspec.DecodeError`, `UnicodeDecodeError` or
`RecursionError`."""


def read_event(line: bytes, document: dict[str, Any]) -> Event | Fault:
    """Read a JSON object as an event, or say why it is none.

    `document` is the same line, already read; it decides where a key stands twice, which the typed
    parse refuses. The version is checked first: of another version neither the types nor the fields
    are known.
    """
    if document.get("version") != VERSION:
        found = f"is {document['version']!r:.40}" if "version" in document else "is missing"
        return Fault(
            Reason.BAD_VERSION,
            f'the event\'s "version" {found}, it must be "0" (Spec 001 section 3)',
            excerpt(line),
        )
    name = document.get("type")
    if name is None:
        return Fault(
            Reason.INVALID_EVENT, 'the event has no "type" (Spec 001 section 3)', excerpt(line)
        )
    if not isinstance(name, str):
        words = f'the event\'s "type" is {kind(name)}, must be one of {", ".join(TYPES)}'
        return Fault(Reason.INVALID_EVENT, f"{words} (Spec 001 section 3)", excerpt(line))
    if name not in TYPES:
        there = f"there are {', '.join(TYPES)} (Spec 001 section 3){did_you_mean(name, TYPES)}"
        words = f"{name!r:.40} is not an event type; {there}"
        return Fault(Reason.UNKNOWN_TYPE, words, excerpt(line))
    absent = {field for field in OPTIONAL[name] if document.get(field) is None}
    ours = {key: value for key, value in document.items() if key not in absent}
    known = (*BY_TYPE[name].__struct_encode_fields__, "type")
    try:
        event: Event = msgspec.convert({key: ours[key] for key in known if key in ours}, Event)
    except msgspec.ValidationError as error:
        words = _wrong_field(name, ours) or str(error)
        return Fault(Reason.INVALID_EVENT, f"bad {name} event: {words}", excerpt(line))
    return event


_FIELDS = {name: object_of(event, without=("version",)) for name, event in BY_TYPE.items()}


def _wrong_field(type_: str, fields: dict[str, Any]) -> str | None:
    """Say what is wrong with the first wrong field; `fields` has those that are not absent."""
    found: list[Problem] = []
    _FIELDS[type_](fields, "", found)
    if not found:
        return None
    first = min(found)
    return f'"{first.pointer.removeprefix("/")}" {first.message}'
