"""The connection of a process that nobody speaks with, such as one that prepares a program."""

from __future__ import annotations

from protocol.connection import Connection, Events
from protocol.framing import Outgoing
from supervisor.policy.verdict import Exit


class Unspoken(Connection):
    """Says nothing and hears nothing."""

    closes_stdin = True

    def __init__(self) -> None:
        self.outgoing = Outgoing()


class Unheard:
    """Takes what such a process says, which is nothing (dialogue.Receiver)."""

    def receive(self, events: Events) -> None:
        """Take nothing."""

    def congested(self) -> bool:
        """Whether reading should pause: never."""
        return False

    def drained(self) -> None: ...

    def stdout_closed(self) -> None:
        """Take no note: it was never open."""

    def stdin_broken(self) -> None:
        """Take no note: nothing is written."""

    def held(self, end: Exit) -> None:
        """Take no note: whoever runs it waits until it is reaped."""
