"""An open request of an MCP client: its params, the messages that belong to it, and its questions.

A module may ask the client of a request before the answer:

    older era   each question is a request to the client, which answers it
    newer era   questions are collected for a moment, and end the request with `input_required`; it
                is parked until the client asks the same again, with answers and the state it got

A state is good once, for a while, and for the client that got it (`McpServer`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protocol.client import ClientQuestion
from protocol.dialects.mcp.vocabulary import ASK, HOST_METHODS, LISTEN, META, ROOTS, SAMPLE
from protocol.errors import Failure, Outcome, Success
from protocol.frames import encode
from protocol.host_call import UNENCODABLE, HostCall
from protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    RpcCall,
    RpcError,
    RpcId,
    error_document,
    message_line,
)
from protocol.mcp_server.client import MISSING_CAPABILITY, SSE, McpClient, accepts, refused
from protocol.mcp_server.mending import result_for, strict_result
from protocol.problem import described
from protocol.trace_context import is_traceparent
from protocol.version import VERSION
from protocol.weight import LONG_BYTES

if TYPE_CHECKING:
    from protocol.mcp_server.offered import Given
    from protocol.mcp_server.server import McpServer
    from protocol.mcp_server.tasks import Task

SERVER = {"name": "stdiod", "title": "stdiod", "version": VERSION}
"""The server information in answers."""

TOLD = frozenset({"tools/call", LISTEN})
"""Requests whose progress and logs are sent over HTTP: the answers of the others may be long, and
are documents."""

COLLECT_S = 0.02
"""Questions that a module asks at once come a pass of the daemon's loop apart."""

FRAME_BYTES = 1024
"""The length of an answer beside its result; its id may be longer, and is the client's own."""

MARK_BYTES = 256
"""Of longer arguments a digest is kept."""

CLIENT_CAPABILITIES = {ROOTS: "roots", SAMPLE: "sampling", ASK: "elicitation"}
"""The client capability that each host method needs."""

ASKED_BY = {ours: theirs for theirs, ours in HOST_METHODS.items()}
"""The methods of MCP by which a client is asked."""


