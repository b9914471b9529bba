"""The MCP servers of the gateway, each with a connection to the daemon, and the streams to clients.

    McpServers    the servers by caller, and the sessions by id, within their bounds
    Hosted        a server of any era: it goes on while its daemon is away, and dials again
    KeptSession   that of a client of the older era, which may come back for what it has missed
    McpStream     the answer to a POST, or what a session tells unasked

The first message of a POST decides: if it is the last one, too, it is a JSON document, else the
first event of a stream. In a session events have ids, and a bounded number of them is kept.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import Mapping
from weakref import WeakValueDictionary

from protocol.amcp_errors import ErrorCode
from protocol.client import ConnectionEnd, LineRefusal, Redial, StreamEvent
from protocol.dialects.mcp.vocabulary import INITIALIZE, LEGACY, MODERN
from protocol.errors import Reason
from protocol.mcp_server.client import SESSION, VERSION
from protocol.mcp_server.server import ClientMessage, McpServer
from protocol.mcp_server.table import KnownLists
from protocol.problem import quoted
from supervisor.edge.http.daemon import DaemonAwayError, Login, OpFailedError
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import JSON, RETRY, SSE, Headers, Refusal
from supervisor.edge.http.room import Holder
from supervisor.edge.http.sse import BEAT_S

SESSIONS = 256
"""Per principal."""

ALL_SESSIONS = 1024
"""Each has a connection to the daemon, and so has each caller and stream: the daemon has 3072
places for all of them."""

CALLERS = 512
"""Servers for callers of the newer era; one more ends the least recently used one that is idle."""

CALLER_S = 600.0
"""How long a server without a request is kept: as long as a parked request is."""

IDLE_S = 3600.0
"""Of a session, until the daemon has said what its configuration has."""

EVENTS = 256
EVENT_BYTES = 256 << 10
"""The bytes kept for a client that resumes with Last-Event-ID; the newest event is kept whole."""

LONGEST_EVENT = 1 << 20

UNREAD_BYTES = 1 << 18
"""Of a stream whose client does not read: then nothing is read from the daemon for its server."""

SETTLED_S = 10.0
"""How long a first request waits until the daemon has told whether there is such a view."""

OVER = (
    "its session ended before the answer: the login is over, or there are too many sessions, or"
    " there was no room for what it held; the request may have been carried out"
)

EVENT_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
"""The number of a stream, and of an event."""

OK = 200

_STREAM: Headers = [("Content-Type", SSE), ("X-Accel-Buffering", "no")]
_BEAT = b": \n\n"

log = logging.getLogger("stdiod.gateway")


def event(data: bytes, named: str | None = None) -> bytes:
    """Encode a message as an event of a stream; with an id a client can resume after it."""
    head = b"" if named is None else b"id: %s\n" % named.encode()
    return b"%sevent: message\ndata: %s\n\n" % (head, data)


# --- The servers ---------------------------------------------------------------


Key = tuple[str, str | None, str | None]


def key_of(login: Login, view: str | None) -> Key:
    """Return what two requests for the same server have in common: caller, token and view."""
    return login.who, login.credentials.token, view


class McpServers:
    """The sessions and the servers for callers of the newer era, the least recently used first."""

    def __init__(self) -> None:
        self._sessions: dict[str, KeptSession] = {}
        self._callers: dict[Key, Hosted] = {}
        self._lists: WeakValueDictionary[Key, KnownLists] = WeakValueDictionary()
        self._idle_s = IDLE_S

    async def of_caller(self, exchange: Exchange, view: str | None) -> Hosted:
        """Return the server of a caller of the newer era; raises `Refusal`."""
        key = key_of(exchange.login, view)
        hosted = self._callers.pop(key, None)
        if hosted is None:
            if len(self._callers) >= CALLERS:
                idle = next((one for one in self._callers.values() if not one.is_in_use), None)
                if idle is None:
                    words = f"{CALLERS} callers have requests open, and there is room for no more"
                    raise Refusal(ErrorCode.RATE_LIMITED, words, status=503, headers=[RETRY])
                idle.close()
            hosted = Hosted(self, exchange, view)
            hosted.end_when_idle(CALLER_S)
        self._callers[key] = hosted
        hosted.used_at = time.monotonic()
        await hosted.check_view()
        return hosted

    async def begin(self, exchange: Exchange, view: str | None) -> KeptSession:
        """Return a new session; raises `Refusal`."""
        name = exchange.login.name
        count = Counter(one.owner for one in self._sessions.values())
        loser = name if count[name] >= SESSIONS else None
        if loser is None and len(self._sessions) >= ALL_SESSIONS:
            # Not the oldest of all: a principal that begins many must not end those of others.
            loser = count.most_common(1)[0][0]
        if loser is not None:
            next(one for one in self._sessions.values() if one.owner == loser).close()
        session = KeptSession(self, exchange, view)
        self._sessions[session.id] = session
        try:
            await session.check_view()
        except BaseException:  # a cancellation, too: no client knows the id of this session
            session.close()
            raise
        caller = session.server.daemon.caller
        self._idle_s = IDLE_S if caller is None else caller.session_idle_s
        session.end_when_idle(self._idle_s)
        return session

    def find(self, exchange: Exchange, view: str | None) -> KeptSession:
        """Return the session that a request names; raises `Refusal`."""
        said = exchange.headers.get(VERSION)
        if said is not None and said not in LEGACY:
            words = f"{VERSION}: the revision {quoted(said)} has no sessions here; those that have:"
            raise Refusal(ErrorCode.BAD_REQUEST, f"{words} {', '.join(LEGACY)}")
        named = exchange.headers.get(SESSION)
        if named is None:
            words = f"the header {SESSION} is missing: {INITIALIZE} answers with it; a request of"
            raise Refusal(ErrorCode.BAD_REQUEST, f"{words} the newer era has {VERSION}: {MODERN}")
        session = self._sessions.get(named)
        if session is None or session.key != key_of(exchange.login, view):
            words = "there is no such session (any more): one ends when its client says so, when it"
            words += f" is not used for {self._idle_s:g} s, or for one more than {SESSIONS}"
            raise Refusal(ErrorCode.NOT_FOUND, f"{words}; begin anew with {INITIALIZE}")
        session.used_at = time.monotonic()
        self._sessions[named] = self._sessions.pop(named)
        return session

    def lists_of(self, key: Key) -> KnownLists:
        """Return the lists that the servers for a caller and a view share."""
        known = self._lists.get(key)
        if known is None:
            known = self._lists[key] = KnownLists()
        return known

    def forget(self, hosted: Hosted) -> None:
        """Note that a server has ended."""
        if isinstance(hosted, KeptSession):
            self._sessions.pop(hosted.id, None)
        elif self._callers.get(hosted.key) is hosted:  # else there is a newer one, which goes on
            del self._callers[hosted.key]


# --- A server, its connection to the daemon, and the time --------------------


class Hosted(Holder):
    """An `McpServer` with a connection to the daemon for itself, dialled again when that ends.

    It ends with its client's login, of whose end the shared connection tells, or when it is idle.
    """

    def __init__(self, servers: McpServers, exchange: Exchange, view: str | None) -> None:
        """Serve the caller whose first request came by `exchange`."""
        login = exchange.login
        self.key = key_of(login, view)
        """The caller that it serves; others are told that there is no such session."""
        self.server = McpServer(
            key=secrets.token_bytes(32),
            view=view,
            most_bytes=LONGEST_EVENT,
            lists=servers.lists_of(self.key),
        )
        self.is_closed = False
        self.open: set[McpStream] = set()
        """The POSTs that are not over."""
        self.used_at = time.monotonic()
        super().__init__(login.name)
        self._server_bytes = 0
        """Of what is held here, what the server holds."""
        self._servers = servers
        self._daemon = exchange.daemon
        self._login = login
        self._daemon.use(login, self)
        self._settled = asyncio.Event()
        """Set once the view is known, or refused."""
        self._own: Login | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._hold_connection())

    @property
    def is_in_use(self) -> bool:
        return bool(self.open)

    def end_when_idle(self, idle_s: float) -> None:
        """Close it once it is not used for so long."""
        now = time.monotonic()
        if self.is_in_use:
            self.used_at = now
        left_s = self.used_at + idle_s - now
        if left_s <= 0:
            self.close()
        elif not self.is_closed:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(left_s, self.end_when_idle, idle_s)

    async def check_view(self) -> None:
        """Wait until the view is known; raises `Refusal` if there is none."""
        try:
            async with asyncio.timeout(SETTLED_S):
                await self._settled.wait()
        except TimeoutError:
            raise DaemonAwayError from None
        refusal = self.server.daemon.refusal
        if self.is_closed or refusal is not None:
            self.close()
            words = "the login is over" if refusal is None else refusal.message
            raise Refusal(ErrorCode.NOT_FOUND, words)

    def receive(self, body: bytes, stream: McpStream, headers: Mapping[str, str]) -> None:
        """Take the body of a POST, which `stream` is answered by."""
        self.open.add(stream)
        if self._own is None:  # else it goes into a line for the daemon
            stream.waiting_bytes = len(body)
            self.hold(len(body))
        self.server.receive_message(body, stream, headers)
        self._pump()

    def client_left(self, stream: McpStream) -> None:
        """Cancel what a POST asked for, whose client has hung up."""
        self._is_over(stream)
        self.server.client_left(stream)
        self._pump()

    def take(self, message: ClientMessage) -> None:
        """Pass a message on to the stream that it is for."""
        if isinstance(message.exchange, McpStream):
            if message.is_last:
                self._is_over(message.exchange)
            message.exchange.put(message)

    def pause(self, stream: McpStream) -> None:
        """Read nothing from the daemon until the client of a stream has read more."""
        if self._own is not None:
            self._own.client.hold(stream)

    def resume(self, stream: McpStream) -> None:
        if self._own is not None:
            self._own.client.release(stream)

    def login_over(self, login: Login) -> None:
        if login.has_ended:
            self.close()

    def lose(self) -> None:
        self.close()

    def close(self) -> None:
        """End it, and what it has open; idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._servers.forget(self)
            self.hold_nothing()
            self._daemon.leave(self._login, self)
            self.server.client_left()
            if self._task is not None:
                self._task.cancel()
                self._task = None  # a cancelled one holds its frames, and so this
            for timer in (self._timer, self._idle_timer):
                if timer is not None:
                    timer.cancel()
            for stream in tuple(self.open):
                stream.end()
            self.open.clear()
            self._settled.set()

    def _is_over(self, stream: McpStream) -> None:
        self.open.discard(stream)
        self.used_at = time.monotonic()
        self.hold(-stream.waiting_bytes)
        stream.waiting_bytes = 0

    async def _hold_connection(self) -> None:
        redial, daemon = Redial(), self._daemon
        while not self.is_closed:
            try:
                if self._login.over.is_set():  # lost, with the daemon that had it
                    daemon.leave(self._login, self)
                    self._login = await daemon.log_in(self._login.credentials)
                    daemon.use(self._login, self)
                async with daemon.connect(self._login, self.hold) as own:
                    if own.who != self.key[0]:
                        break  # the process that it was the login of is another's by now
                    redial.connected(time.monotonic())
                    self._own, own.client.receiver = own, self._receive
                    self.server.connect(own.client.connection, own.handle)
                    self._pump()
                    await own.client.ended.wait()
            except DaemonAwayError:
                pass
            except OpFailedError as error:
                if error.reason != Reason.QUEUE_FULL:  # its token is over
                    break
            finally:
                self._own = None
            now = time.monotonic()
            await asyncio.sleep(redial.failed(now, random.random()) - now)  # noqa: S311
        self.close()

    def _receive(self, event: StreamEvent | LineRefusal | ConnectionEnd) -> None:
        self.server.receive_event(event)
        self._pump()

    def _pump(self) -> None:
        """Pass time and messages on, and set the timer for the next deadline."""
        if self.is_closed:
            return
        loop, server = asyncio.get_running_loop(), self.server
        if self._timer is not None:
            self._timer.cancel()
        while (deadline := server.deadline) is not None and deadline <= loop.time():
            server.time_passed(loop.time())
        self._timer = None if deadline is None else loop.call_at(deadline, self._pump)
        if server.daemon.is_ready or server.daemon.refusal is not None:
            self._settled.set()
        for message in server.messages_to_send():
            if not self.is_closed:  # for want of room for the one before
                self.take(message)
        if self._own is not None:
            self._own.client.write_soon()
        for remark in server.take_remarks():
            log.warning("%s", remark)
        more = server.held_bytes - self._server_bytes
        self._server_bytes += more
        self.hold(more)


