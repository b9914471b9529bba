"""The effect of a descriptor, whatever file it is in; and where two of them differ."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.descriptor.model import WHENCE, Descriptor
from protocol.problem import step

ABSENT = msgspec.UNSET


class Change(msgspec.Struct, frozen=True):
    """A value that differs, under its JSON pointer; `old` or `new` is unset where there is none."""

    pointer: str
    old: Any = ABSENT
    new: Any = ABSENT


def changes(old: Descriptor, new: Descriptor) -> tuple[Change, ...]:
    """Return where two descriptors of a module differ in effect, sorted by pointer.

    Equal digests in one folder mean equal descriptors, so only rewritten or moved files are
    compared value by value.
    """
    moved = old.folder != new.folder
    if old.digest == new.digest and not moved:
        return ()
    # A relative path starts from the file's folder: after a move it may name something else.
    before, after = _document(old, rooted=moved), _document(new, rooted=moved)
    return tuple(sorted(_differences("", before, after), key=lambda change: change.pointer))


def _document(descriptor: Descriptor, *, rooted: bool) -> dict[str, Any]:
    document: dict[str, Any] = _as_read(msgspec.to_builtins(descriptor))
    for field in WHENCE:
        del document[field]
    transport = document["transport"]
    if rooted and transport["command"]:
        transport["cwd"] = _rooted(descriptor.folder, transport["cwd"])
        program = transport["command"][0]
        if "/" in program:
            transport["command"] = [_rooted(descriptor.folder, program), *transport["command"][1:]]
    return document


def _as_read(value: Any) -> Any:
    """Return a value with arrays as lists, as a JSON reader makes them."""
    if isinstance(value, dict):
        return {key: _as_read(member) for key, member in value.items()}
    return [_as_read(one) for one in value] if isinstance(value, list | tuple) else value


def _rooted(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def _differences(pointer: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _differences(step(pointer, key), old.get(key, ABSENT), new.get(key, ABSENT))
    elif not _equal(old, new):
        yield Change(pointer, old, new)


def _equal(old: Any, new: Any) -> bool:
    # Python takes 1, 1.0 and true for equal; a JSON Schema in `inputs` does not.
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_equal, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
    return bool(old == new)
