"""Dialect `mcp`: one process of a server, from its start to its end.

How a line finds its request:

- an answer belongs to the owner of its id (`requests`). An error without an id answers the only
  line that waits. Under an id that was never asked with, an answer fails the only line that waits,
  if it can be of no other (`_misnamed`); else it is a stray;
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
    Request,
    ResourceUpdated,
    Stray,
    Violated,
    Wait,
    Warned,
)
from protocol.descriptor.model import Descriptor, StdoutPolicy
from protocol.dialects.lines import LineConnection
from protocol.dialects.mcp.calls import Calls
from protocol.dialects.mcp.catalogue import ARGS, CALL, CHANGED
from protocol.dialects.mcp.lists import ServerLists, Subscriptions
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
from protocol.dialects.mcp.requests import (
    Agreed,
    McpRequests,
    OpenCall,
    OwnQuestion,
    client_capabilities,
    client_result,
    host_call,
)
from protocol.dialects.mcp.start import Negotiation
from protocol.dialects.mcp.vocabulary import BATCH, BATCHES, DISCOVER, META, SUBSCRIBE, UNSUBSCRIBE
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
    RpcReply,
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
        del new_id
        super().__init__(descriptor.supervision.limits.line_bytes)
        self._descriptor = descriptor
        self._is_strict = descriptor.transport.stdout is StdoutPolicy.STRICT
        self._requests = McpRequests(client_capabilities(descriptor), self.outgoing)
        self._start = Negotiation(descriptor, self._requests, memory, self._events, self._agree)
        self._lists: ServerLists | None = None
        """The lists of a server with which a revision is agreed."""
        self._subscriptions = Subscriptions(self._requests, self._events)
        self._calls = Calls(self._requests, self._events)
        self._oddities: set[str] = set()
        """The warnings given so far; each is given once per process."""
        self._pieces = bytearray()
        """The lines so far of a message that is printed over several lines, from its `{` on."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        return self._start.waits if self._lists is None else self._lists.waits

    # What the host wants.

    def start(self) -> Events:
        self._start.begin()
        return NOTHING

    def _agree(self, agreed: Agreed) -> None:
        self._lists = ServerLists(
            self._descriptor, agreed, self._requests, self._subscriptions, self._events
        )
        self._lists.begin()

    def ask(self, request: Request) -> Events:
        """Queue a request; a `describe`, and what MCP does not allow, is answered at once."""
        if request.request_id in self._calls or request.request_id in self._subscriptions:
            raise LocalError(f"request {request.request_id} is open already")
        lists, is_modern = self._lists, self._requests.is_modern
        if request.operation is Operation.DESCRIBE:
            if lists is None:
                raise LocalError("nothing is known of the server yet")
            if request.op == LOOK_AGAIN:
                lists.look_again(request)
            else:
                self._events.append(Answered(request.request_id, Success(lists.description())))
        elif request.operation is Operation.HEALTH:
            # 2026-07-28 has no ping.
            self._calls.ask(request, DISCOVER if is_modern else PING, {})
        elif lists is None or (op := lists.op_of_server(request.op)) is None:
            self._calls.ask(request, CALL, {"name": request.op, "arguments": request.args})
        elif ARGS.fault(request.op, request.args) is not None:
            words = f"the args of {request.op} are not what MCP has it take, or too many"
            failure = Failure.because(Reason.INVALID_ARGS, words)
            self._events.append(Answered(request.request_id, failure))
        elif is_modern and request.op in (SUBSCRIBE, UNSUBSCRIBE):
            self._subscriptions.ask(request)
        else:
            self._calls.ask(request, op.method, request.args)
        return self._take_events()

    def cancel(self, request_id: str, written: Written) -> Events:
        self._subscriptions.cancel(request_id)
        self._calls.cancel(request_id, written)
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Answer the server's question: by a line, or in the next round of its request."""
        if chunk is not None and not chunk.is_last:
            return NOTHING
        if self._requests.is_modern:
            self._calls.answer(asked, outcome)
        else:
            rpc_id: RpcId = msgspec.json.decode(asked.call.call_id)
            self._requests.answer(rpc_id, client_result(asked.call, outcome))
        return self._take_events()

    # What the process does.

    def _is_whole(self, line: bytes) -> bool:
        found = read_object(line)
        return not isinstance(found, Fault) or reread(line, found) is not None

    def _reject_cut_off(self, fault: Fault) -> None:
        only = self._calls.only
        # Not an answer yet: how the process ended may say more (policy.verdict).
        self._events.append(Quarantined(fault) if only is None else Violated(only, fault))

    def process_exited(self, code: int | None) -> Events:
        del code
        self._calls.exited()
        self._subscriptions.exited()
        again = self._start.exited()
        if again is not None:
            self._events.append(again)
        if self._lists is not None:
            self._lists.exited()
        self._requests.open.clear()
        self._requests.unanswered.clear()
        return self._take_events()

    def time_passed(self, wait: Wait) -> Events:
        if self._lists is None:
            self._start.go_on(wait)
        else:
            self._lists.time_passed(wait)
        return self._take_events()

    # What the server says.

    def _receive_line(self, line: bytes) -> None:
        message = read_message(line)
        if isinstance(message, RpcMistake):
            self._receive_odd(line, message.fault)
        else:
            self._receive_message(message, line)

    def _receive_message(self, message: RpcMessage, line: bytes) -> None:
        match message:
            case RpcAnswer():
                self._receive_answer(message, line)
            case RpcNotification():
                if not self._receive_notification(message, len(line)):
                    self._events.append(Stray(excerpt(line)))
            case RpcCall():
                self._receive_call(message, line)
            case RpcMistake():
                self._receive_mistake(message.fault, meant_id(message.rpc_id))

    def _receive_answer(self, answer: RpcAnswer, line: bytes) -> None:
        rpc_id = meant_id(answer.rpc_id)
        if rpc_id is None and isinstance(answer.outcome, RpcError):
            rpc_id = self._only_id()
        owner = self._requests.owner(rpc_id)
        if owner is None:
            self._misnamed(answer, line)
            return
        if isinstance(answer.rpc_id, str) and isinstance(rpc_id, int):
            self._warn_once(["its id is a string"], answer)
        self._answer(owner, answer.outcome, len(line))

    def _answer(self, owner: OpenCall | OwnQuestion, reply: RpcReply, size_bytes: int) -> None:
        """Pass on an answer, or the bad line that stands in its place."""
        if isinstance(owner, OpenCall):
            self._calls.answered(owner, reply, size_bytes)
            if self._lists is not None and type(reply) is not Fault:
                self._lists.served()
        else:
            self._requests.close(owner.rpc_id)
            owner.then(owner, reply)

    def _receive_notification(self, notification: RpcNotification, size_bytes: int) -> bool:
        """Take a notification; False if it concerns nothing that is open."""
        method, params = notification.method, notification.params
        match method:
            case "notifications/message":
                self._receive_log(params)
            case "notifications/progress":
                return self._calls.receive_progress(params)
            case "notifications/resources/updated":
                uri = params.get("uri")
                if not isinstance(uri, str):
                    return False
                if self._requests.is_modern and not self._subscriptions.is_of(params):
                    return False
                self._events.append(ResourceUpdated(uri))
            case "notifications/subscriptions/acknowledged":
                return self._subscriptions.acknowledged(params)
            case _ if method in CHANGED:
                return self._lists is not None and self._lists.changed(method, params)
            case _:
                return self._pass_on(Notified(method, params, size_bytes))
        return True

    def _pass_on(self, told: Notified) -> bool:
        if self._lists is None or not self._lists.extras or told.method in NOT_PASSED_ON:
            return True
        if told.size_bytes > NOTIFIED_BYTES or is_deeper(told.params, DEPTH):
            return False
        meta = told.params.get("_meta")
        if isinstance(meta, dict):
            meta.pop(f"{META}subscriptionId", None)  # it means nothing to others
        self._events.append(told)
        return True

    def _only_id(self) -> RpcId | None:
        waiting = self._requests.waiting
        return waiting[0] if len(waiting) == 1 else None

    def _receive_log(self, params: dict[str, Any]) -> None:
        data, logger = params.get("data"), params.get("logger")
        log = Log(
            version="0",
            level=_LEVELS.get(str(params.get("level")), "info"),  # type: ignore[arg-type]
            message=data if isinstance(data, str) else encode(data).decode(),
            fields={"logger": logger} if isinstance(logger, str) else msgspec.UNSET,
        )
        only = self._calls.only
        self._events.append(Logged(log) if only is None else EventReceived(only, log))

    def _receive_call(self, called: RpcCall, line: bytes) -> None:
        rpc_id, unanswered = called.rpc_id, self._requests.unanswered
        if rpc_id in unanswered or self._requests.is_modern:
            # Answered twice, the first one could be taken for the answer to the second. A server of
            # the newer era must not ask, and its client must not answer (2026-07-28, stdio).
            self._events.append(Stray(excerpt(line)))
            return
        if called.method == PING:
            self._requests.answer(rpc_id, Success({}))
            return
        call = host_call(encode(rpc_id).decode(), called.method, called.params)
        if len(unanswered) >= OPEN_INQUIRIES:
            words = f"{OPEN_INQUIRIES} requests wait for an answer already"
            call = Failure.because(Reason.LIMIT_REACHED, words)
        if isinstance(call, Failure):
            self._requests.answer(rpc_id, call)
        else:
            unanswered.add(rpc_id)
            self._events.append(HostCalled(self._calls.only, call, len(line)))

    def _misnamed(self, answer: RpcAnswer, line: bytes) -> None:
        """Take an answer with an unknown id.

        Under an id that was used it may be late, or a second one. Another id means the only line
        that waits, unless the server may still answer a request that was given up.
        """
        waiting, outcome = self._requests.waiting, answer.outcome
        was_asked = self._requests.was_given(meant_id(answer.rpc_id))
        if not waiting or (was_asked and self._calls.gave_up):
            self._events.append(Stray(excerpt(line)))
            return
        shown = answer.shown_id or f"id {literal(answer.rpc_id)}"
        ids = ", ".join(map(str, waiting[:IDS]))
        open_ = f"request has id {ids}" if len(waiting) == 1 else f"open requests have ids {ids}"
        clause = f"answered {shown}; the {open_}"
        fault = Fault(Reason.INVALID_EVENT, f"the server {clause}", excerpt(line))
        greets = isinstance(outcome, dict) and (not was_asked or "protocolVersion" in outcome)
        may_be_of_listening = self._subscriptions.is_open and not (
            isinstance(outcome, dict) and "content" in outcome
        )
        if self._start.is_open and greets:
            self._start.fail(clause)
        elif len(waiting) > 1 or was_asked or self._calls.gave_up or may_be_of_listening:
            self._events.append(Stray(fault.excerpt, shown, fault.message))
        else:
            owner = self._requests.open[waiting[0]]
            self._answer(owner, outcome if self._start.is_open else fault, len(line))

    def _receive_odd(self, line: bytes, fault: Fault) -> None:
        if self._pieces and not line.startswith(b"{"):
            self._collect(line)
            return
        self._pieces = bytearray(line if line.strip() == b"{" else b"")
        found = reread(line, fault)
        if found is None:
            self._receive_unreadable(line, fault)
            return
        value, repairs = found
        if not isinstance(value, list):
            self._receive_document(value, fault, repairs, line)
        elif not value:
            words = "the line is an empty batch, which is no message"
            self._receive_mistake(replace(fault, message=words))
        elif len(value) > BATCH:
            words = f"the line is a batch of more than {BATCH} messages; send them in several lines"
            self._reject(replace(fault, message=words))
        else:
            agreed = self._requests.agreed
            has_batches = agreed is not None and agreed.revision == BATCHES
            odd = [] if has_batches or SEVERAL in repairs else ["it is part of a batch"]
            for one in value:
                self._receive_document(one, fault, repairs, line, odd)

    def _receive_document(
        self,
        document: Any,
        fault: Fault,
        repairs: list[str],
        line: bytes,
        odd: Sequence[str] = (),
    ) -> None:
        """Take the document of an odd line, unless the line is a log record."""
        message, odder = meant(document, line) if isinstance(document, dict) else (None, [])
        odd = [*odd, *odder]
        named = message.rpc_id if isinstance(message, RpcAnswer | RpcMistake) else None
        is_clear = isinstance(document, dict) and "jsonrpc" in document and BEFORE not in repairs
        is_clear = is_clear or self._requests.owner(meant_id(named)) is not None
        if message is None or not (is_clear or isinstance(message, RpcNotification)):
            message = RpcMistake(fault)
        elif self._is_strict and (repairs or odd):
            message = RpcMistake(fault, named)
        elif not isinstance(message, RpcMistake):
            if repairs:
                self._warn(notice_of(fault, repairs), message)
            self._warn_once(odd, message)
        self._receive_message(message, line)

    def _receive_unreadable(self, line: bytes, fault: Fault) -> None:
        if not is_header(line):
            self._receive_mistake(fault, shown_id(line))
        elif self._lists is not None and self._lists.is_ready:
            fault = replace(fault, message=f"the server {FRAMED}")
            self._receive_mistake(fault, self._only_id())
        elif self._lists is not None:
            self._lists.fail(FRAMED)
        else:
            self._start.fail(FRAMED)

    def _collect(self, line: bytes) -> None:
        """Take a further line of a message that is printed over several lines."""
        self._pieces += b"\n" + line
        if line.rstrip() == b"}":
            whole, self._pieces = bytes(self._pieces), bytearray()
            self._receive_line(whole)
        elif len(self._pieces) > PIECES_BYTES:
            self._pieces = bytearray()

    def _warn_once(self, odd: list[str], message: RpcMessage) -> None:
        new = [one for one in odd if one not in self._oddities]
        self._oddities.update(new)
        if new:
            words = f"a message of the server is odd: {', '.join(new)}; it was taken all the same"
            self._warn(Notice("odd_message", words), message)

    def _warn(self, notice: Notice, message: RpcMessage) -> None:
        named = None
        if isinstance(message, RpcAnswer):
            named = message.rpc_id
        elif isinstance(message, RpcNotification):
            named = message.params.get("progressToken")
        owner = self._requests.owner(meant_id(named))
        if isinstance(owner, OpenCall):
            self._events.append(Warned(owner.request.request_id, notice))
        else:
            self._events.append(Logged(Log(version="0", level="warn", message=notice.words)))

    def _receive_mistake(self, fault: Fault, rpc_id: RpcId | None = None) -> None:
        """Take a line that is no message, in the place of the answer whose id it shows."""
        owner, only = self._requests.owner(rpc_id), self._calls.only
        if owner is not None:
            self._answer(owner, fault, 0)
        elif self._is_strict:
            self._events.append(Quarantined(fault))
            self._calls.fail_all(fault)
        elif only is not None:
            self._events.append(Warned(only, Notice.of(fault)))
        else:
            self._events.append(Quarantined(fault))

    def _reject(self, fault: Fault) -> None:
        """Take a line that could not be read, which most probably was an answer."""
        if self._calls.only is None:
            self._events.append(Quarantined(fault))
        else:
            self._calls.fail_all(fault)


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
