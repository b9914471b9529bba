"""The connection of a process that nobody speaks with, such as one that prepares a program."""

from __future__ import annotations

from protocol.connection import NOTHING, Events, Flow, HostCalled, LocalError, Request, Wait
from protocol.errors import Outcome
from protocol.framing import Outgoing, Written
from protocol.host_call import Chunk


class Unspoken:
    """Says nothing and hears nothing."""

    waits: tuple[Wait, ...] = ()
    closes_stdin = True
    arguments: tuple[str, ...] = ()
    unfinished_line: str | None = None

    def __init__(self) -> None:
        self.outgoing = Outgoing()

    def start(self) -> Events:
        """Say nothing."""
        return NOTHING

    def ask(self, request: Request) -> Events:
        """Refuse: nothing may be asked."""
        raise LocalError(f"request {request.request_id} is for a process that is not spoken with")

    def cancel(self, request_id: str, written: Written) -> Events:
        """Do nothing: no request is open."""
        del request_id, written
        return NOTHING

    def flow(self, request_id: str, operation: Flow) -> Events:
        """Do nothing."""
        del request_id, operation
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Do nothing: it has asked nothing."""
        del asked, outcome, chunk
        return NOTHING

    def receive_data(self, data: bytes) -> Events:
        """Hear nothing."""
        del data
        return NOTHING

    def receive_eof(self) -> Events:
        """Hear nothing."""
        return NOTHING

    def process_exited(self, code: int | None) -> Events:
        """Hear nothing."""
        del code
        return NOTHING

    def time_passed(self, wait: Wait) -> Events:
        """Do nothing: it waits for nothing."""
        del wait
        return NOTHING

    def sent(self, line: bytes) -> Events:
        """Do nothing: nothing is ever written."""
        del line
        return NOTHING
