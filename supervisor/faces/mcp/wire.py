"""MCP on lines: what each line of a client means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RpcAnswer,
    RpcCall,
    RpcError,
    RpcId,
    RpcMistake,
    RpcNotification,
    read_message,
)
from protocol.errors import Reason
from protocol.frames import DEPTH
from protocol.host_call import UNENCODABLE
from protocol.json_line import Fault
from protocol.mcp_server import lines
from protocol.mcp_server.client import says_modern
from protocol.problem import described
from protocol.weight import LONG_BYTES, collector_paused, is_deeper
from supervisor.faces.mcp.questions import Questions, ask_client
from supervisor.faces.mcp.server import McpServer
from supervisor.faces.mcp.session import (
    CANCELLED,
    Listening,
    McpSession,
    Serving,
    Whose,
    serve_modern,
)
from supervisor.faces.module_wire import LITTLE_BYTES, OPEN_REQUESTS
from supervisor.faces.outbox import Outbox
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Party
from supervisor.policy.mcp_views import View
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ARGS
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion


class McpWire:
    """The requests of one client, of either era."""

    URGENT = (CANCELLED.encode(),)

    def __init__(
        self,
        daemon: Kernel,
        party: Party,
        outbox: Outbox,
        ended: Callable[[], None],
        serve_next: Callable[[list[bytes]], None],
    ) -> None:
        """Call `ended` for each answered request.

        `serve_next` serves the messages of a batch like lines, each answered by itself.
        """
        self._whose = Whose(McpServer.of(daemon), party, party.view or View())
        self._outbox = outbox
        self._ended = ended
        self._serve_next = serve_next
        self._open: dict[RpcId, _Told] = {}
        self._asked: Questions = {}
        self._session = McpSession(self._whose, self._tell, self._congested)

    @property
    def all_answered(self) -> bool:
        """Whether none is open but subscriptions, which end with the connection."""
        return all(isinstance(one.serving, Listening) for one in self._open.values())

    def serve(self, line: bytes) -> None:
        if lines.is_array(line):
            batch = lines.split_batch(line, self._session.client)
            if isinstance(batch, RpcError):
                self._answer(None, batch)
            else:
                self._serve_next(batch)
            return
        if len(line) > LONG_BYTES:
            with collector_paused():
                message = read_message(line)
        else:
            message = read_message(line)
        match message:
            case RpcCall():
                self._begin(message, line)
            case RpcNotification(method=method, params=params):
                if method == CANCELLED:
                    self._cancel(params)
                else:
                    self._session.notified(method)
            case RpcAnswer(rpc_id=rpc_id, outcome=outcome):
                answered = self._asked.pop(str(rpc_id), None)
                if answered is not None:
                    answered(outcome)
            case RpcMistake():
                self._answer(message.rpc_id, lines.mistake(message))

    def refuse(self, fault: Fault) -> None:
        self._answer(None, lines.mistake(RpcMistake(fault)))

    def cancels_open(self, line: bytes) -> bool:
        """Cancel the open request that a line names, if the line is a cancel."""
        message = read_message(line)
        if not isinstance(message, RpcNotification) or message.method != CANCELLED:
            return False
        return self._cancel(message.params)

    def cancelling(self, stopped: Stopped) -> Iterator[None]:
        """Cancel the client's open requests, one with each step."""
        for told in tuple(self._open.values()):
            if told.serving is not None:
                told.serving.cancel(stopped)
            yield

    def close(self) -> None:
        self._session.close()

    def resume(self) -> None:
        self._session.resume()
        for told in tuple(self._open.values()):
            if told.serving is not None:
                told.serving.resume()

    def _begin(self, call: RpcCall, line: bytes) -> None:
        refusal = self._refusal(call, line)
        if refusal is not None:
            # Under its own id it would be taken for the answer to the one that is open.
            self._answer(None if call.rpc_id in self._open else call.rpc_id, refusal)
            return
        size = len(line) if len(line) > LITTLE_BYTES else 0
        told = self._open[call.rpc_id] = _Told(
            call.rpc_id, self._outbox, size, self._over, self._asked
        )
        if size:
            self._outbox.account.add(ARGS, size)
        asked = (call.rpc_id, call.method, call.params, told)
        if says_modern(call.method, call.params):
            told.serving = serve_modern(self._whose, *asked)
        else:
            told.serving = self._session.serve(*asked)

    def _refusal(self, call: RpcCall, line: bytes) -> RpcError | None:
        if call.rpc_id in self._open:
            words = f"a request {described(call.rpc_id)} is open already; wait for its answer"
            return RpcError(INVALID_REQUEST, words)
        if len(self._open) >= OPEN_REQUESTS:
            return RpcError(INTERNAL_ERROR, f"{OPEN_REQUESTS} requests are open, wait for some")
        if len(line) > LITTLE_BYTES and not self._outbox.account.fits(len(line)):
            all_bytes = self._outbox.account.bounds.all
            words = f"{all_bytes} bytes are what the daemon holds for all clients, and this request"
            return RpcError(INTERNAL_ERROR, f"{words} finds no room; try again later")
        if is_deeper(call.params, DEPTH, line):
            words = f"the request is nested more than {DEPTH} levels deep"
            return RpcError(INVALID_REQUEST, words)
        return None

    def _cancel(self, params: Mapping[str, Any]) -> bool:
        rpc_id = params.get("requestId")
        told = self._open.get(rpc_id) if isinstance(rpc_id, str | int) else None
        if told is None:
            return False
        told.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))
        return True

    def _over(self, told: _Told) -> None:
        if self._open.get(told.rpc_id) is told:
            del self._open[told.rpc_id]
        if told.size_bytes:
            self._outbox.account.add(ARGS, -told.size_bytes)
        elif not self.all_answered:
            return
        self._ended()

    def _answer(self, rpc_id: RpcId | None, outcome: Mapping[str, Any] | RpcError) -> None:
        self._outbox.put(lines.answer(rpc_id, outcome) + b"\n")

    def _congested(self) -> Congestion:
        return Congestion.SLOW if self._outbox.congested else Congestion.NONE

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        self._outbox.put(lines.message({"method": method, "params": params}) + b"\n")


