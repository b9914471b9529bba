"""An event with fields that Spec 001 does not name: what it means, and what of it is passed on.

`events.decode_event` refuses such a line, so that what it accepts can be passed on as it is. Here
the event is read without those fields (section 8), which stay in the line: a client may know them.
The line is made anew where some have to be left out:

- names that the host itself writes (`HOST_FIELDS`): nobody is to take a module's word for it;
- another spelling of a name the event has, such as `REQUESTID`: there are parsers that do not tell
  upper case from lower, and to them it would be another request's id;
- all but the last of what the event has several times, such as `type`: there are parsers to which
  the first one counts, and they would be told of another event than the host;
- values that no reader need accept, such as `1e999`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from protocol.events import BY_TYPE, Event, decode_event
from protocol.host_events import HOST_FIELDS

_SPLIT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NAME = msgspec.json.Decoder(str).decode
_ANY = msgspec.json.Decoder().decode

_NAMES: Final = {
    type_: frozenset(event.__struct_encode_fields__) for type_, event in BY_TYPE.items()
}
_TAKEN: Final = {
    type_: frozenset(name.casefold() for name in (*names, "type", *HOST_FIELDS))
    for type_, names in _NAMES.items()
}
"""What no other field may be called, in any case."""


class _Key(str):
    """A name of a field; not plainly `str`, so that the decoder asks what to make of each."""

    __slots__ = ()


def decode_extended(line: bytes) -> tuple[Event, bytes]:
    """Parse a line; returns the event, and the line to pass on.

    Raises what `decode_event` does, and does so for a line that is no event whatever else it has.
    """
    fields = _SPLIT(line)
    type_ = _NAME(fields.get("type", b"null"))
    names = _NAMES.get(type_)
    if names is None:
        raise msgspec.ValidationError(f"{type_!r:.40} is no event type")
    ours = {name: value for name, value in fields.items() if name in names or name == "type"}
    event: Event = decode_event(msgspec.json.encode(ours))
    theirs = [name for name in fields if name not in ours]
    taken = _TAKEN[type_]
    if (
        _is_readable(line)
        and not any(name.casefold() in taken for name in theirs)
        and not _stands_twice(line, ours)
    ):
        return event, line
    for name in theirs:
        if name.casefold() in taken or not _is_readable(fields[name]):
            del fields[name]
    return event, msgspec.json.encode(fields)


def decode_either(line: bytes) -> tuple[Event, bytes]:
    """Parse a line that may have such fields; returns and raises what `decode_extended` does."""
    try:
        return decode_event(line), line
    except msgspec.ValidationError:
        return decode_extended(line)


def _stands_twice(line: bytes, names: Iterable[str]) -> bool:
    """Tell whether one of the names is that of several fields of the outermost object."""
    if line.find(b"\\u00") < 0 and all(line.count(b'"%b"' % name.encode()) <= 1 for name in names):
        return False
    seen: Counter[str] = Counter()

    def note(type_: type, name: str) -> Any:
        seen[name] += 1
        return type_(name)

    msgspec.json.decode(line, type=dict[_Key, msgspec.Raw], dec_hook=note)
    return any(seen[name] > 1 for name in names)


def _is_readable(value: bytes | msgspec.Raw) -> bool:
    try:
        _ANY(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
