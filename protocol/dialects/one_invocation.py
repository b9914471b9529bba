"""What a process that serves one invocation and ends has in common, whatever it speaks."""

from __future__ import annotations

from protocol.connection import (
    NOTHING,
    Events,
    Flow,
    HostCalled,
    LocalError,
    Wait,
)
from protocol.errors import Outcome
from protocol.host_call import Chunk


class OneInvocation:
    """No handshake, no calls to the host, nothing to be told after the request (`Connection`)."""

    closes_stdin = True
    arguments: tuple[str, ...] = ()
    waits: tuple[Wait, ...] = ()

    def start(self) -> Events:
        """Do nothing: there is no handshake."""
        return NOTHING

    def flow(self, request_id: str, operation: Flow) -> Events:
        """Do nothing: it cannot be told, and serves nobody else, so it is just not read."""
        del request_id, operation
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Refuse: it makes no calls to the host."""
        del outcome, chunk
        raise LocalError(f"no call {asked.call.call_id!r} was made")

    def time_passed(self, wait: Wait) -> Events:
        """Do nothing: it waits for nothing."""
        del wait
        return NOTHING