class _Told:
    """A request whose client is told by lines (faces.mcp.call.Channel)."""

    __slots__ = (
        "_asked",
        "_cancelled",
        "_outbox",
        "_over",
        "_unread_bytes",
        "rpc_id",
        "serving",
        "size_bytes",
    )

    def __init__(
        self,
        rpc_id: RpcId,
        outbox: Outbox,
        size_bytes: int,
        over: Callable[[_Told], None],
        asked: Questions,
    ) -> None:
        self.rpc_id = rpc_id
        self.size_bytes = size_bytes
        self.serving: Serving | None = None
        self._outbox = outbox
        self._over = over
        self._asked = asked
        self._cancelled = False
        self._unread_bytes = 0

    @property
    def most_bytes(self) -> None:
        """A line has any length."""

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Write a notification, if it can be encoded."""
        try:
            line = lines.message({"method": method, "params": params}) + b"\n"
        except UNENCODABLE:
            return
        self._outbox.put(line)
        if self._outbox.congested:
            self._unread_bytes += len(line)

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Write the answer, unless the client has cancelled the request."""
        self.serving = None
        if not self._cancelled:
            line = lines.answer(self.rpc_id, outcome) + b"\n"
            outbox = self._outbox
            large = outbox.congested or len(line) > outbox.account.free_bytes
            if large and not outbox.account.takes_answer(len(line)):
                words = f"an answer of {len(line)} bytes was dropped: too much is not read yet"
                line = lines.answer(self.rpc_id, RpcError(INTERNAL_ERROR, words)) + b"\n"
            outbox.put(line)
        self._over(self)

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        return ask_client(self._asked, method, params, answered, self._outbox.put)

    def cancel(self, stopped: Stopped) -> None:
        self._cancelled = True
        if self.serving is not None:
            self.serving.cancel(stopped)

    def congested(self) -> Congestion:
        if not self._outbox.congested:
            self._unread_bytes = 0
            return Congestion.NONE
        unread = min(self._unread_bytes, self._outbox.waiting_bytes)
        return Congestion.FULL if unread > OVERRUN_BYTES else Congestion.SLOW
