"""It is ready after three pages of what it can do.

{"page": 0}                                       -> {"page": [op...], "next": 1 or null}
"""

from __future__ import annotations

from typing import Any

from protocol.connection import NOTHING, Events, Memory, NewId, StartFailed
from protocol.descriptor.model import Descriptor
from tests.dialects.lines import GreetedConnection
from tests.dialects.peers import description

PAGES = 8
"""One that has more lies."""


class PagedConnection(GreetedConnection):
    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        super().__init__(descriptor, new_id, memory)
        self._ops: list[str] = []
        self._pages = 0

    def start(self) -> Events:
        self.tell(page=0)
        return NOTHING

    def hears(self, message: dict[str, Any], line: bytes) -> Events:
        page, following = message.get("page"), message.get("next")
        if page is None or self.ready:
            return super().hears(message, line)
        self._pages += 1
        if not isinstance(page, list) or not all(isinstance(op, str) for op in page):
            return [StartFailed("bad_page", f"gave a page that is none: {page!r:.40}")]
        self._ops += page
        if following is None:
            return self.becomes_ready(description(self._ops))
        if not isinstance(following, int) or self._pages >= PAGES:
            return [StartFailed("bad_page", f"has no end of pages: next {following!r:.40}")]
        self.tell(page=following)
        return NOTHING
