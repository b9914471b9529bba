"""Dialect `mcp`: one process of a server, from its greeting to its end.

Whose a line is:

- an answer is that of its id: a question of the connection's own (`introduction`), or a request
  (`calls`). An error without an id answers the only line that waits; any other answer is a stray;
- progress is of the request whose token it has; a log is of the only request that is open, else of
  the process;
- what the server asks is of the only request that is open, else of the process. Its ids are its own
  and mean nothing among ours.

What is no message fails the request that it names. A line that is too long to be read fails the
only request that is open. All else is noise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.connection import (
    NOTHING,
    Answered,
    Asked,
    EventReceived,
    Events,
    Flow,
    HostCalled,
    LocalError,
    Memory,
    ModuleLog,
    NewId,
    Notice,
    Notified,
    Quarantined,
    Received,
    Request,
    ResourceUpdated,
    Stray,
    Unanswered,
    Violated,
    Wait,
    Warned,
)
from protocol.descriptor.model import Descriptor, StdoutPolicy
from protocol.dialects.mcp.calls import Calls
from protocol.dialects.mcp.catalogue import ACCEPTED, CALL, CHANGED, OPS, SUBSCRIBE, UNSUBSCRIBE
from protocol.dialects.mcp.greeting import DISCOVER, META
from protocol.dialects.mcp.inquiries import client_capabilities, client_result, host_call
from protocol.dialects.mcp.introduction import Introduction
from protocol.dialects.mcp.listening import LISTEN, Listening
from protocol.dialects.mcp.rpc import (
    RpcAnswer,
    RpcCall,
    RpcError,
    RpcId,
    RpcMistake,
    RpcNotification,
    read_message,
)
from protocol.dialects.mcp.speaker import Speaker
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.frames import DEPTH, encode
from protocol.framing import LineSplitter, Written
from protocol.host_call import Chunk
from protocol.json_line import Fault, excerpt, overlong_fault, read_object
from protocol.replies import Operation
from protocol.weight import LONG_BYTES, collector_paused, is_deeper

PING = "ping"

NOTIFIED_BYTES = 1 << 20
"""A longer notification of an extension is not passed on."""

OPEN_INQUIRIES = 1024
"""Requests of the server's that wait for an answer; a further one is refused."""


