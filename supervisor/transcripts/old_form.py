"""What a transcript may lack: the requests, in an older one, and the ids of JSON-RPC from 1 on.

A line of the host is read as its dialect wrote it. A request that stands in no line, as of a
command, or one that was never written, is known by its outcome.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from protocol.connection import Request
from protocol.descriptor.model import Descriptor, InputForm, Lifecycle
from protocol.dialects.mcp.catalogue import CALL, OPS
from protocol.dialects.mcp.requests import REQUEST_ID
from protocol.dialects.mcp.vocabulary import DISCOVER, META
from protocol.json_line import Fault, read_object
from protocol.jsonrpc import meant_id
from protocol.replies import Operation
from protocol.transcript import Entry, EntrySource, Happened, asked
from supervisor.transcripts.compare import is_of_host

_INVOKE = Operation.INVOKE
_OPS = {one.method: op for op, one in OPS.items()}


def with_requests(entries: Sequence[Entry], descriptor: Descriptor) -> list[Entry]:
    """Return the entries of a process with its requests, if none of them is there."""
    if any(one.is_request for one in entries):
        return list(entries)
    found = list(_read(entries, descriptor))
    written = {one.request_id for one in found if one.is_request}
    late = {
        one.request_id: asked(one.at_s, one.instance or "", one.request)
        for one in entries
        if one.operation and one.request_id not in written and not is_of_host(one.outcome or {})
    }
    if descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION:
        # A tool may print before its input is written to it: its request is open from the start.
        return [*late.values(), *sorted(found, key=lambda one: not one.is_request)]
    return list(_placed(found, late))


def _placed(entries: Iterable[Entry], late: dict[str | None, Entry]) -> Iterator[Entry]:
    """Put each of the requests before its outcome, or the end of the process."""
    for entry in entries:
        if entry.outcome is not None and entry.request_id in late:
            yield late.pop(entry.request_id)
        if entry.event is Happened.EXITED:
            yield from late.values()
            late = {}
        yield entry


def _read(entries: Iterable[Entry], descriptor: Descriptor) -> Iterator[Entry]:
    """Put the requests in the host's lines, and its answers to the module, before the lines."""
    rpc = _RpcLines() if descriptor.transport.protocol == "mcp" else None
    seen: set[str | None] = set()
    for entry in entries:
        document = read_object(entry.content()) if entry.is_line and entry.newline else None
        told: Iterable[Request | Entry] = ()
        if isinstance(document, dict) and entry.source is EntrySource.HOST:
            told = rpc.told(document) if rpc else _framed(document, descriptor)
        elif isinstance(document, dict) and entry.source is EntrySource.MODULE and rpc:
            rpc.heard(document)
        for one in told:
            if isinstance(one, Entry):
                yield msgspec.structs.replace(one, at_s=entry.at_s, instance=entry.instance)
            elif one.request_id not in seen:
                seen.add(one.request_id)
                yield asked(entry.at_s, entry.instance or "", one)
        yield entry


def _framed(document: dict[str, Any], descriptor: Descriptor) -> Iterator[Request | Entry]:
    """Read a line of the dialects `module` and `narratoria`."""
    transport, request_id = descriptor.transport, document.get("requestId")
    operation, given = document.get("operation"), _object(document.get("input"))
    if document.get("type") == "host_result":
        told = _object(document.get("payload"))
        yield _answer(
            request_id, str(told.pop("call_id", "")), {**told, "ok": bool(told.get("ok"))}
        )
    elif not isinstance(request_id, str):
        return
    elif transport.protocol == "narratoria" and transport.input is InputForm.FLAT:
        yield Request(request_id, _INVOKE, "", {**document, "requestId": request_id})
    elif transport.protocol == "narratoria":
        yield Request(request_id, _INVOKE, str(operation), given)
    elif not isinstance(operation, str) or "tool" not in document or request_id.endswith(".sync"):
        return  # a cancel, a pause, or the connection's own
    elif operation in (Operation.HEALTH, Operation.DESCRIBE):
        yield Request(request_id, Operation(operation))
    elif operation == _INVOKE:
        op, session = given.get("op"), given.get("session_id")
        session_id = session if isinstance(session, str) else None
        op = op if isinstance(op, str) else ""
        yield Request(request_id, _INVOKE, op, _object(given.get("args")), session_id)
    else:
        yield Request(request_id, _INVOKE, operation, given)


