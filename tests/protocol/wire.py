"""Build descriptors and bytes for the protocol tests, and cut bytes in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from protocol.connection import Connection, Received, Request
from protocol.descriptor import (
    Descriptor,
    InputForm,
    Kind,
    Lifecycle,
    Limits,
    StdoutPolicy,
    Supervision,
    Transport,
)
from protocol.replies import Operation

Cuts = Sequence[int]

cuts: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 400), max_size=12)
"""The lengths of the pieces a stream comes in; the rest of it is the last piece."""


def descriptor(
    *,
    stdout: Literal["strict", "tolerant"] = "tolerant",
    input_form: Literal["envelope", "flat"] = "envelope",
    lifecycle: Lifecycle = Lifecycle.PERSISTENT,
    line_bytes: int = 1 << 20,
) -> Descriptor:
    return Descriptor(
        name="dice",
        kind=Kind.TOOL,
        transport=Transport(
            command=("dice",),
            lifecycle=lifecycle,
            stdout=StdoutPolicy(stdout),
            input=InputForm(input_form),
        ),
        supervision=Supervision(limits=Limits(line_bytes=line_bytes)),
        source="/modules/dice.json",
        folder="/modules",
        digest="",
    )


DESCRIPTION = {
    "name": "dice",
    "version": "1.0.0",
    "kind": "tool",
    "capabilities": [],
    "inputs": {},
    "outputs": {},
}


def invoke(request_id: str, op: str = "roll", **args: Any) -> Request:
    return Request(request_id, Operation.INVOKE, op, args)


def health(request_id: str) -> Request:
    return Request(request_id, Operation.HEALTH)


def describe(request_id: str) -> Request:
    return Request(request_id, Operation.DESCRIBE)


def line(value: Any = None, **fields: Any) -> bytes:
    """Encode a value, or an object of the given fields, as one line."""
    return msgspec.json.encode(fields if value is None else value) + b"\n"


def event(name: str, **fields: Any) -> bytes:
    """Encode a Spec 001 event as one line."""
    return line({"version": "0", "type": name, **fields})


def pieces(data: bytes, lengths: Cuts) -> Iterator[bytes]:
    """Cut `data` into pieces of the given lengths and a rest."""
    marks = [0]
    for length in lengths:
        marks.append(min(len(data), marks[-1] + length))
    marks.append(len(data))
    for start, end in pairwise(marks):
        yield data[start:end]


def feed(connection: Connection, data: bytes, lengths: Cuts = ()) -> list[Received]:
    """Let a connection receive `data` in pieces."""
    return [item for piece in pieces(data, lengths) for item in connection.receive_data(piece)]
