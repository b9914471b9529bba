"""Ignored fields of a valid descriptor that were probably meant: misspelt or misplaced ones.

Unknown fields are tolerated at the top level of a descriptor and in `transport`, so these are
warnings for a person, never a reason to refuse a descriptor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.descriptor.model import Kind
from protocol.descriptor.shape import DESCRIPTOR, HOOK, SUPERVISION, TRANSPORT
from protocol.dialects.exec_template import input_names, no_holes, read
from protocol.frames import encode
from protocol.problem import Problem, nearest, step
from protocol.shape import Fields

# Nearer than in `supervision`, where an unknown key is wrong anyway: "comment" is no "command".
_CUTOFF = 0.8

_HOMES = (("", DESCRIPTOR), ("/transport", TRANSPORT), ("/supervision", SUPERVISION))
_HOMES_OF_HOOKS = (*_HOMES, ("/hook", HOOK))


def near_misses(document: dict[str, Any]) -> list[Problem]:
    """Return warnings for ignored fields that look like known ones, sorted by pointer."""
    homes = _HOMES_OF_HOOKS if document.get("kind") == Kind.HOOK else _HOMES
    found = list(_misses(document, "", DESCRIPTOR, homes))
    transport = document.get("transport")
    if isinstance(transport, dict):
        found += _misses(transport, "/transport", TRANSPORT, homes)
        if transport.get("protocol") == "exec":
            ops, inputs = transport["exec"]["ops"], document.get("inputs", {})
            found += (*_unfilled(ops, inputs), *_booleans(ops, inputs))
    return sorted(found)


def _unfilled(ops: dict[str, Any], inputs: dict[str, Any]) -> Iterator[Problem]:
    for op, said in ops.items():
        for one in no_holes(said, input_names(inputs.get(op))):
            at = step("/transport/exec/ops", op) + one.pointer
            name = one.written.strip("{?}").removesuffix(":json")
            add = encode({op: {"properties": {name: {}}}}).decode()
            words = f"{one.written} is passed as it stands: {step('/inputs', op)} has no {name}"
            words += f'; add "inputs": {add}, or write {{{one.written}}} for the text'
            yield Problem(at, words)


def _booleans(ops: dict[str, Any], inputs: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a boolean as an argument by itself: the command gets the word `true`."""
    for op, said in ops.items():
        schema = inputs.get(op) or {}
        names = input_names(schema)
        for at, text in enumerate(said.get("args", ())):
            only = read(text, names).only
            of = None if only is None else schema["properties"][only.name]
            if only is not None and isinstance(of, dict) and of.get("type") == "boolean":
                words = f'passes the word "true" or "false"; for a flag, let {only.name} be '
                words += 'the flag itself: {"enum": ["--FLAG"]}, with "options": true in the op'
                yield Problem(f"{step('/transport/exec/ops', op)}/args/{at}", words)


def _misses(
    value: dict[str, Any], at: str, known: Fields, homes: tuple[tuple[str, Fields], ...]
) -> Iterator[Problem]:
    absent = [field for field in known.fields if field not in value]
    for key in value:
        if key in known.fields:
            continue
        home = next((home for home, fields in homes if key in fields.fields), None)
        meant = nearest(key, absent, _CUTOFF)
        if home is not None:
            hint = f"did you mean '{step(home, key)}'?"
        elif meant is not None:
            hint = f"did you mean '{meant}'?"
        else:
            continue
        yield Problem(step(at, key), f"unknown field, ignored; {hint}")
