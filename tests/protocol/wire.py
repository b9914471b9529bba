"""Build descriptors and bytes for the protocol tests, and cut bytes in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from protocol.connection import Connection, Memory, OutOfStep, Received, Request, Unanswered
from protocol.descriptor.model import (
    Descriptor,
    ExecOp,
    ExecOutput,
    ExecTransport,
    InputForm,
    Kind,
    Lifecycle,
    Limits,
    StdoutPolicy,
    Supervision,
    Transport,
)
from protocol.dialects.module import ModuleConnection
from protocol.dialects.narratoria import NarratoriaConnection
from protocol.dialects.registry import DIALECTS
from protocol.framing import Written
from protocol.replies import Operation

Cuts = Sequence[int]

ECHO = ExecOp(stdin="one\ntwo\n", stdout=ExecOutput.LINES)
"""The op of a command line tool."""

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
            exec=ExecTransport(ops={"echo": ECHO}),
        ),
        supervision=Supervision(limits=Limits(line_bytes=line_bytes)),
        source="/modules/dice.json",
        folder="/modules",
        digest="",
    )


def connected(dialect: str, made: Descriptor, memory: Memory | None = None) -> Connection:
    """Make a connection whose own ids are `own-1`, `own-2`..."""
    numbers, left = count(1), {} if memory is None else memory
    return DIALECTS[dialect].connect(made, lambda: f"own-{next(numbers)}", left)


def module(made: Descriptor) -> ModuleConnection:
    connection = connected("module", made)
    assert isinstance(connection, ModuleConnection)
    return connection


def narratoria(made: Descriptor) -> NarratoriaConnection:
    connection = connected("narratoria", made)
    assert isinstance(connection, NarratoriaConnection)
    return connection


DESCRIPTION: dict[str, Any] = {
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


def announce(connection: Connection, *features: str) -> None:
    """Let a module say which optional features it has."""
    connection.ask(describe("features"))
    connection.outgoing.take()
    feed(connection, line({**DESCRIPTION, "features": list(features)}))


def give_up(connection: Connection, request_id: str) -> bool:
    """Cancel a request that was written; tells whether what comes late can be told apart."""
    events = connection.cancel(request_id, Written.ALL)
    return not any(isinstance(one, OutOfStep) for one in events)


def left(connection: Connection, code: int | None = 0) -> list[str]:
    """Let the process end; returns the requests that it left unanswered."""
    events = connection.process_exited(code)
    return [one.request_id for one in events if isinstance(one, Unanswered)]
