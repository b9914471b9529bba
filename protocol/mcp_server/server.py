"""An MCP server without I/O, of both eras: between an MCP client and the daemon's control socket.

The host feeds it (`receive_message`, `client_left`, `connect`, `receive_event`), tells it the time
(`time_passed`: after that, and at `deadline` at the latest), and takes what is to be written:
`messages_to_send` for the client, and for the daemon what the connection has that it was given.

    older era   initialize -> initialized -> all lists that change, unasked; and resources that were
                subscribed to
    newer era   each request stands alone; subscriptions/listen -> acknowledged -> the lists in its
                filter, until it is cancelled

`exchange` is the host's own name for what a message came by: None on lines; over HTTP the POST,
which gets exactly one message that is its last. A client that hangs up has cancelled its exchange
in the newer era (`client_left`), and may come back for it in the older one.

The session outlives connections to the daemon: `daemon_link` has the rules for requests, `offered`
those for lists. Each method is one function in `methods`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, cast

import msgspec

from protocol.client import ConnectionEnd, LineRefusal, SocketClient, StreamEvent
from protocol.dialects.mcp.vocabulary import INITIALIZE, LEGACY, LISTEN, MODERN
from protocol.frames import DEPTH
from protocol.framing import Overlong
from protocol.json_line import overlong_fault
from protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcAnswer,
    RpcCall,
    RpcError,
    RpcId,
    RpcMessage,
    RpcMistake,
    RpcNotification,
    answer_line,
    message_line,
    mistake,
    read_message,
)
from protocol.mcp_server.client import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    VERSION,
    McpClient,
    McpRequestError,
    check_headers,
    client_of,
    is_array,
    is_modern,
    refused,
    split_batch,
)
from protocol.mcp_server.daemon_link import DaemonLink
from protocol.mcp_server.methods import METHODS, FollowedResource
from protocol.mcp_server.offered import ListWatch, Offered
from protocol.mcp_server.request import ClientRequest
from protocol.mcp_server.results import RESULT_SCHEME
from protocol.mcp_server.table import KnownLists
from protocol.mcp_server.tasks import CancelledError, Task, Tasks, TimerHandle
from protocol.problem import described, quoted
from protocol.weight import LONG_BYTES, collector_paused, is_deeper

CANCELLED = "notifications/cancelled"

OPEN_REQUESTS = 8192
"""Of one client, at a time."""

PARKED_S = 600.0
"""How long a request waits for its client to come back; its own deadline may be sooner."""

PARKED = 1024
"""The number of waiting requests; a further one ends the oldest."""

KEPT_S = 600.0
"""How long the result that a link stands for can be read."""

KEPT_BYTES = 16 << 20
"""Of one server, and the newest result whole: that is at most as long as a line of a module."""

STATUS = {
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""Of errors over HTTP, in the newer era; in the older one an error is an answer like any other."""


class ClientMessage(msgspec.Struct, frozen=True):
    """A message for the client, as one line without its end."""

    data: bytes
    """Empty if the exchange ends without a further message."""
    exchange: object = None
    is_last: bool = False
    """Whether the exchange is over with it."""
    status: int = 200
    """Over HTTP, of an exchange that has no other message."""


