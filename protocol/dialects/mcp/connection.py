"""Dialect `mcp`: one process of a server, from its start to its end.

How a line finds its request:

- an answer belongs to its id: a question of the connection's own (`start`), or a request
  (`calls`). An error without an id answers the only line that waits. Under an id that was never
  asked with, an answer fails the only line that waits, if it can be of no other (`_misnamed`); else
  it is a stray;
- progress is of the request whose token it has; a log is of the only request that is open, else of
  the process;
- a request of the server belongs to the only request that is open, else to the process. Its ids are
  its own and mean nothing among ours.

A line that is no message is read as the message that it clearly means, with a warning
(`odd_lines`); else it fails the request that it names. A line that is too long to be read fails the
only request that is open. All else is noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from protocol.connection import (
    LOOK_AGAIN,
    NOTHING,
    Answered,
    EventReceived,
    Events,
    HostCalled,
    LocalError,
    Logged,
    Memory,
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
from protocol.dialects.lines import LineConnection
from protocol.dialects.mcp.calls import Calls
from protocol.dialects.mcp.catalogue import ARGS, CALL, CHANGED
from protocol.dialects.mcp.inquiries import client_capabilities, client_result, host_call
from protocol.dialects.mcp.odd_lines import (
    BEFORE,
    FRAMED,
    SEVERAL,
    is_header,
    meant,
    notice_of,
    reread,
    shown_id,
)
from protocol.dialects.mcp.start import ServerStart, Subscriptions
from protocol.dialects.mcp.vocabulary import (
    BATCH,
    BATCHES,
    DISCOVER,
    META,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from protocol.dialects.mcp.writer import McpWriter
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.frames import DEPTH, encode
from protocol.framing import Written
from protocol.host_call import Chunk
from protocol.json_line import Fault, excerpt, read_object
from protocol.jsonrpc import (
    RpcAnswer,
    RpcCall,
    RpcError,
    RpcId,
    RpcMessage,
    RpcMistake,
    RpcNotification,
    meant_id,
    read_message,
)
from protocol.problem import literal
from protocol.replies import Operation
from protocol.weight import is_deeper

PING = "ping"

IDS = 8
"""Open requests named in words."""

PIECES_BYTES = 1 << 18
"""Per message over several lines."""

NOTIFIED_BYTES = 1 << 20
"""A longer notification of an extension is not passed on."""

OPEN_INQUIRIES = 1024
"""Requests of the server that wait for an answer; a further one is refused."""


class McpConnection(LineConnection):
    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        client = client_capabilities(descriptor)
        del new_id
        super().__init__(descriptor.supervision.limits.line_bytes)
        self._writer = McpWriter(client, self.outgoing)
        self._descriptor = descriptor
        self._is_strict = descriptor.transport.stdout is StdoutPolicy.STRICT
        self._subscriptions = Subscriptions(self._writer)
        self._start = ServerStart(descriptor, self._writer, memory, client, self._subscriptions)
        self._calls = Calls(self._writer)
        self._oddities: set[str] = set()
        """The warnings given so far; each is given once per process."""
        self._pieces = bytearray()
        """The lines so far of a message that is printed over several lines, from its `{` on."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        waits, left = self._start.waits, self._start.left
        return (*waits, *left) if left else waits

    # What the host wants.

    def start(self) -> Events:
        self._start.begin()
        return NOTHING

    def ask(self, request: Request) -> Events:
        """Queue a request; a `describe`, and what MCP does not allow, is answered at once."""
        if request.request_id in self._calls or request.request_id in self._subscriptions:
            raise LocalError(f"request {request.request_id} is open already")
        catalogue = self._start.catalogue
        method, params = CALL, {"name": request.op, "arguments": request.args}
        if request.operation is Operation.DESCRIBE:
            if catalogue is None:
                raise LocalError("nothing is known of the server yet")
            if request.op == LOOK_AGAIN:
                looked: list[Received] = []
                self._start.look_again(request, looked)
                return looked
            description = Success(catalogue.description(self._descriptor))
            return [Answered(request.request_id, description)]
        if request.operation is Operation.HEALTH:
            # 2026-07-28 has no ping.
            method, params = (DISCOVER if self._writer.is_modern else PING), {}
        elif catalogue is not None and (op := catalogue.op_of_server(request.op)) is not None:
            if ARGS.fault(request.op, request.args) is not None:
                words = f"the args of {request.op} are not what MCP has it take, or too many"
                return [Answered(request.request_id, Failure.because(Reason.INVALID_ARGS, words))]
            method, params = op.method, request.args
            if request.op in (SUBSCRIBE, UNSUBSCRIBE) and self._writer.is_modern:
                received: list[Received] = []
                self._subscriptions.ask(request, received)
                return received
        self._calls.ask(request, method, params)
        return NOTHING

    def cancel(self, request_id: str, written: Written) -> Events:
        self._subscriptions.forget(request_id)
        self._calls.cancel(request_id, written)
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Answer the server's question: by a line, or in the next round of its request."""
        if chunk is not None and not chunk.is_last:
            return NOTHING
        received: list[Received] = []
        if self._writer.is_modern:
            self._calls.answer(asked, outcome, received)
        else:
            rpc_id: RpcId = msgspec.json.decode(asked.call.call_id)
            self._writer.answer(rpc_id, client_result(asked.call, outcome))
        return received

    # What the process does.

    def _is_whole(self, line: bytes) -> bool:
        found = read_object(line)
        return not isinstance(found, Fault) or reread(line, found) is not None

    def _reject_cut_off(self, fault: Fault, received: list[Received]) -> None:
        only = self._calls.only
        # Not an answer yet: how the process ended may say more (policy.verdict).
        received.append(Quarantined(fault) if only is None else Violated(only, fault))

    def process_exited(self, code: int | None) -> Events:
        del code
        self._writer.inquiries.clear()
        left: list[Received] = [Unanswered(one) for one in self._calls.take_all()]
        left += self._subscriptions.exited()
        again = self._start.exited()
        return left if again is None else [*left, again]

    def time_passed(self, wait: Wait) -> Events:
        received: list[Received] = []
        self._start.time_passed(wait, received)
        return received

    # What the server says.

    def _receive_line(self, line: bytes, received: list[Received]) -> None:
        message = read_message(line)
        if isinstance(message, RpcMistake):
            self._receive_odd(line, message.fault, received)
        else:
            self._receive_message(message, line, received)

    def _receive_message(self, message: RpcMessage, line: bytes, received: list[Received]) -> None:
        match message:
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
        rpc_id = meant_id(answer.rpc_id)
        if rpc_id is None and isinstance(answer.outcome, RpcError):
            rpc_id = self._only_id()
        elif isinstance(answer.rpc_id, str) and isinstance(rpc_id, int) and self._is_open(rpc_id):
            self._warn_once(["its id is a string"], answer, received)
        if (call := self._calls.of(rpc_id)) is not None:
            self._calls.answered(call, answer.outcome, len(line), received)
            self._start.served()
        elif rpc_id is not None and self._start.takes(rpc_id):
            self._start.answered(rpc_id, answer.outcome, received)
        elif rpc_id is not None and self._subscriptions.takes(rpc_id):
            self._subscriptions.answered(rpc_id, answer.outcome, received)
        else:
            self._misnamed(answer, line, received)

    def _receive_notification(
        self, notification: RpcNotification, size_bytes: int, received: list[Received]
    ) -> bool:
        """Take a notification; False if it concerns nothing that is open."""
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
                if self._writer.is_modern and not self._subscriptions.is_of(params):
                    return False
                received.append(ResourceUpdated(uri))
            case "notifications/subscriptions/acknowledged":
                return self._subscriptions.acknowledged(params, received)
            case _ if method in CHANGED:
                return self._start.changed(method, params)
            case _:
                return self._pass_on(Notified(method, params, size_bytes), received)
        return True

    def _pass_on(self, told: Notified, received: list[Received]) -> bool:
        catalogue = self._start.catalogue
        if catalogue is None or not catalogue.extras or told.method in NOT_PASSED_ON:
            return True
        if told.size_bytes > NOTIFIED_BYTES or is_deeper(told.params, DEPTH):
            return False
        meta = told.params.get("_meta")
        if isinstance(meta, dict):
            meta.pop(f"{META}subscriptionId", None)  # it means nothing to others
        received.append(told)
        return True

    @property
    def _waiting(self) -> list[RpcId]:
        return [*self._start.waiting, *self._calls.waiting]

    def _only_id(self) -> RpcId | None:
        waiting = self._waiting
        return waiting[0] if len(waiting) == 1 else None

    def _is_open(self, rpc_id: RpcId | None) -> bool:
        return self._calls.of(rpc_id) is not None or any(
            one.takes(rpc_id) for one in (self._start, self._subscriptions)
        )

    def _receive_log(self, params: dict[str, Any], received: list[Received]) -> None:
        data, logger = params.get("data"), params.get("logger")
        log = Log(
            version="0",
            level=_LEVELS.get(str(params.get("level")), "info"),  # type: ignore[arg-type]
            message=data if isinstance(data, str) else encode(data).decode(),
            fields={"logger": logger} if isinstance(logger, str) else msgspec.UNSET,
        )
        only = self._calls.only
        received.append(Logged(log) if only is None else EventReceived(only, log))

    def _receive_call(self, called: RpcCall, line: bytes, received: list[Received]) -> None:
        rpc_id = called.rpc_id
        if rpc_id in self._writer.inquiries or self._writer.is_modern:
            # Answered twice, the first one could be taken for the answer to the second. A server of
            # the newer era must not ask, and its client must not answer (2026-07-28, stdio).
            received.append(Stray(excerpt(line)))
            return
        if called.method == PING:
            self._writer.answer(rpc_id, Success({}))
            return
        call = host_call(encode(rpc_id).decode(), called.method, called.params)
        if len(self._writer.inquiries) >= OPEN_INQUIRIES:
            words = f"{OPEN_INQUIRIES} requests wait for an answer already"
            call = Failure.because(Reason.LIMIT_REACHED, words)
        if isinstance(call, Failure):
            self._writer.answer(rpc_id, call)
        else:
            self._writer.add_inquiry(rpc_id)
            received.append(HostCalled(self._calls.only, call, len(line)))

    def _misnamed(self, answer: RpcAnswer, line: bytes, received: list[Received]) -> None:
        """Take an answer with an unknown id.

        Under an id that was used it may be late, or a second one. Another id means the only line
        that waits, unless the server may still answer a request that was given up.
        """
        waiting, rpc_id = self._waiting, meant_id(answer.rpc_id)
        was_asked = self._writer.was_given(rpc_id)
        if not waiting or (was_asked and self._calls.gave_up):
            received.append(Stray(excerpt(line)))
            return
        shown = answer.shown_id or f"id {literal(answer.rpc_id)}"
        ids = ", ".join(map(str, waiting[:IDS]))
        open_ = f"request has id {ids}" if len(waiting) == 1 else f"open requests have ids {ids}"
        clause = f"answered {shown}; the {open_}"
        fault = Fault(Reason.INVALID_EVENT, f"the server {clause}", excerpt(line))
        start, outcome = self._start, answer.outcome
        greets = isinstance(outcome, dict) and (not was_asked or "protocolVersion" in outcome)
        may_be_of_listening = self._subscriptions.is_open and not (
            isinstance(outcome, dict) and "content" in outcome
        )
        if start.is_negotiating and greets:
            start.fail(clause, received)
        elif len(waiting) > 1 or was_asked or self._calls.gave_up or may_be_of_listening:
            received.append(Stray(fault.excerpt, shown, fault.message))
        elif start.takes(waiting[0]):
            told = outcome if start.is_negotiating else fault
            start.answered(waiting[0], told, received)
        else:
            self._receive_mistake(RpcMistake(fault, waiting[0]), received)

    def _receive_odd(self, line: bytes, fault: Fault, received: list[Received]) -> None:
        if self._pieces and not line.startswith(b"{"):
            self._collect(line, received)
            return
        self._pieces = bytearray(line if line.strip() == b"{" else b"")
        found = reread(line, fault)
        if found is None:
            self._receive_unreadable(line, fault, received)
            return
        value, repairs = found
        if not isinstance(value, list):
            self._receive_document(value, fault, repairs, line, received)
        elif not value:
            words = "the line is an empty batch, which is no message"
            self._receive_mistake(RpcMistake(replace(fault, message=words)), received)
        elif len(value) > BATCH:
            words = f"the line is a batch of more than {BATCH} messages; send them in several lines"
            self._reject(replace(fault, message=words), received)
        else:
            agreed = self._writer.agreed
            has_batches = agreed is not None and agreed.revision == BATCHES
            odd = [] if has_batches or SEVERAL in repairs else ["it is part of a batch"]
            for one in value:
                self._receive_document(one, fault, repairs, line, received, odd=odd)

    def _receive_document(
        self,
        document: Any,
        fault: Fault,
        repairs: list[str],
        line: bytes,
        received: list[Received],
        *,
        odd: Sequence[str] = (),
    ) -> None:
        """Take the document of an odd line, unless the line is a log record."""
        message, odder = meant(document, line) if isinstance(document, dict) else (None, [])
        odd = [*odd, *odder]
        named = message.rpc_id if isinstance(message, RpcAnswer | RpcMistake) else None
        is_clear = isinstance(document, dict) and "jsonrpc" in document and BEFORE not in repairs
        is_clear = is_clear or self._is_open(meant_id(named))
        if message is None or not (is_clear or isinstance(message, RpcNotification)):
            message = RpcMistake(fault)
        elif self._is_strict and (repairs or odd):
            message = RpcMistake(fault, named)
        elif not isinstance(message, RpcMistake):
            if repairs:
                self._warn(notice_of(fault, repairs), message, received)
            self._warn_once(odd, message, received)
        self._receive_message(message, line, received)

    def _receive_unreadable(self, line: bytes, fault: Fault, received: list[Received]) -> None:
        if not is_header(line):
            self._receive_mistake(RpcMistake(fault, shown_id(line)), received)
        elif not self._start.is_ready:
            self._start.fail(FRAMED, received)
        else:
            fault = replace(fault, message=f"the server {FRAMED}")
            self._receive_mistake(RpcMistake(fault, self._only_id()), received)

    def _collect(self, line: bytes, received: list[Received]) -> None:
        """Take a further line of a message that is printed over several lines."""
        self._pieces += b"\n" + line
        if line.rstrip() == b"}":
            whole, self._pieces = bytes(self._pieces), bytearray()
            self._receive_line(whole, received)
        elif len(self._pieces) > PIECES_BYTES:
            self._pieces = bytearray()

    def _warn_once(self, odd: list[str], message: RpcMessage, received: list[Received]) -> None:
        new = [one for one in odd if one not in self._oddities]
        self._oddities.update(new)
        if new:
            words = f"a message of the server is odd: {', '.join(new)}; it was taken all the same"
            self._warn(Notice("odd_message", words), message, received)

    def _warn(self, notice: Notice, message: RpcMessage, received: list[Received]) -> None:
        named = None
        if isinstance(message, RpcAnswer):
            named = message.rpc_id
        elif isinstance(message, RpcNotification):
            named = message.params.get("progressToken")
        call = self._calls.of(meant_id(named))
        if call is not None:
            received.append(Warned(call.request.request_id, notice))
        else:
            received.append(Logged(Log(version="0", level="warn", message=notice.words)))

    def _receive_mistake(self, mistake: RpcMistake, received: list[Received]) -> None:
        fault, rpc_id = mistake.fault, meant_id(mistake.rpc_id)
        call, only = self._calls.of(rpc_id), self._calls.only
        if call is not None:
            self._calls.fail(call.request.request_id, fault, received)
        elif rpc_id is not None and self._start.takes(rpc_id):
            self._start.answered(rpc_id, fault, received)
        elif rpc_id is not None and self._subscriptions.takes(rpc_id):
            self._subscriptions.answered(rpc_id, RpcError(0, fault.message), received)
        elif self._is_strict:
            received.append(Quarantined(fault))
            for request_id in self._calls.all:
                self._calls.fail(request_id, fault, received)
        else:
            received.append(Quarantined(fault) if only is None else Warned(only, Notice.of(fault)))

    def _reject(self, fault: Fault, received: list[Received]) -> None:
        """Take a line that could not be read, which most probably was an answer."""
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
"""The notifications that MCP defines and that have no effect here."""

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
