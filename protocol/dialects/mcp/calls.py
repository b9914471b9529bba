r"""The open requests of the host, each from its line to its answer.

    asked --an answer--> answered
      |  \--input_required--> the host is asked --> asked again, under another id
      \--cancelled--> gone: a late answer is told by its id, and dropped

One line of a request waits for an answer at a time; its id is the token of the request's progress.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec import UNSET

from protocol.assets import is_media_type
from protocol.connection import (
    Alive,
    Answered,
    EventReceived,
    HostCalled,
    Notice,
    Received,
    Request,
    Unanswered,
    Warned,
)
from protocol.dialects.mcp.catalogue import CALL, OPS
from protocol.dialects.mcp.requests import McpRequests, OpenCall, Round, read_round
from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import AssetBytes, UiEvent
from protocol.framing import Written
from protocol.host_call import UNENCODABLE
from protocol.json_line import Fault
from protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, RpcReply, meant_id
from protocol.mcp_server.mending import as_list
from protocol.problem import kind
from protocol.replies import Operation


class Calls:
    def __init__(self, requests: McpRequests, events: list[Received]) -> None:
        self.gave_up = False
        """Whether the server may still answer a request that is not open any more."""
        self._requests = requests
        self._events = events
        self._open: dict[str, OpenCall] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    @property
    def only(self) -> str | None:
        return next(iter(self._open)) if len(self._open) == 1 else None

    def ask(self, request: Request, method: str, params: dict[str, Any]) -> None:
        # Written before it is noted as open: args that cannot be encoded leave nothing behind.
        call = OpenCall(request, method, params)
        self._requests.ask_for(call, params)
        self._open[request.request_id] = call

    def cancel(self, request_id: str, written: Written) -> None:
        """Forget a request, and cancel it at the server if it was written."""
        call = self._open.pop(request_id, None)
        if call is None:
            return
        if written is Written.ALL and call.round is None:
            self.gave_up = True
            self._requests.cancel(call.rpc_id)
        else:
            self._requests.close(call.rpc_id)

    def exited(self) -> None:
        self._events += map(Unanswered, self._open)
        self._open.clear()

    # What the server says.

    def answered(self, call: OpenCall, reply: RpcReply, size_bytes: int) -> None:
        if type(reply) is Fault:
            self._close(call, reply.failure(), reply)
        elif call.request.operation is Operation.HEALTH:
            # Any answer shows that the server is alive.
            self._close(call, Success({"status": "ok"}))
        elif isinstance(reply, dict):
            self._receive_result(call, reply, size_bytes)
        else:
            self._close(call, failure_of(reply))

    def fail_all(self, fault: Fault) -> None:
        for call in tuple(self._open.values()):
            self._close(call, fault.failure(), fault)

    def receive_progress(self, params: dict[str, Any]) -> bool:
        """Take progress; False if it belongs to no open request."""
        token, done = meant_id(params.get("progressToken")), params.get("progress")
        call = None if token is None else self._requests.open.get(token)
        if not isinstance(call, OpenCall):
            return False
        request_id = call.request.request_id
        if not isinstance(done, int | float) or isinstance(done, bool):
            words = f'"progress" is {kind(done)}, it must be a number'
        elif call.progress is not None and done <= call.progress:
            words = f"progress went from {call.progress:g} to {done:g}, it must increase"
        else:
            call.progress = done
            payload = {"done": done, "total": params.get("total"), "message": params.get("message")}
            event = UiEvent(version="0", request_id=request_id, event="progress", payload=payload)
            self._events.append(EventReceived(request_id, event))
            return True
        # No event for the client, but the server is at work.
        self._events += [Warned(request_id, Notice("bad_progress", words)), Alive(request_id)]
        return True

    def _receive_result(self, call: OpenCall, result: dict[str, Any], size_bytes: int) -> None:
        sort = result.get("resultType", "complete") if self._requests.is_modern else "complete"
        if sort == "complete":
            unpacking = Unpacking(call.request.request_id, self._events)
            self._close(call, unpacking.result(call.method, result))
        elif sort == "input_required":
            call.rounds += 1
            wanted = read_round(result, call.rounds)
            if isinstance(wanted, Failure):
                self._close(call, wanted)
                return
            call.round = wanted
            request_id = call.request.request_id
            self._events += [HostCalled(request_id, one, size_bytes) for one in wanted.calls]
            self._go_on(call, wanted)
        else:
            words = f"the answer is of a resultType that is not known here: {sort!r:.40}"
            self._close(call, Failure.because(Reason.INVALID_EVENT, words))

    # What the host says.

    def answer(self, asked: HostCalled, outcome: Outcome) -> None:
        """Take the host's answer to an input that a request waits for."""
        call = self._open.get(asked.request_id or "")
        if call is None or call.round is None:
            return
        failure = call.round.take(asked.call, outcome)
        if failure is not None:
            self._close(call, failure)
        else:
            self._go_on(call, call.round)

    def _go_on(self, call: OpenCall, wanted: Round) -> None:
        """Repeat the request with the input, if all of it has come."""
        if wanted.open:
            return
        try:
            self._requests.ask_for(call, {**call.params, **wanted.given})
        except UNENCODABLE as error:
            words = (
                f"the answers to the server's questions cannot be written: {type(error).__name__}"
            )
            self._close(call, Failure.because(Reason.INVALID_EVENT, words))
        else:
            call.round = None

    def _close(self, call: OpenCall, outcome: Outcome, fault: Fault | None = None) -> None:
        del self._open[call.request.request_id]
        self._requests.close(call.rpc_id)
        self._events.append(Answered(call.request.request_id, outcome, fault))


