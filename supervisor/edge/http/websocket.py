"""A client sends requests of AMCP over a WebSocket; this module answers each by frames.

    request     {"type":"request","id":...,"payload":{"action":...}}
                prompt, cancel, subscribe, invoke, ping
    out         frames of the types response, event and error, with the id of what they belong to

A client has a connection to the daemon for itself; its requests begin in the order of the messages
and run side by side, a task for each. While the client does not read, no task can write, so neither
the client is read from, nor the daemon, which has the modules wait; after SLOW_S of that, the
client is closed with 1013.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from uvicorn.protocols.utils import ClientDisconnected

from protocol.amcp import EventType, UnifiedEvent, Vocabulary, to_ws
from protocol.amcp_errors import AmcpError, ErrorCode, error_of
from protocol.client import Answer, ConnectionEndedError, RequestEvent, StreamEvent
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.problem import did_you_mean, named
from protocol.weight import LONG_BYTES, ValueCount
from supervisor.edge.bindings.asynchronous import RequestStream
from supervisor.edge.http.answers import DoneLine, refusal_of
from supervisor.edge.http.daemon import DAEMON, GREETING_S, DaemonAwayError, Login
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import (
    Receive,
    Refusal,
    Send,
    read_json,
    refuse_many,
)
from supervisor.edge.http.sse import (
    EVENT_TYPES,
    StreamForm,
    kind_of,
    now,
    place_for_stream,
    unified,
)

SOCKET_PATH = b"/ws"

SUBPROTOCOL = "documented"
"""The subprotocol of the documented vocabulary."""

OPEN_REQUESTS = 256
"""A further request is told to wait for answers."""

ID_CHARS = 256
"""The longest id of a request; each frame that answers it has the id."""

SLOW_S = 10.0
"""How long a client may leave so much unread that nothing more can be written."""

MESSAGES_A_TURN = 64

GOING_AWAY, NOT_TEXT, NOT_ALLOWED, TOO_SLOW = 1001, 1003, 1008, 1013
"""Close codes (RFC 6455 7.4.1, and IANA's registry)."""

_OPS = {"prompt": "session.prompt", "cancel": "session.cancel", "subscribe": "ui.subscribe"}
_ACTIONS = (*_OPS, "invoke", "ping")

_VERSION = "13"
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")
"""16 bytes in base64."""


# --- The handshake -----------------------------------------------------------


def handshake_refusal(headers: Mapping[str, str]) -> Refusal | None:
    """Return why a request does not switch to WebSocket (RFC 6455 4.2.1), None if it does."""
    if "websocket" not in headers.get("upgrade", "").lower():
        return _not_switching("Upgrade: websocket")
    if headers.get("sec-websocket-version") != _VERSION:
        words = f"Sec-WebSocket-Version has to be {_VERSION}"
        again = [("Sec-WebSocket-Version", _VERSION)]
        return Refusal(ErrorCode.BAD_REQUEST, words, status=426, headers=again)
    if not _KEY.fullmatch(headers.get("sec-websocket-key", "")):
        return Refusal(ErrorCode.BAD_REQUEST, "Sec-WebSocket-Key has to be 16 bytes in base64")
    return None


def _not_switching(missing: str) -> Refusal:
    words = f"this path speaks WebSocket: send {missing}"
    again = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
    return Refusal(ErrorCode.BAD_REQUEST, words, status=426, headers=again)


# --- Requests ----------------------------------------------------------------


class Closing(Exception):  # noqa: N818 - an end, not a mistake
    """The connection is over, with a close code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class SocketRequest:
    """An open request of the client, and the frames that it is answered with."""

    def __init__(
        self,
        action: str,
        message_id: str | None,
        session_id: str | None,
        vocabulary: Vocabulary,
        stream: RequestStream,
    ) -> None:
        """`session_id` is the session of events that do not name one."""
        self.action = action
        self.stream = stream
        self.ended = asyncio.Event()
        self._message_id = message_id
        self._session_id = session_id
        self._vocabulary = vocabulary
        self._lines = StreamForm(request_id=message_id)
        self._is_told = False
        """Whether an event has told how a prompt ended."""

    @property
    def key(self) -> object:
        """The key among the open requests: the client's id, or the request if it has no id."""
        return self if self._message_id is None else self._message_id

    def frame(self, event: StreamEvent) -> dict[str, Any] | None:
        """Return the frame that tells what the daemon said, None if nothing does."""
        match self.action, event:
            case "invoke", RequestEvent():
                line = msgspec.Raw(self._lines.line(event))
                payload = {"kind": kind_of(event.line).type, "event": line}
                return _frame("event", self._message_id, payload)
            case "invoke", Answer():
                response = DoneLine(event, is_late=True).response
                shown = msgspec.Raw(b'{"action":"invoked",' + response[1:])
                return _frame("response", self._message_id, shown)
            case "prompt" | "subscribe", RequestEvent():
                return self._of_session(event)
            case "cancel", Answer(ok=True):
                told = {"action": "cancelled", **event.result}
                return _frame("response", self._message_id, told)
            case _, Answer(ok=False) if not self._is_told:
                return _error(self._message_id, error_of(DoneLine(event, is_late=True).failure))
        return None

    def _of_session(self, event: RequestEvent) -> dict[str, Any] | None:
        found, message_id = unified(event, self._session_id, now()), self._message_id
        if found is None:
            return None
        if self.action == "prompt":
            self._is_told = found.type in (EventType.MESSAGE_COMPLETE, EventType.MESSAGE_ERROR)
        elif found.type is EventType.CONNECTED:
            told = {"action": "subscribed", "session_id": self._session_id}
            return _frame("response", message_id, told)
        else:
            message_id = None  # what others do answers nothing
        return to_ws(found, message_id, self._vocabulary)


def _frame(kind: str, message_id: str | None, payload: Any) -> dict[str, Any]:
    return {"type": kind, "id": message_id, "timestamp": now(), "payload": payload}


def _error(message_id: str | None, error: AmcpError) -> dict[str, Any]:
    return {**error.frame(message_id), "timestamp": now()}


class WebSocket:
    """The requests of one client, and the answers to it."""

    def __init__(
        self,
        own: Login,
        login: Login,
        send: Send,
        vocabulary: Vocabulary,
        session_id: str | None,
    ) -> None:
        """Requests without a session are for `session_id`."""
        self._own = own
        self._login = login
        self._send = send
        self._vocabulary = vocabulary
        self._session_id = session_id
        self._open: dict[object, SocketRequest] = {}
        self._cancels = 0
        """Cancels that wait for the end of what they cancel."""
        self._turn = asyncio.Lock()
        """Held while a frame waits for room."""
        self._tasks: set[asyncio.Task[None]] = set()
        # Not a task group: its exceptions hold the frames that hold them, and so all of this.
        self._end: asyncio.Future[tuple[int, str] | None] = asyncio.Future()

    async def run(self, receive: Receive, bound: RequestStream | None) -> None:
        """Serve the client to its end; `bound` is the subscription that the connection is for."""
        self._start(self._end_with_login())
        self._start(self._end_with_daemon())
        self._start(self._read(receive, bound))
        try:
            closing = await self._end
        finally:
            left = tuple(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if closing is not None:
            code, words = closing
            reason = words.encode()[:120].decode(errors="ignore")
            with contextlib.suppress(ClientDisconnected):
                await self._send({"type": "websocket.close", "code": code, "reason": reason})

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the connection with a task that failed: here, and only here, is told how."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None or self._end.done():
            return
        match error:
            case Closing():
                self._end.set_result((error.code, error.words))
            case ConnectionEndedError():
                self._end.set_result((GOING_AWAY, "the daemon is gone"))
            case ClientDisconnected():
                self._end.set_result(None)
            case _:
                self._end.set_exception(error)

    async def _end_with_login(self) -> None:
        await self._login.over.wait()
        if self._login.why != "lost":  # else the daemon is gone, which shows here, too
            raise Closing(NOT_ALLOWED, "the token that it was asked with is over")

    async def _end_with_daemon(self) -> None:
        await self._own.client.ended.wait()
        raise Closing(GOING_AWAY, "the daemon is gone")

    async def _read(self, receive: Receive, bound: RequestStream | None) -> None:
        connected = UnifiedEvent(EventType.CONNECTED, self._session_id, now())
        await self._put(to_ws(connected, None, self._vocabulary))
        if bound is not None:
            self._follow(
                SocketRequest("subscribe", None, self._session_id, self._vocabulary, bound)
            )
        number = 0
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                raise ClientDisconnected
            text = message.get("text")
            if text is None:
                raise Closing(NOT_TEXT, "a message is JSON, as text")
            async with self._turn:
                pass  # a client that does not read is not read from
            await self._serve(text.encode())
            number += 1
            if number % MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)

    async def _put(self, frame: dict[str, Any]) -> None:
        """Write a frame once the client has room for it."""
        try:
            data = encode(frame)
        except UNENCODABLE as error:
            words = f"the message cannot be passed on: {type(error).__name__}"
            data = encode(AmcpError(ErrorCode.INTERNAL_ERROR, words).frame(frame["id"]))
        async with self._turn:
            try:
                async with asyncio.timeout(SLOW_S):
                    await self._send({"type": "websocket.send", "text": data.decode()})
            except TimeoutError:
                words = "more is unread than waits here; read faster, or ask for less"
                raise Closing(TOO_SLOW, words) from None

    # One message.

    async def _serve(self, data: bytes) -> None:
        message_id = None
        try:
            if len(data) > LONG_BYTES:
                count = ValueCount()
                count.feed(data)
                refuse_many(count, "message")
            message = read_json(data, "message")
            message_id = _id_of(message)
            if message_id in self._open:  # with its id, the refusal would be taken for its answer
                await self._put(_error(None, _is_open(self._open[message_id], message_id)))
            else:
                await self._begin(message_id, _payload_of(message))
        except Refusal as refusal:
            await self._put(_error(message_id, refusal.error))

    async def _begin(self, message_id: str | None, args: dict[str, Any]) -> None:
        action = args.pop("action", None)
        match action:
            case "ping":
                await self._count()
                await self._put(_frame("response", message_id, {"action": "pong"}))
            case "invoke":
                module = args.pop("module", None)
                if not isinstance(module, str):
                    words = "module has to name the module that is invoked"
                    raise Refusal(ErrorCode.VALIDATION_ERROR, words, field="module")
                await self._ask(action, message_id, module, args)
            case "cancel" if "request_id" in args:
                _check_room(self._cancels, "cancels")
                await self._count()
                self._cancels += 1
                self._start(self._cancel_one(message_id, args["request_id"]))
            case "prompt" | "cancel" | "subscribe":
                if self._session_id is not None:
                    args.setdefault("session_id", self._session_id)
                if action == "subscribe":
                    args["events"] = EVENT_TYPES
                given = {"op": _OPS[action], "args": args}
                await self._ask(action, message_id, DAEMON, given, args.get("session_id"))
            case _:
                known = ", ".join(_ACTIONS)
                hint = did_you_mean(action, _ACTIONS) if isinstance(action, str) else ""
                words = f"action has to be one of {known}{hint}"
                raise Refusal(ErrorCode.UNSUPPORTED_ACTION, words, field="action")

    async def _count(self) -> None:
        """Count a message for the rate of a token, where the daemon is not asked anyway."""
        if self._login.is_token:
            await count(self._own)

    async def _ask(
        self,
        action: str,
        message_id: str | None,
        tool: str,
        given: dict[str, Any],
        session_id: str | None = None,
    ) -> None:
        _check_room(len(self._open), "requests")
        stream = await self._own.request(tool, "invoke", given)
        self._follow(SocketRequest(action, message_id, session_id, self._vocabulary, stream))

    def _follow(self, request: SocketRequest) -> None:
        self._open[request.key] = request
        self._start(self._answer(request))

    async def _answer(self, request: SocketRequest) -> None:
        try:
            async with request.stream:
                async for event in request.stream:
                    frame = request.frame(event)
                    if frame is not None:
                        await self._put(frame)
        finally:
            request.ended.set()
            del self._open[request.key]

    async def _cancel_one(self, message_id: str | None, request_id: object) -> None:
        """Cancel an open request; its own end is told first."""
        found = self._open.get(request_id) if isinstance(request_id, str) else None
        try:
            if found is not None:
                found.stream.ask_to_cancel()
                await found.ended.wait()
        finally:
            self._cancels -= 1
        told = {"request_id": request_id, "cancelled": int(found is not None)}
        await self._put(_frame("response", message_id, {"action": "cancelled", **told}))


def _id_of(message: dict[str, Any]) -> str | None:
    found = message.get("id")
    if found is None or (isinstance(found, str) and len(found) <= ID_CHARS):
        return found
    words = f"id has to be a string, of {ID_CHARS} characters at most"
    raise Refusal(ErrorCode.INVALID_MESSAGE, words, field="id")


def _payload_of(message: dict[str, Any]) -> dict[str, Any]:
    payload = message.get("payload")
    if isinstance(payload, dict) and message.get("type", "request") == "request":
        return payload
    words = 'a message is {"type":"request","id":...,"payload":{"action":...}}'
    raise Refusal(ErrorCode.INVALID_MESSAGE, words)


def _is_open(request: SocketRequest, message_id: object) -> AmcpError:
    shown = named(str(message_id), 80)
    words = f"the request {shown} is open already; wait for its answer"
    if request.action == "subscribe":
        words = f"the subscription {shown} keeps its id until it is cancelled; ask with another id"
    return AmcpError(ErrorCode.CONFLICT, words, {"field": "id"})


def _check_room(count: int, noun: str) -> None:
    if count >= OPEN_REQUESTS:
        words = f"{OPEN_REQUESTS} {noun} are open on this connection; wait for answers"
        raise Refusal(ErrorCode.RATE_LIMITED, words)


async def count(own: Login) -> None:
    """Count a request for the rate of its token; raises `Refusal` beyond that."""
    async with await own.request(DAEMON, "narrow", {}) as stream:
        DoneLine(await stream.answer())


async def serve_websocket(exchange: Exchange, args: dict[str, Any]) -> None:
    """Accept a client, perhaps bound to a session; raises `Refusal` and others before that."""
    refusal = handshake_refusal(exchange.headers)
    if refusal is not None or not exchange.is_socket:
        raise refusal or _not_switching("Connection: Upgrade")
    said = Vocabulary(args.get("vocabulary", Vocabulary.DEPLOYED))
    accepted: dict[str, Any] = {"type": "websocket.accept"}
    if SUBPROTOCOL in exchange.scope["subprotocols"]:
        said, accepted["subprotocol"] = Vocabulary.DOCUMENTED, SUBPROTOCOL
    session_id, login = args.get("session_id"), exchange.login
    with place_for_stream(exchange):
        async with exchange.connect() as own:
            bound = None
            try:
                async with asyncio.timeout(GREETING_S):
                    if session_id is not None:
                        of_session = {"session_id": session_id, "events": EVENT_TYPES}
                        bound = await own.request(DAEMON, "ui.subscribe", of_session)
                        first = await anext(bound)
                        if isinstance(first, Answer):
                            await exchange.respond(*refusal_of(DoneLine(first).failure))
                            return
                    elif login.is_token:
                        await count(own)
            except TimeoutError:
                raise DaemonAwayError from None
            await exchange.receive()  # `websocket.connect`
            await exchange.send(accepted)
            exchange.is_begun = True
            socket = WebSocket(own, login, exchange.send, said, session_id)
            await socket.run(exchange.receive, bound)
