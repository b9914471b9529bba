"""Events as the host passes them on: with its own additions, and with fields of the module's own.

The host's additions are only written, never read: a module's own fields of these names are dropped,
and do not get to a client even where other fields that Spec 001 does not know do
(`decode_extended`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from protocol.events import (
    BY_TYPE,
    OPTIONAL,
    Asset,
    Event,
    StatePatch,
    StatePatched,
    UiEvent,
    decode_event,
)
from protocol.json_line import is_dense, is_readable, split_members


class Registration(Struct, frozen=True, omit_defaults=True):
    """The daemon's record of a file: its own `id`, size, and digest once there is one."""

    id: str
    bytes: int
    sha256: str | None = None
    supported: bool = True
    placeholder: str | UnsetType = UNSET


class RegisteredAsset(Asset, tag="asset", frozen=True, kw_only=True):
    registered: Registration

    def unregistered(self) -> Asset:
        """Return the event without the record."""
        fields = structs.asdict(self)
        del fields["registered"]
        return Asset(**fields)


class PlaceholderUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    placeholder: str


class SeenUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    origin: dict[str, Any]
    placeholder: str | UnsetType = UNSET
    by_host: Literal[True] | UnsetType = UNSET


class HostUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True, omit_defaults=False):
    """A `ui_event` of the host itself, and says so: about a session, a prompt, a call."""

    by_host: Literal[True] = True


class ApprovalUiEvent(UiEvent, tag="ui_event", frozen=True, kw_only=True):
    """A `ui_event` about a question of the host; `approval` is the question's id.

    A module cannot print one, so no user can be made to answer another question than the one on his
    screen.
    """

    approval: str


_ADDED_TO: Final[dict[type[Struct], type[Struct]]] = {
    StatePatched: StatePatch,
    RegisteredAsset: Asset,
    PlaceholderUiEvent: UiEvent,
    SeenUiEvent: UiEvent,
    HostUiEvent: UiEvent,
    ApprovalUiEvent: UiEvent,
}

HOST_FIELDS: Final = frozenset(
    name
    for event, base in _ADDED_TO.items()
    for name in set(event.__struct_encode_fields__) - set(base.__struct_encode_fields__)
)


_NAME = msgspec.json.Decoder(str).decode

_NULL = msgspec.Raw(b"null")

_NAMES: Final = {
    type_: frozenset(event.__struct_encode_fields__) for type_, event in BY_TYPE.items()
}
_TAKEN: Final = {
    type_: frozenset(name.casefold() for name in (*names, "type", *HOST_FIELDS))
    for type_, names in _NAMES.items()
}
"""Names that no other field may have, in any case."""

_LEFT_BYTES: Final = {
    "log": "fields",
    "state_patch": "patch",
    "asset": "metadata",
    "ui_event": "payload",
    "done": "result",
}
"""The field of each type that may be passed on without being decoded."""

_EMPTY = msgspec.Raw(b"{}")
_BRACE = 0x7B


def decode_extended(line: bytes) -> tuple[Event, bytes]:
    """Parse a line that `decode_event` refuses; returns the event, and the line to pass on.

    That builds all values of a line at once, and refuses a line with fields that Spec 001 does not
    name, so that what it accepts can be passed on as it is. Here a line is split at its top level
    first: because it has such fields, which stay in it (section 8; a client may know them), or
    because a field has so many values that they should be built only on demand
    (`json_line.is_dense`). The line is put together anew at its top level, each name once:
    `decode_event` refuses a line that names two types, and no reader is to find another one here
    than the host did. Left out are

    - names that the host itself writes (`HOST_FIELDS`): a module's word must not pass for the
      host's;
    - another spelling of a name the event has, such as `REQUESTID`: there are parsers that do not
      tell upper case from lower, and to them it would be another request's id;
    - values that no reader need accept, such as `1e999`;
    - `null` in the place of what may be left out: it says the same, and not every reader knows
      that.

    Raises as `decode_event` does, also for a line that is no event whatever else it has.
    """
    fields = split_members(line)
    if line.find(b"\r") >= 0:
        # White space, which some readers take for the end of a line; a string cannot hold one.
        fields = split_members(line.replace(b"\r", b" "))
    type_ = _NAME(fields.get("type", b"null"))
    names = _NAMES.get(type_)
    if names is None:
        raise msgspec.ValidationError(f"{type_!r:.40} is not an event type")
    for name in OPTIONAL[type_] & fields.keys():
        if fields[name] == _NULL:
            del fields[name]
    ours = {name: value for name, value in fields.items() if name in names or name == "type"}
    left = _LEFT_BYTES.get(type_, "")
    stays = (
        left in ours
        and is_dense(line)
        and (type_ == "done" or memoryview(ours[left])[0] == _BRACE)
        and is_readable(line)
    )
    if stays:
        ours[left] = _EMPTY
    event: Event = decode_event(msgspec.json.encode(ours))
    if stays:
        event = msgspec.structs.replace(event, **{left: fields[left]})
    taken = _TAKEN[type_]
    for name in fields.keys() - ours.keys():
        if name.casefold() in taken or not is_readable(bytes(fields[name])):
            del fields[name]
    return event, msgspec.json.encode(fields)


def decode_either(line: bytes) -> tuple[Event, bytes]:
    """Parse a line, plain or extended; returns and raises as `decode_extended` does."""
    if not is_dense(line):
        try:
            return decode_event(line), line
        except msgspec.ValidationError:
            pass
    return decode_extended(line)