UNKNOWN_TYPE = "application/octet-stream"

FILES = 256
"""Per answer (`kernel.assets.store.SPOOLS_WHOLE`); further files stay where they are."""

DEPTH = 64
"""Of structured content; what is deeper stays as it came."""

SHARED_CHARS = 64
"""A shorter text in structured content may equal data by chance."""

MESSAGE_CHARS = 4_000
"""Of a tool's error text; the whole stands in `details`."""


class Unpacking:
    """The outcome of an answer: its result or failure, and the files that it carries.

    Structured content is the result; without it the answer is, as it came. Binary content becomes
    an asset in the same place, in structured content too: `data` and `blob` give way to `assetId`,
    so that nothing is held twice. Text that is no base64 stays as it came. A link stays a link.
    """

    def __init__(self, request_id: str, events: list[Received]) -> None:
        self._request_id = request_id
        self._events = events
        self._count = 0
        self._is_full = False
        self._assets: dict[str, str] = {}
        """Asset ids by the base64 that they replace."""

    def result(self, method: str, result: dict[str, Any]) -> Outcome:
        """Return the outcome of an answer to a method; a null is an absent member."""
        result = {key: one for key, one in _present(result).items() if key != "resultType"}
        if method == "tools/call":
            return self._tool_result(result)
        if method == "resources/read" and "contents" in result:
            result["contents"] = [self._resource(one) for one in as_list(result["contents"])]
        if method == "prompts/get" and "messages" in result:
            messages = map(self._messages, as_list(result["messages"]))
            result["messages"] = [one for each in messages for one in each]
        return Success(result)

    def _tool_result(self, result: dict[str, Any]) -> Outcome:
        if "toolResult" in result and "content" not in result:  # as before 2024-11-05
            inner = result["toolResult"]
            result = _present(inner) if isinstance(inner, dict) else {"content": inner}
        failed = result.get("isError", False) is not False
        if failed or "content" in result or not result.keys() - {"_meta", "isError"}:
            result["content"] = [self._block(one) for one in as_list(result.get("content"))]
        if failed:
            result["isError"] = True
            texts = (one.get("text") for one in result["content"] if isinstance(one, dict))
            words = "\n".join(one for one in texts if isinstance(one, str))[:MESSAGE_CHARS]
            return Failure.reported(
                Code.INTERNAL,
                words or "the tool failed and does not say why",
                result,
                reason=str(Reason.REPORTED),
            )
        if "structuredContent" in result:
            return Success(self._shared(result["structuredContent"]), whole=result)
        return Success(result, whole=result if "content" in result else None)

    def _shared(self, value: Any, depth: int = 0) -> Any:
        """Return structured content with assets in the place of their base64."""
        if not self._assets or depth > DEPTH:
            return value
        if isinstance(value, list):
            return [self._shared(one, depth + 1) for one in value]
        if isinstance(value, str) and len(value) >= SHARED_CHARS and value in self._assets:
            return {"assetId": self._assets[value]}
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for key, one in value.items():
            if key in ("data", "blob") and isinstance(one, str) and one in self._assets:
                found["assetId"] = self._assets[one]
            else:
                found[key] = self._shared(one, depth + 1)
        return found

    def _messages(self, message: Any) -> list[Any]:
        """Return a message for each block of a message: MCP has one block per message."""
        said = message if isinstance(message, dict) else {"content": message}
        return [{**said, "content": self._block(one)} for one in as_list(said.get("content"))]

    def _block(self, block: Any) -> Any:
        if type(block) is dict:
            is_text = block.get("type") == "text"
            if (is_text or self._is_full) and _is_plain(block) and "resource" not in block:
                return block  # an answer may have thousands of them
        block = _present(block)
        match block:
            case str(text):
                return {"type": "text", "text": text}
            case {"type": "image" | "audio" as sort, "data": str(data)}:
                return self._unpacked(block, "data", data, sort)
            case {"type": "resource", "resource": resource}:
                return {**block, "resource": self._resource(resource)}
        return block

    def _resource(self, resource: Any) -> Any:
        if self._is_full and _is_plain(resource):
            return resource
        resource = _present(resource)
        if isinstance(resource, dict) and isinstance(resource.get("blob"), str):
            return self._unpacked(resource, "blob", resource["blob"], "file")
        return resource

    def _unpacked(self, holder: dict[str, Any], field: str, data: str, sort: str) -> dict[str, Any]:
        holder = {key: value for key, value in holder.items() if key != "assetId"}
        if self._count == FILES and not self._is_full:
            self._is_full = True
            self._warn(f"an answer has {FILES} files at most; the others stay in it as they came")
        if self._is_full:
            return holder
        self._count += 1
        named = f"{sort}-{self._count}"
        of_url = _DATA_URL.match(data)
        said = "" if of_url is None else of_url[1]
        plain = plain_base64(data if of_url is None else unquote(data[of_url.end() :]))
        if plain is None:
            self._warn(
                f"asset {named!r}: its data is not base64; it stays in the answer as it came"
            )
            return holder
        self._assets[data] = self._assets[plain] = named
        media_type = holder.get("mimeType")
        if not isinstance(media_type, str) or not is_media_type(media_type):
            media_type = said if is_media_type(said) else UNKNOWN_TYPE
            if is_media_type(said):
                holder["mimeType"] = said
        uri = holder.get("uri")
        piece = AssetBytes(
            asset_id=named,
            kind=sort,
            media_type=media_type,
            data=plain,
            last=True,
            metadata={"uri": uri} if isinstance(uri, str) else UNSET,
        )
        self._events.append(EventReceived(self._request_id, piece))
        return {
            "assetId" if key == field else key: named if key == field else value
            for key, value in holder.items()
        }

    def _warn(self, words: str) -> None:
        self._events.append(Warned(self._request_id, Notice("asset_not_copied", words)))


