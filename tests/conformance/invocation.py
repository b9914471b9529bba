"""Play a tool's output and exit to the dialect and the verdict, as the daemon would.

What the kernel adds (merging state, looking whether an asset's file can be read) is done here in
the simplest way; a test of the whole daemon can put the daemon in this function's place.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import msgspec

from protocol.connection import (
    Answered,
    EventReceived,
    Received,
    Stray,
    Violated,
    Warned,
)
from protocol.errors import Outcome
from protocol.events import Asset, StatePatch
from protocol.merge_patch import merged
from supervisor.policy.verdict import Exit, Said, on_invocation
from tests.protocol.wire import (
    Cuts,
    descriptor,
    feed,
    invoke,
    left,
    narratoria,
)


class Response(msgspec.Struct):
    """What a client gets: the outcome, the session's state afterwards, the warnings counted."""

    outcome: Outcome
    state: dict[str, Any]
    warnings: int


class Play(Protocol):
    """The seam: anything that turns a tool's output and exit into a response."""

    def __call__(self, stdout: bytes, end: Exit, lengths: Cuts = ()) -> Response: ...


def play(stdout: bytes, end: Exit, lengths: Cuts = ()) -> Response:
    """Turn a tool's output, cut in pieces, and its exit into a response."""
    connection = narratoria(descriptor(stdout="strict"))
    connection.ask(invoke("r1", "draw"))
    received = [*feed(connection, stdout, lengths), *connection.receive_eof()]
    unanswered = left(connection)
    said = Said()
    state: dict[str, Any] = {}
    for item in received:
        match item:
            case Answered():
                said = msgspec.structs.replace(said, answer=item.outcome)
            case Violated():
                said = msgspec.structs.replace(said, fault=item.fault)
            case EventReceived(event=StatePatch(patch=patch)):
                state = merged(state, patch)
            case _:
                pass
    assert unanswered == ([] if said.answer else ["r1"])
    outcome = on_invocation(said, end, None, "dice.draw")
    return Response(outcome, state, sum(map(_warns, received)))


def _warns(item: Received) -> bool:
    match item:
        case Warned() | Stray():
            return True
        case EventReceived(event=Asset(path=path)):
            return not os.access(path, os.R_OK)
        case _:
            return False
