"""The way of an MCP server to the daemon: requests that may outlast a connection.

    no connection          a request waits for one, for at most DAEMON_WAIT_S
    connected              the view is asked for first; until it is known, requests wait as before
    the connection ends    a request fails, in words, or waits for the next one (`AfterLoss`)

A view that the daemon refuses fails all that waits, and what comes later, until the next
connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Self

import msgspec

from protocol.client import (
    UNDECODABLE,
    Answer,
    ClientQuestion,
    ConnectionEnd,
    ConnectionEndedError,
    EndCause,
    LineRefusal,
    QuestionWithdrawn,
    RequestEvent,
    SocketClient,
    StreamEvent,
)
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.host_call import UNENCODABLE
from protocol.mcp_server.table import DEFAULT, ModuleView
from protocol.mcp_server.tasks import Pending, Tasks, TimerHandle

DAEMON = "supervisor"
"""The daemon's own name, for requests to it."""

DAEMON_WAIT_S = 30.0
"""For how long a request waits for the daemon: a restart takes seconds, and one with slow modules
that are stopped first takes longer; most clients give a call up after 60 s."""


class NarrowedCaller(msgspec.Struct, frozen=True):
    """The answer to `narrow`: the principal that asks, its view, and the run of the daemon."""

    view: ModuleView
    name: str = ""
    face: str = ""
    modules: tuple[str, ...] = ()
    """Globs of what it may see."""
    run: float = 0.0
    """Differs from that of any other daemon."""
    pid: int = 0
    directories: list[str] = []
    session_idle_s: float = 3600.0


class RequestEnd(msgspec.Struct, frozen=True):
    """The end of a request."""

    outcome: Outcome
    needed: tuple[str, ...] = ()
    """The methods that only the client could have answered."""
    size_bytes: int = 0
    """The length of the daemon's line."""


DaemonEvent = RequestEvent | ClientQuestion | QuestionWithdrawn | RequestEnd
"""An event of a request to the daemon; the last one is its end."""


def document_of(event: DaemonEvent) -> dict[str, Any]:
    """Return the line of an event, decoded; {} of a question, and of what can't be decoded."""
    try:
        return event.document if isinstance(event, RequestEvent) else {}
    except UNDECODABLE:
        return {}


def fields_of(event: DaemonEvent) -> dict[str, Any]:
    """Return the `fields` of a `log` event of the daemon's own; {} of anything else."""
    fields = document_of(event).get("fields")
    return fields if isinstance(fields, dict) else {}


class AfterLoss(Enum):
    """The link treats an open request like this when the connection to the daemon ends."""

    FAIL_IF_WRITTEN = auto()
    """A request that was written fails: the daemon may have carried it out. Another one is asked
    again."""
    ASK_AGAIN = auto()
    """The link asks again over the next connection: the request only reads."""
    FAIL = auto()
    """The request fails: it is about the connection, or its maker begins it anew."""