# --- Streams -----------------------------------------------------------------


class McpStream:
    """The messages for one POST, or those of a session that belong to none.

    One client reads it at a time. In a session it goes on without one, and another may come.
    """

    def __init__(self, hosted: Hosted, session: KeptSession | None = None, number: int = 0) -> None:
        """In a session what it tells is kept, under its number; 0 is that of no POST."""
        self.number = number
        self.waiting_bytes = 0
        """Of the body that it answers, if there was no daemon to be asked."""
        self._hosted = hosted
        self._session = session
        self._document: tuple[int, bytes] | None = None
        """Status and data of the end, if that came first."""
        self._has_begun = False
        """Whether a message came before the end: then the answer is a stream, and no document."""
        self._is_over = False
        self._is_lost = False
        """Whether its server has ended before it."""
        self._reader: object = None if number == 0 and session is not None else hosted
        """Stands for the client that reads it now, at first that of the POST."""
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._news = asyncio.Event()

    @property
    def is_read(self) -> bool:
        return self._reader is not None

    def put(self, message: ClientMessage) -> None:
        self._is_over = message.is_last
        if message.is_last and not self._has_begun and (message.data or message.status != OK):
            self._document = message.status, message.data
        elif message.data:
            self._has_begun = True
            named = None if self._session is None else self._session.keep(self, message.data)
            self._write(event(message.data, named))
        self._news.set()

    def end(self) -> None:
        """End it as it is: what has not begun is refused."""
        self._is_over = self._is_lost = True
        self._news.set()

    async def answer(
        self, exchange: Exchange, headers: Headers, *, is_told: bool, is_batch: bool
    ) -> None:
        """Answer a POST with a document, or by a stream; raises `ClientGoneError`.

        One that `is_told` of what happens becomes a stream after a while in any case.
        """
        reader = self._reader
        with exchange.until_hung_up():
            while not (self._has_begun or self._is_over):
                if not await self._wait() and is_told:
                    self._has_begun = True
            if self._document is None:
                if self._is_lost and not self._has_begun:
                    raise Refusal(ErrorCode.RATE_LIMITED, OVER, status=503, headers=[RETRY])
                await exchange.begin(OK, [*headers, *_STREAM])
                await self._pass_on(exchange, reader)
                return
            (status, data), self._document = self._document, None
            if is_batch and status == OK:
                await exchange.begin(OK, _STREAM)
                await exchange.end(event(data))
            else:
                await exchange.respond(status, [*headers, *([JSON] if data else [])], data)

    async def go_on(self, exchange: Exchange, missed: bytes) -> None:
        """Continue on another connection."""
        self.leave()
        self._reader = reader = object()
        self._news.set()
        with exchange.until_hung_up():
            await exchange.begin(OK, _STREAM)
            await exchange.write(_BEAT + missed)
            await self._pass_on(exchange, reader)

    def leave(self) -> None:
        """Detach the client that reads it; a session keeps what comes."""
        self._reader = None
        self._unread.clear()
        self._hosted.hold(-self._unread_bytes)
        self._unread_bytes = 0
        self._hosted.resume(self)

    async def _pass_on(self, exchange: Exchange, reader: object) -> None:
        while self._reader is reader:
            if self._unread:
                data = b"".join(self._unread)
                self._unread.clear()
                await exchange.write(data)
                if self._reader is reader:
                    self._unread_bytes -= len(data)
                    self._hosted.hold(-len(data))
                    if self._unread_bytes <= UNREAD_BYTES:
                        self._hosted.resume(self)
            elif self._is_over:
                break
            elif not await self._wait():
                await exchange.write(_BEAT)
        await exchange.end()

    async def _wait(self) -> bool:
        """Wait for what comes next; false if a sign of life is due before."""
        self._news.clear()
        try:
            async with asyncio.timeout(BEAT_S):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _write(self, data: bytes) -> None:
        if self._reader is not None:
            self._unread.append(data)
            self._unread_bytes += len(data)
            self._hosted.hold(len(data))
            if self._unread_bytes > UNREAD_BYTES:
                self._hosted.pause(self)


