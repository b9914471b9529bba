"""An event with fields that Spec 001 does not name: what it means, and what of it is passed on.

`events.decode_event` refuses such a line, so that what it accepts can be passed on as it is. Here
the event is read without those fields (section 8), which stay in the line: a client may know them.
The line is put together anew at its top level, each name once: `decode_event` refuses a line that
names two types, and no reader is to find another one here than the host did. Left out are

- names that the host itself writes (`HOST_FIELDS`): nobody is to take a module's word for it;
- another spelling of a name the event has, such as `REQUESTID`: there are parsers that do not tell
  upper case from lower, and to them it would be another request's id;
- values that no reader need accept, such as `1e999`;
- `null` in the place of what may be left out: it says the same, and not every reader knows that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.events import BY_TYPE, OPTIONAL, Event, decode_event
from protocol.host_events import HOST_FIELDS

_SPLIT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NAME = msgspec.json.Decoder(str).decode
_ANY = msgspec.json.Decoder().decode

_NULL = msgspec.Raw(b"null")

_NAMES: Final = {
    type_: frozenset(event.__struct_encode_fields__) for type_, event in BY_TYPE.items()
}
_TAKEN: Final = {
    type_: frozenset(name.casefold() for name in (*names, "type", *HOST_FIELDS))
    for type_, names in _NAMES.items()
}
"""What no other field may be called, in any case."""


def decode_extended(line: bytes) -> tuple[Event, bytes]:
    """Parse a line; returns the event, and the line to pass on.

    Raises what `decode_event` does, and does so for a line that is no event whatever else it has.
    """
    fields = _SPLIT(line)
    type_ = _NAME(fields.get("type", b"null"))
    names = _NAMES.get(type_)
    if names is None:
        raise msgspec.ValidationError(f"{type_!r:.40} is not an event type")
    for name in OPTIONAL[type_] & fields.keys():
        if fields[name] == _NULL:
            del fields[name]
    ours = {name: value for name, value in fields.items() if name in names or name == "type"}
    event: Event = decode_event(msgspec.json.encode(ours))
    taken = _TAKEN[type_]
    for name in fields.keys() - ours.keys():
        if name.casefold() in taken or not _is_readable(fields[name]):
            del fields[name]
    return event, msgspec.json.encode(fields)


def decode_either(line: bytes) -> tuple[Event, bytes]:
    """Parse a line that may have such fields; returns and raises what `decode_extended` does."""
    try:
        return decode_event(line), line
    except msgspec.ValidationError:
        return decode_extended(line)


def _is_readable(value: msgspec.Raw) -> bool:
    try:
        _ANY(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