class McpServer:
    """The server of one client; over HTTP of one session, or of a caller in the newer era."""

    def __init__(
        self,
        *,
        key: bytes,
        view: str | None = None,
        most_bytes: int | None = None,
        lists: KnownLists | None = None,
    ) -> None:
        """`key` is random, and of this server alone: states and names of results come from it.

        `most_bytes` bounds what comes after the first message of an exchange: a longer result is
        set aside, and linked to. `lists` are shared with other servers for the same view and
        caller.
        """
        self.tasks = Tasks()
        self.daemon = DaemonLink(self.tasks, view)
        self.offered = Offered(self.daemon, lists or KnownLists())
        self.most_bytes = most_bytes
        self.client: McpClient | None = None
        """The client of the older era, once it has said `initialize`."""
        self.followed: dict[str, FollowedResource] = {}
        """The resources that the client of the older era has subscribed to, by their URIs."""
        self.questions: dict[str, ClientRequest] = {}
        """The requests with questions to a client of the older era, by the questions' ids."""
        self.gathered_bytes = 0
        """Of requests that are not over: long params, files, and what waits for the client."""
        self._key = key
        self._drawn = 0
        self._out: deque[ClientMessage] = deque()
        self._open: dict[tuple[object, RpcId], ClientRequest] = {}
        self._parked: dict[str, tuple[ClientRequest, object, TimerHandle]] = {}
        """The parked requests by their states, the oldest first, and who may come back."""
        self._results: dict[str, tuple[bytes, TimerHandle]] = {}
        """Results that were too long for a stream, by the URIs of the links to them."""
        self._results_bytes = 0
        self._unanswered: Counter[object] = Counter()
        """The messages of an exchange that have no answer yet."""
        self._watching: Task | None = None
        """Tells the client of the older era of lists that change, once it is initialized."""

    # From the client.

    def receive_message(
        self, message: bytes, exchange: object = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Take a message, or a batch of them; `headers`, by lower-case name, are those of HTTP."""
        batch = [message]
        if is_array(message):
            try:
                batch = split_batch(message, self.client, headers)
            except McpRequestError as refusal:
                self._unanswered[exchange] += 1
                self._end(exchange, answer_line(None, refusal.error), 400)
                return
        self._unanswered[exchange] += len(batch)
        for one in batch:
            with collector_paused() if len(one) > LONG_BYTES else nullcontext():
                self._receive(read_message(one), one, exchange, headers)
            self.tasks.run()  # the next one may cancel it: then it has to be under way

    def receive_overlong(self, line: Overlong) -> None:
        """Take a line that was dropped because of its length."""
        self._unanswered[None] += 1
        error = mistake(RpcMistake(overlong_fault(line, "")))
        self._end(None, answer_line(None, error), 400)

    def client_left(self, exchange: object = None) -> None:
        """The client has hung up: cancel the requests of an exchange.

        Without one, cancel all there is; the server is over then.
        """
        for request in tuple(self._open.values()):
            if request.task is not None and (exchange is None or request.exchange is exchange):
                request.task.cancel()
        if exchange is None:
            for state in tuple(self._parked):
                self._give_up(state)
            self.offered.close()
            if self._watching is not None:
                self._watching.cancel()
            for followed in self.followed.values():
                followed.close()
            self.followed.clear()
            for uri in tuple(self._results):
                self._drop_result(uri)
        self.tasks.run()
        self._unanswered.pop(exchange, None)
        if exchange is None:
            self._out.clear()
            self.tasks.close()
        else:
            self._out = deque(one for one in self._out if one.exchange is not exchange)

    def take_remarks(self) -> list[str]:
        """Return what is to be logged."""
        remarks, self.tasks.remarks = self.tasks.remarks, []
        return remarks

    def messages_to_send(self) -> list[ClientMessage]:
        self.daemon.release_written()  # here, since hosts ask for these after all that they do
        messages = list(self._out)
        self._out.clear()
        return messages

    @property
    def held_bytes(self) -> int:
        """The bytes of long results, files and answers that it keeps; the host bounds them."""
        return self._results_bytes + self.gathered_bytes

    @property
    def all_answered(self) -> bool:
        """Whether no request is open but subscriptions, which end with the connection."""
        return all(one.method == LISTEN for one in self._open.values())

    # From the daemon.

    def connect(self, connection: SocketClient, login: str | None = None) -> None:
        """Ask over a new connection, after the end of the last one was received.

        `login` is the handle as which it is asked: that ends with the connection that opened it.
        """
        self.daemon.connect(connection, login)
        self.tasks.run()

    def receive_event(self, event: StreamEvent | LineRefusal | ConnectionEnd) -> None:
        """Take an event of the connection."""
        self.daemon.receive(event)
        self.tasks.run()

    # Time.

    @property
    def deadline(self) -> float | None:
        """When `time_passed` is to be called if nothing comes before; minus infinity is at once."""
        return self.tasks.deadline

    def time_passed(self, now: float) -> None:
        """`now` is of any clock that does not jump, in seconds."""
        self.tasks.time_passed(now)

    # The client's messages.

    def _receive(
        self,
        message: RpcMessage,
        line: bytes,
        exchange: object,
        headers: Mapping[str, str] | None,
    ) -> None:
        match message:
            case RpcCall():
                try:
                    self._begin(message, line, exchange, headers)
                except McpRequestError as refusal:
                    self._refuse(message, exchange, headers, refusal.error)
            case RpcNotification():
                try:
                    self._receive_notification(message, headers)
                except McpRequestError as refusal:
                    self._end(exchange, answer_line(None, refusal.error), 400)
                else:
                    self._end(exchange, b"", 202)
            case RpcAnswer(rpc_id=rpc_id, outcome=outcome):
                request = self.questions.get(str(rpc_id))
                if request is not None:
                    request.receive_answer(str(rpc_id), outcome)
                self._end(exchange, b"", 202)
            case RpcMistake():
                self._end(exchange, answer_line(message.rpc_id, mistake(message)), 400)

    def _begin(
        self, call: RpcCall, line: bytes, exchange: object, headers: Mapping[str, str] | None
    ) -> None:
        """Begin a request, or go on with a parked one; raises `McpRequestError`."""
        client = client_of(call, headers, self.client)
        request = ClientRequest(self, call, client, exchange, headers)
        if request.key in self._open:
            words = f"a request {described(call.rpc_id)} is open already; wait for its answer"
            raise refused(INVALID_REQUEST, words)
        if len(self._open) >= OPEN_REQUESTS:
            raise refused(INTERNAL_ERROR, f"{OPEN_REQUESTS} requests are open, wait for some")
        if is_deeper(call.params, DEPTH, line):
            words = f"the request is nested more than {DEPTH} levels deep"
            raise refused(INVALID_REQUEST, words)
        parked = self._take_parked(request) if request.comes_back else None
        if parked is not None:
            self._open[request.key] = parked
            parked.resume(request, line)
            return
        method = METHODS.get(call.method)
        if method is None or client.era not in method.eras:
            words = f"there is no method {quoted(call.method)}"
            if method is not None:
                words += f" in the revision {client.revision}"
            raise refused(METHOD_NOT_FOUND, words)
        if call.method == INITIALIZE:
            self.client = client
        self._open[request.key] = request
        request.count_params(line)
        request.task = self.tasks.spawn(self._serve(request))

    async def _serve(self, request: ClientRequest) -> None:
        """Serve a request by the function of its method, and answer it."""
        outcome: Mapping[str, Any] | RpcError
        try:
            outcome = await METHODS[request.method].serve(request)
        except McpRequestError as refusal:
            outcome = refusal.error
        except CancelledError:  # by the client, who gets no answer
            request.withdraw()
            request.let_go()
            if self._open.get(request.key) is request:
                del self._open[request.key]
                self._end(request.exchange, b"", 200)
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one request only
            self.tasks.remarks.append(f"{request.method} failed: {error!r}")
            outcome = RpcError(INTERNAL_ERROR, f"the request failed here: {type(error).__name__}")
        request.finish(outcome)

    def _refuse(
        self,
        call: RpcCall,
        exchange: object,
        headers: Mapping[str, str] | None,
        error: RpcError,
    ) -> None:
        # Under its own id it would be taken for the answer to the one that is open.
        is_open = exchange is None and (None, call.rpc_id) in self._open
        data = answer_line(None if is_open else call.rpc_id, error)
        said = None if headers is None else headers.get(VERSION)
        is_legacy = said in (None, *LEGACY) and not is_modern(call, headers)
        self._end(exchange, data, 200 if is_legacy else STATUS.get(error.code, 200))

    def _receive_notification(
        self, told: RpcNotification, headers: Mapping[str, str] | None
    ) -> None:
        if headers is not None and headers.get(VERSION) == MODERN:
            check_headers(headers, told.method, told.params, MODERN)
        elif told.method == CANCELLED:
            rpc_id = told.params.get("requestId")
            is_id = isinstance(rpc_id, str) or type(rpc_id) is int  # true is not 1
            request = self._open.get((None, cast("RpcId", rpc_id))) if is_id else None
            if request is not None and request.task is not None:
                request.task.cancel()
        elif told.method == "notifications/initialized" and self.client and not self._watching:
            watch = ListWatch(self.offered.given, self.tell)
            self._watching = self.tasks.spawn(self.offered.watch(watch))

    # Requests whose client is to come back, in the newer era.

    def park(self, request: ClientRequest) -> str:
        """Keep a request until its client comes back for it; returns the state for that."""
        if len(self._parked) >= PARKED:
            self._give_up(next(iter(self._parked)))
        state = self.draw("state")
        timer = self.tasks.call_later(PARKED_S, lambda: self._give_up(state))
        self._parked[state] = request, self._meaning(request), timer
        return state

    def _take_parked(self, again: ClientRequest) -> ClientRequest | None:
        """Return the request that a client comes back for, which is then to be resumed.

        None if it is for no parked one; it may bring answers all the same. Raises
        `McpRequestError`.
        """
        answers = again.params.get("inputResponses", {})
        if not isinstance(answers, dict):
            words = f'"inputResponses" is {described(answers)}, it must be an object'
            raise refused(INVALID_PARAMS, words)
        again.early_answers = dict(answers)
        if "requestState" not in again.params:
            return None
        state = str(again.params["requestState"])
        parked, meaning, timer = self._parked.get(state, (None, None, None))
        if parked is None or timer is None or meaning != self._meaning(again):
            words = (
                "the requestState was not given to this client for this request, was used"
                f" before, or is older than {PARKED_S:g} s"
            )
            raise refused(INVALID_PARAMS, words)
        del self._parked[state]
        timer.cancel()
        return parked

    def _give_up(self, state: str) -> None:
        parked, _, timer = self._parked.pop(state)
        timer.cancel()
        parked.let_go()
        if parked.task is not None:
            parked.task.cancel()

    def _meaning(self, request: ClientRequest) -> object:
        """Return what a state is good for: one caller's request for one thing."""
        caller, params = self.daemon.caller, request.params
        named = str(params.get("name", params.get("uri")))
        who = caller and (caller.name, caller.face, caller.modules)
        return who, request.method, named, request.arguments_mark

    # Results that are too long for an event of a stream.

    def keep_result(self, data: bytes) -> str:
        """Keep a result for a while, and as far as there is room; returns the URI of a link."""
        uri = f"{RESULT_SCHEME}{self.draw('result')}"
        timer = self.tasks.call_later(KEPT_S, lambda: self._drop_result(uri))
        self._results[uri] = data, timer
        self._results_bytes += len(data)
        while self._results_bytes > KEPT_BYTES and len(self._results) > 1:
            self._drop_result(next(iter(self._results)))
        return uri

    def kept_result(self, uri: str) -> bytes | None:
        """Return the result of that URI, if it is still kept."""
        data, _ = self._results.get(uri, (None, None))
        return data

    def _drop_result(self, uri: str) -> None:
        data, timer = self._results.pop(uri)
        timer.cancel()
        self._results_bytes -= len(data)

    # The messages for the client.

    def draw(self, purpose: str) -> str:
        """Return a new name that nobody else can know, in hexadecimal digits."""
        import hmac  # noqa: PLC0415 - OpenSSL is half a megabyte, and few clients need it

        self._drawn += 1
        return hmac.digest(self._key, f"{purpose} {self._drawn}".encode(), "sha256").hex()

    def answer(self, request: ClientRequest, outcome: Mapping[str, Any] | RpcError) -> None:
        """Answer a request, and forget it."""
        status = 200
        if isinstance(outcome, RpcError) and request.client.is_modern:
            status = STATUS.get(outcome.code, 200)
        self._open.pop(request.key, None)
        self._end(request.exchange, answer_line(request.rpc_id, outcome), status)

    def put(self, data: bytes, exchange: object) -> None:
        """Write a message that comes before the answer of an exchange."""
        self._out.append(ClientMessage(data, exchange))

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Tell the client of the older era something that belongs to no request."""
        self.put(message_line({"method": method, "params": params}), None)

    def _end(self, exchange: object, data: bytes, status: int) -> None:
        """End one message of an exchange: with an answer, or with nothing."""
        self._unanswered[exchange] -= 1
        is_last = self._unanswered[exchange] <= 0
        if is_last:
            del self._unanswered[exchange]
        if data or (is_last and exchange is not None):
            self._out.append(ClientMessage(data, exchange, is_last, status))
