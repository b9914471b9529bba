"""Which hooks an open request is made on behalf of: what they cause themselves is not theirs.

A request made by a hook, by what it called, or because of an event that such a request caused, has
the hook's name here. Without that, a hook that calls a module for each event would be told of its
own calls for ever, and two of them of each other's; and a gate that calls a module would be asked
about its own call.
"""

from __future__ import annotations

NOBODY: frozenset[str] = frozenset()


class Lineage:
    """The hooks behind open requests, by the daemon's id of the request."""

    def __init__(self) -> None:
        self._behind: dict[str, frozenset[str]] = {}

    def begin(self, request_id: str, hooks: frozenset[str]) -> None:
        """Take note of a request made on behalf of `hooks`, until `end`."""
        if hooks:
            self._behind[request_id] = hooks

    def of(self, request_id: str | None) -> frozenset[str]:
        """Return the hooks that a request is made on behalf of."""
        return NOBODY if request_id is None else self._behind.get(request_id, NOBODY)

    def end(self, request_id: str) -> None:
        """Forget a request: it is answered, and the journal says so."""
        self._behind.pop(request_id, None)

    def all(self) -> list[frozenset[str]]:
        """Return the hooks behind each open request that has some."""
        return list(self._behind.values())
