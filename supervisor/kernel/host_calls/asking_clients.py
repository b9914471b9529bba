"""A call of a module that the client behind its request answers."""

from __future__ import annotations

from typing import Any

import trio

from protocol.errors import Failure, Outcome, Reason
from protocol.problem import described
from supervisor.kernel.host_calls.open_call import OpenCall
from supervisor.kernel.parties import Client


def client_of(call: OpenCall) -> Client | None:
    """Return the client behind a call; None if the module calls on its own account."""
    serving = call.caller.serving
    return None if serving is None else serving.first.client


def askable(call: OpenCall, method: str) -> Client | None:
    """Return the client behind a call, if it may be asked by that method."""
    client = client_of(call)
    return client if client is not None and client.may_be_asked(method) else None


async def ask_client(call: OpenCall, client: Client, method: str) -> None:
    """Let a client answer a call."""
    found: list[Outcome] = []
    done = trio.Event()

    def answered(outcome: Outcome) -> None:
        found.append(outcome)
        done.set()

    with call.scope:
        withdraw = client.ask(call.call_id, method, call.params, answered)
        try:
            await done.wait()
        finally:
            withdraw()
        _answer(call, found[0])


def _answer(call: OpenCall, outcome: Outcome) -> None:
    if isinstance(outcome, Failure):
        call.refuse(outcome)
        return
    result: Any = outcome.result
    if isinstance(result, dict):
        call.answer(result)
    else:
        words = f"the client answered with {described(result)}, it must be an object"
        call.refuse(Failure.because(Reason.INVALID_EVENT, words))
