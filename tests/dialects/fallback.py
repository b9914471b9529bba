"""It greets in a newer way; whoever says nothing to that, or ends, is greeted in the older one.

    {"hello": "new"}   silence, or its end            -> {"hello": "old"}

What a process understood is remembered for those that follow.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import NOTHING, Events, StartAgain, Wait
from tests.dialects.lines import LineConnection

SILENCE_S = 0.05


class FallbackConnection(LineConnection):
    def start(self) -> Events:
        self.tell(hello=self.memory.get("era", "new"))
        if "era" not in self.memory:
            self.waits = (Wait(SILENCE_S, "an answer to the newer greeting"),)
        return NOTHING

    def time_passed(self, wait: Wait) -> Events:
        self.memory["era"] = "old"
        self.waits = ()
        self.tell(hello="old")
        return NOTHING

    def process_exited(self, code: int | None) -> Events:
        untold = "era" not in self.memory
        events = super().process_exited(code)
        if untold and not self.ready:
            self.memory["era"] = "old"
            return [*events, StartAgain("ended at the newer greeting")]
        return events

    def becomes_ready(self, description: Any) -> Events:
        self.memory.setdefault("era", "new")
        return super().becomes_ready(description)
