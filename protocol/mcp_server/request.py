"""A request of an MCP client, from its params to its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protocol.dialects.mcp.vocabulary import ASK, LISTEN, META, ROOTS, SAMPLE
from protocol.frames import encode
from protocol.jsonrpc import (
    INVALID_PARAMS,
    RpcCall,
    RpcError,
    RpcId,
)
from protocol.mcp_server.client import (
    MISSING_CAPABILITY,
    SSE,
    McpClient,
    accepts,
)
from protocol.mcp_server.mending import result_for, strict_result
from protocol.problem import described
from protocol.trace_context import is_traceparent
from protocol.version import VERSION

if TYPE_CHECKING:
    from protocol.mcp_server.offered import Given
    from protocol.mcp_server.questions import Inquiry
    from protocol.mcp_server.server import McpServer
    from protocol.mcp_server.tasks import Task

SERVER = {"name": "stdiod", "title": "stdiod", "version": VERSION}
"""The server information in answers."""

TOLD = frozenset({"tools/call", LISTEN})
"""Requests whose progress and logs are sent over HTTP: the answers of the others may be long, and
are documents."""

MARK_BYTES = 256
"""Of longer arguments a digest is kept."""

CAPABILITIES = {ROOTS: "roots", SAMPLE: "sampling", ASK: "elicitation"}
"""The client capability that each host method needs."""


def digest(data: bytes) -> bytes:
    import hashlib  # noqa: PLC0415 - as in `questions`

    return hashlib.sha256(data).digest()


class McpRequestError(Exception):
    """A request is refused, with this error."""

    def __init__(self, error: RpcError) -> None:
        super().__init__(error.message)
        self.error = error


def refused(code: int, words: str, data: Any = None) -> McpRequestError:
    return McpRequestError(RpcError(code, words, data))


class ClientRequest:
    def __init__(
        self,
        server: McpServer,
        call: RpcCall,
        client: McpClient,
        exchange: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.rpc_id: RpcId = call.rpc_id
        self.method = call.method
        self.params = call.params
        self.client = client
        self.exchange = exchange
        self.headers = headers
        """Over HTTP; in the newer era, args that headers repeat have to match them."""
        arguments = call.params.get("arguments") if client.is_modern else None
        self.arguments_mark = encode(arguments, order="sorted")
        """The arguments as JSON or a digest: a client that comes back has to send the same."""
        if len(self.arguments_mark) > MARK_BYTES:
            self.arguments_mark = digest(self.arguments_mark)
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
        self.questions: dict[str, Inquiry] = {}
        """The open ones: in the older era by their ids, else as their modules name them."""
        self.early_answers: dict[str, Any] = {}
        """The client's answers that came before the questions."""
        is_alone = client.is_modern and headers is not None
        self.lists: Given = {} if is_alone else server.offered.given
        """The lists as the client knows them; over HTTP in the newer era each request is alone."""
        self.is_collecting = False
        """Whether further questions are waited for, in the newer era."""
        self.server = server
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
        return [ours for ours, one in CAPABILITIES.items() if one in self.client.capabilities]

    def cancel(self) -> None:
        """Cancel it for its client, who gets no answer."""
        if self.task is not None:
            self.task.cancel()

    def gather(self, size: int) -> None:
        """Count so many bytes more, or less, that are held until it is answered or given up."""
        self._gathered_bytes += size
        self.server.gathered_bytes += size

    def count_params(self, line: bytes) -> None:
        """Count its params, which came in a long line; the daemon gets the arguments of a call."""
        size = len(line)
        if self.method == "tools/call":
            size -= len(encode(self.params.get("arguments")))
        self.gather(size - self._params_bytes)
        self._params_bytes = size

    def let_go(self) -> None:
        """Count nothing any more; idempotent."""
        self.gather(-self._gathered_bytes)

    @property
    def comes_back(self) -> bool:
        """Whether the client brings answers to questions, in the newer era."""
        brings = any(name in self.params for name in ("requestState", "inputResponses"))
        return brings and self.client.is_modern

    def become(self, again: ClientRequest) -> None:
        """Go on in the place of a request by which the client comes back for this one."""
        self.rpc_id, self.exchange, self.headers = again.rpc_id, again.exchange, again.headers
        self.params, self.client = again.params, again.client
        self.early_answers = again.early_answers
        self.is_parked = self.has_begun = False

    # Its params.

    @property
    def token(self) -> RpcId | None:
        """The progress token, if there is one."""
        meta = self.params.get("_meta")
        found = meta.get("progressToken") if isinstance(meta, dict) else None
        return found if isinstance(found, str) or type(found) is int else None

    @property
    def traceparent(self) -> dict[str, Any]:
        """The trace context, as a field of an invocation; {} without a valid one."""
        meta = self.params.get("_meta")
        found = meta.get("traceparent") if isinstance(meta, dict) else None
        return {"traceparent": found} if is_traceparent(found) else {}

    def text(self, name: str) -> str:
        """Return a param that has to be a string; raises `McpRequestError`."""
        value = self.params.get(name)
        if isinstance(value, str):
            return value
        found = f"is {described(value)}" if name in self.params else "is missing"
        raise refused(INVALID_PARAMS, f'"{name}" {found}, it must be a string')

    def params_of(self, *names: str) -> dict[str, Any]:
        """Return the params of these names; null counts as missing."""
        return {name: self.params[name] for name in names if self.params.get(name) is not None}

    # Messages to the client.

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification. Over HTTP, requests whose answer may be long have none before it."""
        is_told = self.headers is None or (self.may_stream and self.method in TOLD)
        if is_told and not self.is_parked:
            self.server.send(self, {"method": method, "params": params})

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Answer it; in the newer era with the fields that each result has there."""
        self.server.questions.withdraw(self)
        is_error = isinstance(outcome, RpcError) or outcome.get("isError") is True
        if self.needed and self.client.is_modern and is_error:
            words = f"the client has to be able to do this: {', '.join(self.needed)}"
            outcome = RpcError(MISSING_CAPABILITY, words, {"requiredCapabilities": self.needed})
        if self.is_parked:
            self.outcome = outcome
        else:
            self.server.answer(self, self._finished(outcome))
            self.let_go()

    def _finished(self, outcome: Mapping[str, Any] | RpcError) -> Mapping[str, Any] | RpcError:
        if not isinstance(outcome, RpcError):
            if self.client.is_modern:
                said = outcome.get("_meta")
                meta = {f"{META}serverInfo": SERVER, **(said if isinstance(said, dict) else {})}
                outcome = {"resultType": "complete", **outcome, "_meta": meta}
            outcome = strict_result(self.method, outcome, self.params.get("uri"))
            outcome = result_for(self.client.revision, outcome)
        most_bytes = self.server.most_bytes
        if most_bytes is None or not self.has_begun:
            return outcome
        keep = self.server.long_results
        return keep.fitted(outcome, most_bytes, has_schema=self.has_output_schema)