class ClientRequest:
    def __init__(
        self,
        server: McpServer,
        call: RpcCall,
        client: McpClient,
        exchange: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are those of HTTP: in the newer era, args that they repeat have to match."""
        self.server = server
        self.rpc_id: RpcId = call.rpc_id
        self.method = call.method
        self.params = call.params
        self.client = client
        self.exchange = exchange
        self.headers = headers
        self.arguments_mark = mark_of(call.params.get("arguments")) if client.is_modern else b""
        """The arguments as JSON or a digest: a client that comes back has to send the same."""
        is_alone = client.is_modern and headers is not None
        self.lists: Given = {} if is_alone else server.offered.given
        """The lists as the client knows them; over HTTP in the newer era each request is alone."""
        self.task: Task | None = None
        self.has_output_schema = False
        """Whether the result has to have structured content."""
        self.has_begun = False
        """Whether something came before its answer."""
        self.is_parked = False
        """Whether its client is to come back for it."""
        self.outcome: Mapping[str, Any] | RpcError | None = None
        """The outcome of a parked request, kept until its client comes back for it."""
        self.needed: dict[str, dict[str, Any]] = {}
        """The capabilities that the client would have to have."""
        self.questions: dict[str, ClientQuestion] = {}
        """The open ones: in the older era by their ids, else as their modules name them."""
        self.early_answers: dict[str, Any] = {}
        """The client's answers that came before the questions."""
        self._is_collecting = False
        self._done = -math.inf
        """The last progress told to the client, over all calls of this request."""
        self._gathered_bytes = 0
        self._params_bytes = 0

    @property
    def key(self) -> tuple[object, RpcId]:
        """The key among open requests; over HTTP, an id of the newer era is of one POST alone."""
        return (self.exchange if self.client.is_modern else None), self.rpc_id

    @property
    def may_stream(self) -> bool:
        """Whether its client takes messages before the answer."""
        return self.headers is None or accepts(self.headers, SSE)

    @property
    def can_answer(self) -> list[str]:
        """The host methods that its client says it can answer."""
        return [
            ours for ours, one in CLIENT_CAPABILITIES.items() if one in self.client.capabilities
        ]

    # Its params.

    @property
    def token(self) -> RpcId | None:
        """The progress token, if there is one."""
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        return token if isinstance(token, str) or type(token) is int else None

    @property
    def traceparent(self) -> dict[str, Any]:
        """The trace context, as a field of an invocation; {} without a valid one."""
        meta = self.params.get("_meta")
        context = meta.get("traceparent") if isinstance(meta, dict) else None
        return {"traceparent": context} if is_traceparent(context) else {}

    def text(self, name: str) -> str:
        """Return a param that has to be a string; raises `McpRequestError`."""
        value = self.params.get(name)
        if isinstance(value, str):
            return value
        state = f"is {described(value)}" if name in self.params else "is missing"
        raise refused(INVALID_PARAMS, f'"{name}" {state}, it must be a string')

    def params_of(self, *names: str) -> dict[str, Any]:
        """Return the params of these names; null counts as missing."""
        return {name: self.params[name] for name in names if self.params.get(name) is not None}

    # Bytes that the request holds.

    def gather(self, size: int) -> None:
        """Count so many bytes more, or less, that are held until it is answered or given up."""
        self._gathered_bytes += size
        self.server.gathered_bytes += size

    def count_params(self, line: bytes) -> None:
        """Count its params if they came in a long line; the daemon gets the arguments of a call."""
        if len(line) > LONG_BYTES:
            size = len(line)
            if self.method == "tools/call":
                size -= len(encode(self.params.get("arguments")))
            self.gather(size - self._params_bytes)
            self._params_bytes = size

    def let_go(self) -> None:
        """Count nothing any more; idempotent."""
        self.gather(-self._gathered_bytes)

    # Messages to the client.

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification. Over HTTP, requests whose answer may be long have none before it."""
        is_told = self.headers is None or (self.may_stream and self.method in TOLD)
        if is_told and not self.is_parked:
            self._send({"method": method, "params": params})

    def log(self, level: str, logger: str, data: Any) -> None:
        """Send a log, if the client wants those of its level."""
        wanted = self.client.wants(level)
        if wanted is not None:
            params = {"level": wanted, "logger": logger, "data": data}
            self.notify("notifications/message", params)

    def progress(self, payload: Mapping[str, Any]) -> None:
        """Send the progress that a module tells, if the client has given a token for it."""
        done: Any = payload.get("done")
        if self.token is None or not is_number(done) or done <= self._done:
            return  # it has to grow
        self._done = done
        params: dict[str, Any] = {"progressToken": self.token, "progress": done}
        if is_number(payload.get("total")):
            params["total"] = payload["total"]
        if isinstance(payload.get("message"), str):
            params["message"] = payload["message"]
        self.notify("notifications/progress", params)

    def say(self, words: str, logger: str) -> None:
        """Tell the client something as progress, or as a log if it takes no progress."""
        if self.token is None:
            self.log("warn", logger, words)
        else:
            done = max(self._done, 0)  # it has to grow, and the module's own to be told after it
            done = done if done > self._done else math.nextafter(done, math.inf)
            self.progress({"done": done, "message": words})

    def _send(self, message: Mapping[str, Any]) -> None:
        """Send a message that comes before the answer, if it can be encoded and is short enough."""
        try:
            data = message_line(message)
        except UNENCODABLE:
            return
        if self.server.most_bytes is None or len(data) <= self.server.most_bytes:
            self.has_begun = True
            self.server.put(data, self.exchange)

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Answer it, mended for the client; a parked one keeps its outcome."""
        self.withdraw()
        is_error = isinstance(outcome, RpcError) or outcome.get("isError") is True
        if self.needed and self.client.is_modern and is_error:
            words = f"the client has to be able to do this: {', '.join(self.needed)}"
            outcome = RpcError(MISSING_CAPABILITY, words, {"requiredCapabilities": self.needed})
        if self.is_parked:
            self.outcome = outcome
            return
        if not isinstance(outcome, RpcError):
            if self.client.is_modern:
                said = outcome.get("_meta")
                meta = {f"{META}serverInfo": SERVER, **(said if isinstance(said, dict) else {})}
                outcome = {"resultType": "complete", **outcome, "_meta": meta}
            outcome = strict_result(self.method, outcome, self.params.get("uri"))
            outcome = result_for(self.client.revision, outcome)
        if self.has_begun and self.server.most_bytes is not None:
            outcome = self._fitted(outcome, self.server.most_bytes)
        self.server.answer(self, outcome)
        self.let_go()

    def _fitted(
        self, outcome: Mapping[str, Any] | RpcError, most_bytes: int
    ) -> Mapping[str, Any] | RpcError:
        """Return an answer within a bound: in the place of a longer result, a link to it."""
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
        uri = self.server.keep_result(data)
        words = f"The result has {size} bytes. It is not here but in {uri}, for a while."
        link = {"type": "resource_link", "uri": uri, "name": "result", "size": size}
        link["mimeType"] = "application/json"
        rest = {key: value for key, value in outcome.items() if key != "structuredContent"}
        rest["content"] = [{"type": "text", "text": words}, link]
        # Where an output schema demands structured content, only an error may have none.
        return {**rest, "isError": True} if self.has_output_schema else rest

    # Questions of modules.

    def ask(self, question: ClientQuestion) -> None:
        """Put a question to the client."""
        call, server = question.call, self.server
        if self.client.is_modern:
            key = call.key or call.call_id
            answer = self.early_answers.pop(key, None)
            if isinstance(answer, dict) and answer:
                server.daemon.answer(question, Success(answer))
                return
            if key in self.questions:  # another module in the call names its own so
                key = f"{key}-{call.call_id}"
            self._collect_questions()
        elif self.may_stream:
            key = f"stdiod-{server.draw('question')[:16]}"
            server.questions[key] = self
            self._send({"id": key, **question_document(call)})
        else:
            words = "the client takes no stream, and so cannot be asked"
            server.daemon.answer(question, Failure(str(INVALID_REQUEST), words))
            return
        self.questions[key] = question
        self.gather(len(question.line))

    def receive_answer(self, key: str, answer: dict[str, Any] | RpcError) -> None:
        """Pass the client's answer on to the module that has asked."""
        outcome: Outcome = Success(answer)
        if isinstance(answer, RpcError):
            outcome = Failure(str(answer.code), answer.message)
        self.server.daemon.answer(self._forget_question(key), outcome)

    def withdraw(self, call_id: str | None = None) -> None:
        """Withdraw its questions, or that of one call: the module needs no answer any more."""
        for key, question in tuple(self.questions.items()):
            if call_id in (None, question.call.call_id):
                self._forget_question(key)
                if not self.client.is_modern:
                    params = {"requestId": key, "reason": "it is answered, or over"}
                    self._send({"method": "notifications/cancelled", "params": params})

    def _forget_question(self, key: str) -> ClientQuestion:
        question = self.questions.pop(key)
        if not self.client.is_modern:
            del self.server.questions[key]
        self.gather(-len(question.line))
        return question

    # The newer era.

    @property
    def comes_back(self) -> bool:
        """Whether the client brings answers to questions."""
        brings = any(name in self.params for name in ("requestState", "inputResponses"))
        return brings and self.client.is_modern

    def resume(self, again: ClientRequest, line: bytes) -> None:
        """Answer from now on under the id, exchange and params of `again`, by which it came back.

        Questions without an answer are asked again.
        """
        self.rpc_id, self.exchange, self.headers = again.rpc_id, again.exchange, again.headers
        self.params, self.client = again.params, again.client
        self.early_answers = {}
        self.is_parked = self.has_begun = False
        self.count_params(line)
        if self.outcome is not None:
            self.finish(self.outcome)
            return
        for key in tuple(self.questions):
            answer = again.early_answers.get(key)
            if isinstance(answer, dict) and answer:  # each result has members: `{}` answers nothing
                self.receive_answer(key, answer)
        self._collect_questions()

    def _collect_questions(self) -> None:
        """End the request in a moment, if it has open questions then."""
        if not self._is_collecting:
            self._is_collecting = True
            self.server.tasks.call_later(COLLECT_S, self._put_questions)

    def _put_questions(self) -> None:
        self._is_collecting = False
        if self.questions and not self.is_parked:
            documents = {key: question_document(one.call) for key, one in self.questions.items()}
            result = {
                "resultType": "input_required",
                "inputRequests": documents,
                "requestState": self.server.park(self),
                "_meta": {f"{META}serverInfo": SERVER},
            }
            self.server.answer(self, result)
            self.is_parked = True


def mark_of(arguments: Any) -> bytes:
    """Return arguments as JSON, or a digest of that if it is long."""
    data = encode(arguments, order="sorted")
    if len(data) <= MARK_BYTES:
        return data
    import hashlib  # noqa: PLC0415 - OpenSSL is half a megabyte, and few clients need it

    return hashlib.sha256(data).digest()


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def question_document(call: HostCall) -> dict[str, Any]:
    """Return a question as a request of MCP: its method and params."""
    params = call.params
    if call.method == ASK:
        message, form = params.get("message", ""), params.get("form")
        params = {"mode": "form", "message": message, "requestedSchema": form}
    return {"method": ASKED_BY[call.method], "params": params}