class KeptSession(Hosted):
    """The server of a client of the older era, which may come back for what it has missed."""

    def __init__(self, servers: McpServers, exchange: Exchange, view: str | None) -> None:
        self.id = secrets.token_urlsafe(24)
        self.unasked = McpStream(self, self)
        """The messages of no request."""
        self._last_stream = 0
        self._number = 0
        self._sent: deque[tuple[int, McpStream, bytes]] = deque()
        self._sent_bytes = 0
        super().__init__(servers, exchange, view)

    @property
    def is_in_use(self) -> bool:
        return not self.is_closed and (bool(self.open) or self.unasked.is_read)

    def post(self) -> McpStream:
        self._last_stream += 1
        return McpStream(self, self, self._last_stream)

    def client_left(self, stream: McpStream) -> None:
        """Keep what comes on a stream, for when the client is back."""
        stream.leave()

    def take(self, message: ClientMessage) -> None:
        if message.exchange is None:
            self.unasked.put(message)
        else:
            super().take(message)

    def keep(self, stream: McpStream, data: bytes) -> str:
        """Keep an event for a client that resumes; returns the event's id."""
        self._number += 1
        self._sent.append((self._number, stream, data))
        more = len(data)
        while len(self._sent) > 1 and (
            len(self._sent) > EVENTS or self._sent_bytes + more > EVENT_BYTES
        ):
            more -= len(self._sent.popleft()[2])
        self._sent_bytes += more
        self.hold(more)
        return f"{stream.number}-{self._number}"

    def missed(self, seen: str | None) -> tuple[McpStream, bytes]:
        """Return the stream that a client goes on reading, and what it has missed of that.

        `seen` is the id of the last event that it got, if it says one. Raises `Refusal`.
        """
        known = None if seen is None else EVENT_ID.fullmatch(seen)
        if known is None:
            return self.unasked, b""
        number, after = map(int, known.groups())
        for stream in (self.unasked, *self.open, *(one for _, one, _ in self._sent)):
            if stream.number == number:
                break
        else:
            words = "that stream is over, and what came on it is not kept any more; ask again"
            raise Refusal(ErrorCode.BAD_REQUEST, words)
        missed = [
            event(data, f"{number}-{each}")
            for each, of, data in self._sent
            if each > after and of is stream
        ]
        return stream, b"".join(missed)

    def close(self) -> None:
        if not self.is_closed:
            super().close()
            self.unasked.end()
            del self.unasked  # they have each other
            self._sent.clear()
