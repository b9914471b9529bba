"""The connection of a process that nobody speaks with, such as one that prepares a program."""

from __future__ import annotations

from protocol.connection import Connection
from protocol.framing import Outgoing


class Unspoken(Connection):
    """Says nothing and hears nothing."""

    closes_stdin = True

    def __init__(self) -> None:
        self.outgoing = Outgoing()