class McpConnection:
    """One process of a server."""

    closes_stdin = False
    arguments: tuple[str, ...] = ()

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        client = client_capabilities(descriptor)
        self._speaker = Speaker(client, new_id)
        self.outgoing = self._speaker.outgoing
        self._descriptor = descriptor
        self._splitter = LineSplitter(descriptor.supervision.limits.line_bytes)
        self._listening = Listening(self._speaker)
        self._introduction = Introduction(
            descriptor, self._speaker, memory, client, self._listening
        )
        self._calls = Calls(self._speaker)
        self._inquiries: set[RpcId] = set()
        """The ids of the server's requests that wait for an answer."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What the start waits for."""
        return self._introduction.waits

    @property
    def unfinished_line(self) -> str | None:
        """The beginning of what was printed without a newline, if anything was."""
        return excerpt(self._splitter.pending) if self._splitter.pending else None

    # What the host wants.

    def start(self) -> Events:
        """Greet it."""
        received: list[Received] = []
        self._introduction.begin(received)
        return received

    def ask(self, request: Request) -> Events:
        """Queue a request; a `describe`, and what MCP does not allow, is answered at once."""
        if request.request_id in self._calls or request.request_id in self._listening:
            raise LocalError(f"request {request.request_id} is open already")
        catalogue = self._introduction.catalogue
        method, params = CALL, {"name": request.op, "arguments": request.args}
        if request.operation is Operation.DESCRIBE:
            if catalogue is None:
                raise LocalError("nothing is known of the server yet")
            return _answer_at_once(request, Success(catalogue.description(self._descriptor)))
        if request.operation is Operation.HEALTH:
            # 2026-07-28 has no ping.
            method, params = (DISCOVER if self._speaker.is_modern else PING), {}
        elif catalogue is not None and (op := catalogue.op_of_server(request.op)) is not None:
            if not ACCEPTED[request.op](request.args):
                words = f"the args of {request.op} are not what MCP has it take, or too many"
                return _answer_at_once(request, Failure.because(Reason.INVALID_ARGS, words))
            method, params = op.method, request.args
            if request.op in (SUBSCRIBE, UNSUBSCRIBE) and self._speaker.is_modern:
                received: list[Received] = []
                self._listening.ask(request, received)
                return received
        self._calls.ask(request, method, params)
        return NOTHING

    def cancel(self, request_id: str, written: Written) -> Events:
        """Forget a request, and tell the server."""
        self._listening.forget(request_id)
        self._calls.cancel(request_id, written)
        return NOTHING

    def flow(self, request_id: str, operation: Flow) -> Events:
        """Do nothing: MCP has no word for it."""
        del request_id, operation
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Answer what the server asked: by a line, or by the next round of its request."""
        if chunk is not None and not chunk.is_last:
            return NOTHING
        received: list[Received] = []
        if self._speaker.is_modern:
            self._calls.answer(asked, outcome, received)
        else:
            rpc_id: RpcId = msgspec.json.decode(asked.call.call_id)
            self._inquiries.discard(rpc_id)
            self._speaker.answer(rpc_id, client_result(asked.call, outcome))
        return received

    # What the process does.

    def receive_data(self, data: bytes) -> Events:
        """Take bytes from stdout."""
        if self._splitter.pending_bytes + len(data) > LONG_BYTES:
            with collector_paused():
                return self._receive_data(data)
        return self._receive_data(data)

    def _receive_data(self, data: bytes) -> Events:
        received: list[Received] = []
        for line in self._splitter.feed(data):
            if isinstance(line, bytes):
                self._receive_line(line, received)
            else:
                self._lose(overlong_fault(line), received)
        return received

    def receive_eof(self) -> Events:
        """Accept a last line without a newline if it is a whole object (docs/protocol.md)."""
        line = self._splitter.finish()
        received: list[Received] = []
        if isinstance(line, bytes) and isinstance(read_object(line), Fault):
            words = "the output ends in the middle of a line"
            fault = Fault(Reason.TRUNCATED_LINE, words, excerpt(line))
            only = self._calls.only
            # Not an answer yet: how the process ended may say more (policy.verdict).
            received.append(Quarantined(fault) if only is None else Violated(only, fault))
        elif isinstance(line, bytes):
            self._receive_line(line, received)
        elif line is not None:
            self._lose(overlong_fault(line), received)
        return received

    def process_exited(self, code: int | None) -> Events:
        """Leave all requests unanswered that are still open."""
        del code
        self._inquiries.clear()
        left: list[Received] = [Unanswered(one) for one in self._calls.take_all()]
        left += self._listening.exited()
        again = self._introduction.exited()
        return left if again is None else [*left, again]

    def time_passed(self, wait: Wait) -> Events:
        """Have the start go on."""
        received: list[Received] = []
        self._introduction.time_passed(wait, received)
        return received

    def sent(self, line: bytes) -> Events:
        """Open the request that this line is, or do what else it did when it was written."""
        document = read_object(line)
        if isinstance(document, Fault):
            return NOTHING
        rpc_id, method = document.get("id"), document.get("method")
        params = document.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            self._calls.sent_cancel(params.get("requestId"))
        elif method is None and isinstance(rpc_id, str | int):
            self._inquiries.discard(rpc_id)
        if not isinstance(rpc_id, str) or not isinstance(method, str):
            return NOTHING
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if method == LISTEN:
            self._listening.sent(rpc_id)
        elif not isinstance(token, str):
            self._introduction.sent(rpc_id, method)
        elif token in self._calls:
            self._calls.sent_again(token, rpc_id)
        else:
            request = _request_of(token, method, params)
            self._calls.sent(request, method, params)
            self._calls.sent_again(token, rpc_id)
            return [Asked(request)]
        return NOTHING

    # What the server says.

    def _receive_line(self, line: bytes, received: list[Received]) -> None:
        match read_message(line):
            case RpcAnswer() as answer:
                self._receive_answer(answer, line, received)
            case RpcNotification() as notification:
                if not self._receive_notification(notification, len(line), received):
                    received.append(Stray(excerpt(line)))
            case RpcCall() as called:
                self._receive_call(called, line, received)
            case RpcMistake() as mistake:
                self._receive_mistake(mistake, received)

    def _receive_answer(self, answer: RpcAnswer, line: bytes, received: list[Received]) -> None:
        rpc_id = self._only_id() if answer.rpc_id is None else answer.rpc_id
        if isinstance(rpc_id, str) and self._introduction.takes(rpc_id):
            self._introduction.answered(rpc_id, answer.outcome, received)
        elif isinstance(rpc_id, str) and self._listening.takes(rpc_id):
            self._listening.answered(rpc_id, answer.outcome, received)
        elif (call := self._calls.of(rpc_id)) is not None:
            self._calls.answered(call, answer.outcome, len(line), received)
        else:
            received.append(Stray(excerpt(line)))

    def _receive_notification(
        self, notification: RpcNotification, size_bytes: int, received: list[Received]
    ) -> bool:
        """Take what the server tells; False if it is of nothing that is open."""
        method, params = notification.method, notification.params
        match method:
            case "notifications/message":
                self._receive_log(params, received)
            case "notifications/progress":
                return self._calls.receive_progress(params, received)
            case "notifications/resources/updated":
                uri = params.get("uri")
                if not isinstance(uri, str):
                    return False
                if self._speaker.is_modern and not self._listening.is_of(params):
                    return False
                received.append(ResourceUpdated(uri))
            case "notifications/subscriptions/acknowledged":
                return self._listening.acknowledged(params, received)
            case _ if method in CHANGED:
                return self._introduction.changed(method, params)
            case _:
                return self._pass_on(Notified(method, params, size_bytes), received)
        return True

    def _pass_on(self, told: Notified, received: list[Received]) -> bool:
        catalogue = self._introduction.catalogue
        if catalogue is None or not catalogue.extras or told.method in NOT_PASSED_ON:
            return True
        if told.size_bytes > NOTIFIED_BYTES or is_deeper(told.params, DEPTH):
            return False
        meta = told.params.get("_meta")
        if isinstance(meta, dict):
            meta.pop(f"{META}subscriptionId", None)  # it means nothing to others
        received.append(told)
        return True

    def _only_id(self) -> str | None:
        waiting = [*self._introduction.waiting, *self._calls.waiting]
        return waiting[0] if len(waiting) == 1 else None

    def _receive_log(self, params: dict[str, Any], received: list[Received]) -> None:
        data, logger = params.get("data"), params.get("logger")
        log = Log(
            version="0",
            level=_LEVELS.get(str(params.get("level")), "info"),  # type: ignore[arg-type]
            message=data if isinstance(data, str) else encode(data).decode(),
            fields={"logger": logger} if isinstance(logger, str) else msgspec.UNSET,
        )
        only = self._calls.only
        received.append(ModuleLog(log) if only is None else EventReceived(only, log))

    def _receive_call(self, called: RpcCall, line: bytes, received: list[Received]) -> None:
        rpc_id = called.rpc_id
        if rpc_id in self._inquiries or self._speaker.is_modern:
            # Answered twice, the first one could be taken for the answer to the second. A server of
            # the newer era must not ask, and its client must not answer (2026-07-28, stdio).
            received.append(Stray(excerpt(line)))
            return
        if called.method == PING:
            self._speaker.answer(rpc_id, Success({}))
            return
        call = host_call(encode(rpc_id).decode(), called.method, called.params)
        if len(self._inquiries) >= OPEN_INQUIRIES:
            words = f"{OPEN_INQUIRIES} requests wait for an answer already"
            call = Failure.because(Reason.LIMIT_REACHED, words)
        if isinstance(call, Failure):
            self._speaker.answer(rpc_id, call)
        else:
            self._inquiries.add(rpc_id)
            received.append(HostCalled(self._calls.only, call, len(line)))

    def _receive_mistake(self, mistake: RpcMistake, received: list[Received]) -> None:
        fault, rpc_id = mistake.fault, mistake.rpc_id
        call, only = self._calls.of(rpc_id), self._calls.only
        if call is not None:
            self._calls.fail(call.request.request_id, fault, received)
        elif isinstance(rpc_id, str) and self._introduction.takes(rpc_id):
            self._introduction.answered(rpc_id, RpcError(0, fault.message), received)
        elif self._descriptor.transport.stdout is StdoutPolicy.STRICT:
            received.append(Quarantined(fault))
            for request_id in self._calls.all:
                self._calls.fail(request_id, fault, received)
        else:
            received.append(Quarantined(fault) if only is None else Warned(only, Notice.of(fault)))

    def _lose(self, fault: Fault, received: list[Received]) -> None:
        """Take note of a line that could not be read, which most probably was an answer."""
        only = self._calls.only
        if only is None:
            received.append(Quarantined(fault))
        else:
            self._calls.fail(only, fault, received)


NOT_PASSED_ON = frozenset(
    f"notifications/{one}"
    for one in (
        *("cancelled", "elicitation/complete", "initialized"),
        *("roots/list_changed", "tasks/status"),
    )
)
"""The notifications that MCP defines, and that nothing is done about here."""

_OP_OF = {one.method: op for op, one in OPS.items()}

_LEVELS = {
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warning": "warn",
    "error": "error",
    "critical": "error",
    "alert": "error",
    "emergency": "error",
}
"""The levels of MCP, which are those of syslog, as those of Spec 001."""


def _answer_at_once(request: Request, outcome: Outcome) -> Events:
    return [Answered(request.request_id, outcome)]


def _request_of(request_id: str, method: str, params: dict[str, Any]) -> Request:
    """Return the request that a line was written for."""
    if method in (PING, DISCOVER):
        return Request(request_id, Operation.HEALTH)
    op, args = _OP_OF.get(method, method), params
    if method == CALL:
        given = params.get("arguments")
        op, args = str(params.get("name")), given if isinstance(given, dict) else {}
    return Request(request_id, Operation.INVOKE, op, args)
