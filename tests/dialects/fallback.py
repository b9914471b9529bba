"""It greets in a newer way; whoever says nothing to that, or ends, is greeted in the older one.

    {"hello": "new"}   silence, or its end            -> {"hello": "old"}

What a process understood is remembered for those that follow.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import NOTHING, Events, Memory, NewId, StartAgain, Wait
from protocol.descriptor.model import Descriptor
from tests.dialects.lines import GreetedConnection

SILENCE_S = 0.05


class FallbackConnection(GreetedConnection):
    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        super().__init__(descriptor, new_id, memory)
        self._is_sure = "era" in memory
        self._era: str = memory.get("era", "new")

    def start(self) -> Events:
        self.tell(hello=self._era)
        if not self._is_sure:
            self.waits = (Wait(SILENCE_S, "an answer to the newer greeting"),)
        return NOTHING

    def time_passed(self, wait: Wait) -> Events:
        self._era = "old"
        self.waits = ()
        self.tell(hello="old")
        return NOTHING

    def process_exited(self, code: int | None) -> Events:
        events = super().process_exited(code)
        if self.ready or self._is_sure:
            return events
        # However late it was: it may have been slow to read what it could not bear.
        self.memory["era"] = "old"
        self._is_sure = True
        return [*events, StartAgain("ended at the newer greeting")]

    def becomes_ready(self, description: Any) -> Events:
        self.memory["era"] = self._era
        return super().becomes_ready(description)
