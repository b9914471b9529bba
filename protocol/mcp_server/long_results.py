"""Results that are too long for an event of a stream: a link stands for each, which is read later.

Kept for a while, for the client with the link. They have a bound together; beyond it, the oldest
goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.jsonrpc import INTERNAL_ERROR, RpcError, error_document

if TYPE_CHECKING:
    from protocol.mcp_server.questions import SigningKey
    from protocol.mcp_server.tasks import Tasks, TimerHandle

SCHEME = "stdiod://results/"

KEPT_S = 600.0

KEPT_BYTES = 16 << 20
"""Of one server, and the newest result whole: that is at most as long as a line of a module."""

FRAME_BYTES = 1024
"""The length of an answer beside its result; its id may be longer, and is the client's own."""


class LongResults:
    """The results of one server that wait to be read."""

    def __init__(self, tasks: Tasks, key: SigningKey) -> None:
        self.held_bytes = 0
        self._tasks = tasks
        self._key = key
        self._all: dict[str, tuple[bytes, TimerHandle]] = {}
        """With what ends the wait of each."""

    def fitted(
        self, outcome: Mapping[str, Any] | RpcError, most_bytes: int, *, has_schema: bool
    ) -> Mapping[str, Any] | RpcError:
        """Return an answer within a bound: in the place of a longer result, a link to it.

        If an output schema demands structured content, the link has to be an error.
        """
        try:
            data = encode(error_document(outcome) if isinstance(outcome, RpcError) else outcome)
        except UNENCODABLE:
            return outcome  # nor can it be written
        size = len(data)
        if size + FRAME_BYTES <= most_bytes:
            return outcome
        if isinstance(outcome, RpcError) or "content" not in outcome:
            words = f"the answer has {size} bytes, and what was told before it has made it"
            words += f" an event of a stream: that takes {most_bytes}"
            return RpcError(INTERNAL_ERROR, words)
        uri = self.keep(data)
        words = f"The result has {size} bytes. It is not here but in {uri}, for a while."
        link = {"type": "resource_link", "uri": uri, "name": "result", "size": size}
        found = {key: value for key, value in outcome.items() if key != "structuredContent"}
        found["content"] = [
            {"type": "text", "text": words},
            {**link, "mimeType": "application/json"},
        ]
        return {**found, "isError": True} if has_schema else found

    def find(self, uri: str) -> bytes | None:
        """Return the result of that name, if it is still kept."""
        data, _ = self._all.get(uri, (None, None))
        return data

    def close(self) -> None:
        for uri in tuple(self._all):
            self._drop(uri)

    def keep(self, data: bytes) -> str:
        """Keep a result; returns the URI by which it is read."""
        uri = f"{SCHEME}{self._key.draw('result')}"
        self._all[uri] = data, self._tasks.call_later(KEPT_S, lambda: self._drop(uri))
        self.held_bytes += len(data)
        while self.held_bytes > KEPT_BYTES and len(self._all) > 1:
            self._drop(next(iter(self._all)))
        return uri

    def _drop(self, uri: str) -> None:
        data, timer = self._all.pop(uri)
        timer.cancel()
        self.held_bytes -= len(data)