class _RpcLines:
    """Reads the lines of MCP."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        """The requests by the ids of their lines."""
        self._rounds: dict[str, list[list[str]]] = {}
        """By request: the keys of the inputs that the server wanted, for each time."""

    def heard(self, document: dict[str, Any]) -> None:
        wanted = _object(document.get("result")).get("inputRequests")
        request_id = self._asked.get(str(document.get("id")))
        if isinstance(wanted, dict) and request_id is not None:
            self._rounds.setdefault(request_id, []).append(list(wanted))

    def told(self, document: dict[str, Any]) -> Iterator[Request | Entry]:
        method, params = document.get("method"), _object(document.get("params"))
        request_id = request_id_of(document)
        if method is None and "id" in document:
            outcome = {**document, "ok": "result" in document}
            yield _answer(None, msgspec.json.encode(document["id"]).decode(), outcome)
        if not isinstance(method, str) or request_id is None:
            return
        self._asked[str(document.get("id"))] = request_id
        yield _rpc_request(request_id, method, params)
        *_, wanted = ([], *self._rounds.get(request_id, []))
        for key, response in _object(params.get("inputResponses")).items():
            if key in wanted:
                call_id = f"{len(self._rounds[request_id])}.{wanted.index(key)}"
                yield _answer(request_id, call_id, {"ok": True, "result": response})


def _rpc_request(request_id: str, method: str, params: dict[str, Any]) -> Request:
    if method in ("ping", DISCOVER):
        return Request(request_id, Operation.HEALTH)
    if method == CALL:
        return Request(
            request_id, _INVOKE, str(params.get("name")), _object(params.get("arguments"))
        )
    args = {name: one for name, one in params.items() if name != "_meta"}
    return Request(request_id, _INVOKE, _OPS.get(method, method), args)


class RpcIds:
    """The ids of a recorded conversation, and those of the connection that has it again.

    A connection counts from 1; a recording that began in the middle has higher ids, an older one
    words. Two lines of the host are the same question if they are of the same request, or of none
    and the same method, in this order.
    """

    def __init__(self) -> None:
        self._recorded: defaultdict[Any, deque[Any]] = defaultdict(deque)
        self._own: defaultdict[Any, deque[Any]] = defaultdict(deque)
        self._ids: dict[Any, Any] = {}
        """The connection's ids by the recorded ones."""

    @property
    def differ(self) -> bool:
        return any(recorded != own for recorded, own in self._ids.items())

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

    def translated(self, line: bytes) -> bytes | None:
        """Return a line of the server with the connection's ids.

        None if it answers a question that the connection has not asked.
        """
        document = read_object(line)
        if isinstance(document, Fault):
            return line
        params = _object(document.get("params"))
        meta = _object(params.get("_meta"))
        named = [(params, "progressToken"), (meta, f"{META}subscriptionId")]
        if "method" not in document:
            named.append((document, "id"))
            if any(meant_id(document.get("id")) in one for one in self._recorded.values()):
                return None
        changed = False
        for holder, name in named:
            rpc_id = meant_id(holder.get(name))
            if rpc_id is not None and self._ids.get(rpc_id, rpc_id) != rpc_id:
                holder[name], changed = self._ids[rpc_id], True
        return msgspec.json.encode(document) if changed else line


def request_id_of(document: dict[str, Any]) -> str | None:
    """Return the host's id of the request that a line of the host is of, if of one."""
    meta = _object(_object(document.get("params")).get("_meta"))
    named = meta.get(REQUEST_ID, meta.get("progressToken"))
    return named if isinstance(named, str) else None


def _answer(request_id: str | None, call_id: str, outcome: dict[str, Any]) -> Entry:
    return Entry(
        at_s=0, source=EntrySource.HOST, request_id=request_id, call_id=call_id, outcome=outcome
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
