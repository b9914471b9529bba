"""The ids of a recorded conversation with an MCP server, and those of the connection that reads it.

A connection counts its ids from 1. A recording that began in the middle has higher ones, and an
older one has words. A line of the recorded host and one that the connection wrote are the same
question if they are of the same request, or of none and the same method, in this order. What the
server answered is read with the connection's ids then.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import msgspec

from protocol.dialects.mcp.vocabulary import META
from protocol.dialects.mcp.writer import REQUEST_ID
from protocol.json_line import Fault, read_object
from protocol.jsonrpc import meant_id


def request_id_of(document: dict[str, Any]) -> str | None:
    """Return the host's id of the request that a line of the host is of, if of one."""
    params = document.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict):
        return None
    named = meta.get(REQUEST_ID, meta.get("progressToken"))
    return named if isinstance(named, str) else None


class RpcIds:
    def __init__(self) -> None:
        self._recorded: defaultdict[Any, deque[Any]] = defaultdict(deque)
        self._own: defaultdict[Any, deque[Any]] = defaultdict(deque)
        self._ids: dict[Any, Any] = {}
        """The connection's ids by the recorded ones."""

    def recorded(self, line: bytes) -> None:
        self._note(line, self._recorded)

    def written(self, lines: bytes) -> None:
        for line in lines.splitlines():
            self._note(line, self._own)

    def _note(self, line: bytes, among: defaultdict[Any, deque[Any]]) -> None:
        document = read_object(line)
        if isinstance(document, Fault) or "id" not in document or "method" not in document:
            return
        question = request_id_of(document) or (document["method"],)
        among[question].append(meant_id(document["id"]))
        if self._recorded[question] and self._own[question]:
            self._ids[self._recorded[question].popleft()] = self._own[question].popleft()

    @property
    def differ(self) -> bool:
        return any(recorded != own for recorded, own in self._ids.items())

    def translated(self, line: bytes) -> bytes | None:
        """Return a line of the server with the connection's ids.

        None if it answers a question that the connection has not asked.
        """
        document = read_object(line)
        if isinstance(document, Fault):
            return line
        before = msgspec.json.encode(document)
        if "method" not in document:
            rpc_id = meant_id(document.get("id"))
            if rpc_id in self._recorded_only:
                return None
            self._change(document, "id")
        params = document.get("params")
        if isinstance(params, dict):
            self._change(params, "progressToken")
            if isinstance(params.get("_meta"), dict):
                self._change(params["_meta"], f"{META}subscriptionId")
        after = msgspec.json.encode(document)
        return line if before == after else after

    @property
    def _recorded_only(self) -> set[Any]:
        return {one for each in self._recorded.values() for one in each}

    def _change(self, holder: dict[str, Any], name: str) -> None:
        rpc_id = meant_id(holder.get(name))
        if rpc_id is not None and self._ids.get(rpc_id, rpc_id) != rpc_id:
            holder[name] = self._ids[rpc_id]