def _is_plain(value: Any) -> bool:
    """Whether nothing in a block, or in a resource, has to be left out."""
    return type(value) is dict and None not in value.values() and "assetId" not in value


_DATA_URL = re.compile(r"\s*data:([^,]{0,1024}?);base64,", re.IGNORECASE)
"""RFC 2397, with its media type."""
_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_STANDARD = bytes.maketrans(b"-_", b"+/")


def plain_base64(text: str) -> str | None:
    """Return base64 as RFC 4648 4 has it.

    None for other text, or no bytes. White space, the alphabet for URLs and missing padding are
    mended. A right one already takes 4 ms for 15 MB; it is decoded where it is written
    (`AssetBytes`).
    """
    if not text.isascii():
        return None
    raw = text.encode()
    rest = raw.translate(None, _ALPHABET)
    if rest in (b"", b"=", b"==") and raw.endswith(rest) and len(raw) % 4 == 0:
        return text or None
    body = raw.translate(_STANDARD, string.whitespace.encode()).rstrip(b"=")
    if not body or body.translate(None, _ALPHABET) or len(body) % 4 == 1:
        return None
    return (body + b"=" * (-len(body) % 4)).decode()


def _present(value: Any) -> Any:
    """Return an object without its null members."""
    if not isinstance(value, dict):
        return value
    return {key: one for key, one in value.items() if one is not None}


def failure_of(error: RpcError) -> Failure:
    code = {METHOD_NOT_FOUND: Code.UNSUPPORTED_OP, INVALID_PARAMS: Code.BAD_REQUEST}.get(
        error.code, Code.INTERNAL
    )
    reported: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        reported["data"] = error.data
    words = error.message or f"the server answered with the error {error.code}"
    return Failure.reported(code, words[:MESSAGE_CHARS], reported, reason=str(Reason.REPORTED))


VALUE_CHARS = 256
"""Of values that the client chose."""

_CHOSEN = {
    "prompts/get": ("gen_ai.prompt.name", "name"),
    "resources/read": ("mcp.resource.uri", "uri"),
}


def span_attributes(
    description: Mapping[str, Any] | None, request: Request, outcome: Outcome
) -> dict[str, str]:
    """Return attributes of a request for the journal.

    OpenTelemetry's names for a client of MCP. https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp.
    `mcp.session.id` and `server.address` are of servers over HTTP. The id of the JSON-RPC request
    is the entry's `request_id`.
    """
    said = {} if description is None else description
    named, tools = OPS.get(request.op), said.get("tools", ())
    is_tool = named is None or any(one["name"] == request.op for one in tools)
    method = CALL if named is None or is_tool else named.method
    found = {"mcp.method.name": method, "network.transport": "pipe"}
    if description is not None:
        found["mcp.protocol.version"] = description["mcp"]["revision"]
    if method == CALL:
        found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": request.op}
    elif method in _CHOSEN:
        attribute, arg = _CHOSEN[method]
        found[attribute] = str(request.args.get(arg))
    if isinstance(outcome, Failure):
        reported = outcome.details.get("reported")
        reported = reported if isinstance(reported, dict) else {}
        found["error.type"] = "tool_error" if reported.get("isError") is True else outcome.code
        if type(reported.get("code")) is int:
            found["rpc.response.status_code"] = str(reported["code"])
    return {name: value[:VALUE_CHARS] for name, value in found.items()}
