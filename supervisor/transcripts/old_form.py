"""The requests of an older transcript, which has only lines and outcomes.

A line of the host is read as its dialect wrote it. A request that stands in no line, as of a
command, or one that was never written, is known by its outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from protocol.connection import Request
from protocol.descriptor.model import Descriptor, InputForm, Lifecycle
from protocol.dialects.mcp.catalogue import CALL, OPS
from protocol.dialects.mcp.vocabulary import DISCOVER
from protocol.json_line import read_object
from protocol.replies import Operation
from protocol.transcript import Entry, EntrySource, Happened
from protocol.transcript import asked as asked_entry
from supervisor.transcripts.compare import is_of_host
from supervisor.transcripts.rpc_ids import request_id_of

_OPS = {one.method: op for op, one in OPS.items()}


def with_requests(entries: Sequence[Entry], descriptor: Descriptor) -> list[Entry]:
    """Return the entries of a process with its requests, if none of them is there."""
    if any(one.is_request for one in entries):
        return list(entries)
    found = list(_read(entries, descriptor))
    asked = {one.request_id for one in found if one.is_request}
    unwritten = {
        one.request_id: one
        for one in entries
        if one.operation and one.request_id not in asked and not is_of_host(one.outcome or {})
    }
    late = [asked_entry(one.at_s, one.instance or "", one.request) for one in unwritten.values()]
    if descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION:
        # A tool may print before its input is written to it: its request is open from the start.
        first = [*late, *(one for one in found if one.is_request)]
        return [*first, *(one for one in found if not one.is_request)]
    return list(_placed(found, {one.request_id: one for one in late}))


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
    reader = _RpcLines() if descriptor.transport.protocol == "mcp" else _Frames(descriptor)
    for entry in entries:
        document = read_object(entry.content()) if entry.is_line and entry.newline else None
        if isinstance(document, dict) and entry.source is EntrySource.HOST:
            for one in reader.told(document):
                if isinstance(one, Request):
                    yield asked_entry(entry.at_s, entry.instance or "", one)
                else:
                    yield replace(one, at_s=entry.at_s, instance=entry.instance)
        elif isinstance(document, dict) and entry.source is EntrySource.MODULE:
            reader.heard(document)
        yield entry


Told = Iterator[Request | Entry]
"""The requests in a line of the host, and its answers to calls of the module."""


class _Frames:
    """Reads the lines of the dialects `module` and `narratoria`."""

    def __init__(self, descriptor: Descriptor) -> None:
        transport = descriptor.transport
        self._is_flat = transport.protocol == "narratoria" and transport.input is InputForm.FLAT
        self._is_module = transport.protocol == "module"
        self._seen: set[str] = set()

    def heard(self, document: dict[str, Any]) -> None:
        """Do nothing: a line of the host says all."""

    def told(self, document: dict[str, Any]) -> Told:
        request_id = document.get("requestId")
        if document.get("type") == "host_result":
            yield from _host_result(request_id, document.get("payload"))
        elif isinstance(request_id, str) and request_id not in self._seen:
            request = self._request(request_id, document)
            if request is not None:
                self._seen.add(request_id)
                yield request

    def _request(self, request_id: str, document: dict[str, Any]) -> Request | None:
        if self._is_flat:
            args = {name: one for name, one in document.items() if name != "requestId"}
            return Request(request_id, Operation.INVOKE, "", args)
        operation, given = document.get("operation"), _object(document.get("input"))
        is_told = "tool" not in document or request_id.endswith(".sync")
        if not isinstance(operation, str) or (self._is_module and is_told):
            return None  # a cancel, a pause, or the connection's own
        if not self._is_module:
            return Request(request_id, Operation.INVOKE, operation, given)
        if operation in (Operation.HEALTH, Operation.DESCRIBE):
            return Request(request_id, Operation(operation))
        if operation != Operation.INVOKE:
            return Request(request_id, Operation.INVOKE, operation, given)
        op, session = given.get("op"), given.get("session_id")
        session_id = session if isinstance(session, str) else None
        op = op if isinstance(op, str) else ""
        return Request(request_id, Operation.INVOKE, op, _object(given.get("args")), session_id)


def _host_result(request_id: Any, payload: Any) -> Iterator[Entry]:
    told = _object(payload)
    call_id = told.pop("call_id", None)
    if isinstance(call_id, str):
        outcome = {**told, "ok": bool(told.get("ok"))}
        yield _answer(request_id if isinstance(request_id, str) else None, call_id, outcome)


class _RpcLines:
    """Reads the lines of MCP."""

    def __init__(self) -> None:
        self._asked: dict[Any, str] = {}
        """The requests by the ids of their lines."""
        self._rounds: dict[str, list[list[str]]] = {}
        """By request: the keys of the inputs that the server wanted, for each time."""

    def heard(self, document: dict[str, Any]) -> None:
        wanted = _object(document.get("result")).get("inputRequests")
        request_id = self._asked.get(_key(document.get("id")))
        if isinstance(wanted, dict) and request_id is not None:
            self._rounds.setdefault(request_id, []).append(list(wanted))

    def told(self, document: dict[str, Any]) -> Told:
        method, params = document.get("method"), _object(document.get("params"))
        if method is None and "id" in document:
            yield _answer(None, msgspec.json.encode(document["id"]).decode(), _outcome(document))
        request_id = request_id_of(document)
        if not isinstance(method, str) or request_id is None:
            return
        is_new = request_id not in self._asked.values()
        self._asked[_key(document.get("id"))] = request_id
        if is_new:
            yield _rpc_request(request_id, method, params)
            return
        rounds = self._rounds.get(request_id, [])
        for key, response in _object(params.get("inputResponses")).items():
            if rounds and key in rounds[-1]:
                call_id = f"{len(rounds)}.{rounds[-1].index(key)}"
                yield _answer(request_id, call_id, {"ok": True, "result": response})


def _rpc_request(request_id: str, method: str, params: dict[str, Any]) -> Request:
    if method in ("ping", DISCOVER):
        return Request(request_id, Operation.HEALTH)
    if method == CALL:
        op, args = str(params.get("name")), _object(params.get("arguments"))
        return Request(request_id, Operation.INVOKE, op, args)
    args = {name: one for name, one in params.items() if name != "_meta"}
    return Request(request_id, Operation.INVOKE, _OPS.get(method, method), args)


def _outcome(document: dict[str, Any]) -> dict[str, Any]:
    if "result" in document:
        return {"ok": True, "result": document["result"]}
    return {"ok": False, "error": document.get("error")}


def _answer(request_id: str | None, call_id: str, outcome: dict[str, Any]) -> Entry:
    return Entry(
        at_s=0, source=EntrySource.HOST, request_id=request_id, call_id=call_id, outcome=outcome
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _key(value: Any) -> str:
    return str(value)