class DaemonRequest:
    """A request to the daemon that may outlast connections; `next` yields its events and its end.

    In a block it is given up where that is left, if it is open then.
    """

    def __init__(
        self,
        link: DaemonLink,
        content: tuple[str, str, dict[str, Any]],
        asks: Sequence[str],
        after_loss: AfterLoss,
    ) -> None:
        self.content = content
        self.asks = asks
        self.after_loss = after_loss
        self.timer: TimerHandle | None = None
        """Of DAEMON_WAIT_S, since it had to wait for the daemon first."""
        self.is_late = False
        """Whether that time has passed."""
        self.request_id: str | None = None
        """Its id on the present connection; None while it waits, and when it is over."""
        self.is_over = False
        self._link = link
        self._events: deque[DaemonEvent] = deque()
        self._news: Pending[None] = Pending(link.tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self._link.drop(self)

    async def next(self) -> DaemonEvent:
        while not self._events:
            self._news = Pending(self._link.tasks)
            await self._news
        return self._events.popleft()

    async def done(self) -> RequestEnd:
        """Wait for the end, and pass over the events."""
        while not isinstance(event := await self.next(), RequestEnd):
            pass
        return event

    def put(self, event: DaemonEvent) -> None:
        if not self.is_over:
            self.is_over = isinstance(event, RequestEnd)
            self._events.append(event)
            self._news.set(None)


class DaemonLink:
    def __init__(self, tasks: Tasks, view: str | None) -> None:
        self.tasks = tasks
        self.caller: NarrowedCaller | None = None
        """As the last daemon has said it; None before one has."""
        self.refusal: Failure | None = None
        """Why the daemon does not give the view."""
        self.ready: Pending[None] = Pending(tasks)
        """Set while there is a connection and the view is known; then there is another one."""
        self.lost: Pending[None] = Pending(tasks)
        """Set when a connection that was ready has ended; then there is another one."""
        self._view_name = view or DEFAULT
        self._connection: SocketClient | None = None
        self._login: str | None = None
        self._asked: dict[str, DaemonRequest] = {}
        self._waiting: dict[DaemonRequest, None] = {}
        self._unwritten: deque[DaemonRequest] = deque()
        """Of those that were asked, the ones of which something may not be written, in order."""
        self._last_words = ""
        """Why the daemon took no connection, if it said so."""

    # Requests.

    def open(
        self,
        tool: str,
        operation: str,
        given: dict[str, Any],
        *,
        asks: Sequence[str] = (),
        after_loss: AfterLoss = AfterLoss.FAIL_IF_WRITTEN,
    ) -> DaemonRequest:
        """Begin a request; one that cannot be encoded fails."""
        request = DaemonRequest(self, (tool, operation, given), asks, after_loss)
        if self.is_ready:
            self._submit(request)
        elif self.refusal is not None:
            request.put(RequestEnd(self.refusal))
        else:
            self._wait(request)
        return request

    def read(self, op: str, args: dict[str, Any]) -> DaemonRequest:
        """Begin a request to the daemon itself that changes nothing."""
        return self.open(DAEMON, op, args, after_loss=AfterLoss.ASK_AGAIN)

    def answer(self, question: ClientQuestion, outcome: Outcome) -> None:
        if self._connection is not None:
            self._connection.answer(question, outcome)

    def drop(self, request: DaemonRequest) -> None:
        """Give a request up; nothing is done for one that is over."""
        self._waiting.pop(request, None)
        if request.request_id is not None and self._connection is not None:
            self._connection.cancel(request.request_id)
            self._asked.pop(request.request_id, None)
        request.request_id = None

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for a connection."""
        return bool(self._waiting)

    @property
    def is_ready(self) -> bool:
        return self.ready.is_set

    @property
    def view(self) -> ModuleView:
        return ModuleView() if self.caller is None else self.caller.view

    # The connection.

    def connect(self, connection: SocketClient, login: str | None) -> None:
        self._connection, self._login, self.refusal = connection, login, None
        self.tasks.spawn(self._narrow(connection))

    def release_written(self) -> None:
        """Empty the args of calls that were written: they may be large, and are not asked again."""
        while self._unwritten and self._connection is not None:
            request = self._unwritten[0]
            if request.request_id and not self._connection.is_written(request.request_id):
                break  # nor are those behind it
            self._unwritten.popleft()
            if request.after_loss is AfterLoss.FAIL_IF_WRITTEN:
                request.content[2].get("args", {}).clear()

    def receive(self, event: StreamEvent | LineRefusal | ConnectionEnd) -> None:
        match event:
            case ConnectionEnd():
                self._lose(event)
            case LineRefusal(line=line):
                self._last_words = refusal_words(line)
            case Answer():
                request = self._asked.pop(event.request_id, None)
                if request is not None:
                    request.request_id = None
                    request.put(_done(event))
            case RequestEvent() | ClientQuestion() | QuestionWithdrawn():
                request = self._asked.get(event.request_id)
                if request is not None:
                    request.put(event)

    async def _narrow(self, connection: SocketClient) -> None:
        """Ask for the view, as the first request of a connection; then ask what has waited."""
        while True:
            content = (DAEMON, "narrow", {"view": self._view_name})
            narrowing = DaemonRequest(self, content, (), AfterLoss.FAIL)
            self._submit(narrowing)
            outcome = (await narrowing.done()).outcome
            pause_s = pause_of(outcome)
            if pause_s is not None:
                await self.tasks.sleep(pause_s)
            if self._connection is not connection:
                return
            if pause_s is None:
                break
        self._last_words = ""
        if isinstance(outcome, Failure):
            self.refusal = outcome
        else:
            try:
                self.caller = msgspec.convert(outcome.result, NarrowedCaller)
            except msgspec.ValidationError as error:
                words = f'the daemon\'s answer to "narrow" is not that of this version: {error}'
                self.refusal = Failure.because(Reason.INVALID_EVENT, words)
        waiting, self._waiting = self._waiting, {}
        if self.refusal is None:
            self.lost = Pending(self.tasks)
            self.ready.set(None)
            for request in waiting:
                self._submit(request)
        else:
            for request in waiting:
                request.put(RequestEnd(self.refusal))

    def _submit(self, request: DaemonRequest) -> None:
        assert self._connection is not None  # noqa: S101 - it is connected
        tool, operation, given = request.content
        try:
            request.request_id = self._connection.request(
                tool, operation, given, login=self._login, asks=request.asks, mcp=True
            )
        except ConnectionEndedError:
            self._wait(request)  # the host is about to tell of the end
        except UNENCODABLE as error:
            words = f"the request cannot be passed on: {type(error).__name__}"
            request.put(RequestEnd(Failure.because(Reason.INVALID_ARGS, words)))
        else:
            self._asked[request.request_id] = request
            self._unwritten.append(request)

    def _lose(self, end: ConnectionEnd) -> None:
        self._connection = None
        if self.is_ready:
            self.ready = Pending(self.tasks)
            self.lost.set(None)
        self._unwritten.clear()
        asked, self._asked = self._asked, {}
        for request_id, request in asked.items():
            request.request_id = None
            is_written = request_id in end.written
            match request.after_loss:
                case AfterLoss.FAIL:
                    request.put(RequestEnd(_lost(end)))
                case AfterLoss.FAIL_IF_WRITTEN if is_written:
                    request.put(RequestEnd(_lost(end)))
                case _:
                    self._wait(request)

    def _wait(self, request: DaemonRequest) -> None:
        """Let a request wait for the next connection, unless it has waited for long."""
        self._waiting[request] = None
        if request.timer is None:
            request.timer = self.tasks.call_later(DAEMON_WAIT_S, lambda: self._time_out(request))
        elif request.is_late:
            self._time_out(request)

    def _time_out(self, request: DaemonRequest) -> None:
        request.is_late = True
        if request in self._waiting:
            del self._waiting[request]
            request.put(RequestEnd(self._away()))

    def _away(self) -> Failure:
        words = f"the daemon is away, and was waited for {DAEMON_WAIT_S:g} s"
        if self._last_words:
            words += f" (it said last: {self._last_words})"
        words += "; `stdiod status` says whether it runs, and `stdiod up` starts it: then ask again"
        return Failure.because(Reason.NO_CONNECTION, words)


def pause_of(outcome: Outcome) -> float | None:
    """Return the seconds to wait if the daemon was asked too often, or answered too much at once.

    None of any other outcome.
    """
    details = outcome.details if isinstance(outcome, Failure) else {}
    pause_s: float | None = None
    if details.get("reason") == Reason.RATE_LIMITED:
        pause_s = details.get("retry_in_s", 1.0)
    elif details.get("reason") == Reason.SLOW_READER:
        pause_s = 0.0
    return pause_s


def refusal_words(line: bytes) -> str:
    """Return the message of a refusal that answers no request."""
    try:
        return str(msgspec.json.decode(line)["error"]["message"])
    except (*UNDECODABLE, LookupError, TypeError):
        return ""


_ENDS = {
    EndCause.CLOSED: "the daemon ended, or closed the connection,",
    EndCause.NOT_A_DAEMON: "the daemon wrote what is no line of a daemon, and was given up",
    EndCause.OVERLONG: "the daemon wrote a line that is too long, and was given up",
    EndCause.UNREAD: "the daemon read nothing any more, and was given up",
}


def _lost(end: ConnectionEnd) -> Failure:
    words = f"{_ENDS[end.cause]} while the request was in flight: it may have been carried out or"
    words += " not; find out before you ask for it again"
    return Failure.because(Reason.DAEMON_RESTART, words)


def _done(answer: Answer) -> RequestEnd:
    try:
        document = answer.document
        needed = msgspec.convert(document.get("needed", ()), tuple[str, ...])
        if not answer.ok:
            failure = msgspec.convert(answer.error, Failure)
            return RequestEnd(failure, needed, len(answer.line))
    except UNDECODABLE as error:
        words = f"the answer cannot be passed on: {type(error).__name__}"
        return RequestEnd(Failure.because(Reason.INVALID_EVENT, words))
    result = document.get("result")
    whole = result if document.get("whole") is True else None
    success = Success(result, document.get("summary"), whole)
    return RequestEnd(success, needed, len(answer.line))
