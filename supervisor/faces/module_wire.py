"""The wire of docs/protocol.md, with the daemon as the module: a client's lines, and its answers.

Requests are served concurrently; each ends with exactly one `done` that carries its `requestId`.
A request for which the daemon has no room fails with `queue_full`, an answer with `slow_reader`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from protocol.errors import Failure, Pieces, Reason, Success
from protocol.events import Event, Log, Progress
from protocol.frames import ClientFrame, RequestFrame, decode_request, encode_line, named_in
from protocol.host_call import ASKS, UNENCODABLE
from protocol.host_events import ApprovalUiEvent
from protocol.json_line import Fault, shown_id
from protocol.problem import named
from protocol.readdress import readdress, replace_ids
from protocol.response import Response
from supervisor.faces.outbox import TOGETHER_BYTES, Outbox
from supervisor.faces.questions import ClientQuestions, RequestQuestions
from supervisor.kernel.logins import Logins, OpenLogin
from supervisor.kernel.parties import Answered, Begin, Client, Handle, Party, Withdraw
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ARGS
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion
from supervisor.runtime.turns import LOOP

_HTTP = re.compile(rb"[A-Z]+ \S+ HTTP/\d")

_NO_REQUESTS = (b'"jsonrpc"', b'"host_result"')
"""What stands in lines without an operation that are none for another reason."""

OPEN_REQUESTS = 8192
"""Beyond this number of open requests, a client is told to wait for answers."""

LITTLE_BYTES = 4096
"""The args of shorter requests are not counted: a client's open requests have no more of them than
one client may have (`held_bytes.PARTY_BYTES`)."""

TOGETHER, SHORT_BYTES = 128, 1024
"""The number of events of a request that get the client's id together: they are short, and soon
counted."""


class ModuleWire:
    URGENT = (b'"cancel"', b'"host_result"')
    """What stands in lines that pass those that wait."""

    def __init__(
        self,
        begin: Begin,
        party: Party,
        outbox: Outbox,
        *,
        ended: Callable[[], None],
        logins: Logins,
    ) -> None:
        """Call `ended` for each answered request."""
        self._begin = begin
        self._party = party
        self._outbox = outbox
        self._account = outbox.account
        self._told_ended = ended
        self._logins = logins
        self._open: dict[str, LineClient] = {}
        self._nameless: set[LineClient] = set()
        self._questions: ClientQuestions | None = None
        """Once a request may ask."""
        self._of_logins = 0
        """How many of these are asked as a login: they are bounded by login."""

    @property
    def all_answered(self) -> bool:
        return not self._open and not self._nameless

    def serve(self, line: bytes) -> None:
        frame = decode_request(line)
        if type(frame) is Fault:  # `isinstance` of a msgspec type is slow to say no
            self._refuse_line(_told_where(frame, line), self._closed(named_in(line)))
            return
        LOOP.about = frame
        if frame.operation == "cancel":
            self._cancel(frame)
        elif frame.operation is None and any(mark in line for mark in _NO_REQUESTS):
            self._serve_no_request(frame, line)
        elif frame.request_id is not None and frame.request_id in self._open:
            words = f"requestId {named(frame.request_id, 80)} is open already; wait for its answer"
            self._write_done(None, Failure.because(Reason.MALFORMED_REQUEST, words))
        elif (
            len(self._open) + len(self._nameless) >= OPEN_REQUESTS + self._of_logins
            and frame.login is None
        ):
            words = f"more than {OPEN_REQUESTS} requests are open on this connection"
            self._write_done(frame.request_id, Failure.because(Reason.QUEUE_FULL, words))
        else:
            party, account, login = self._party, self._account, None
            if frame.login is not None:
                login = self._find_login(frame.request_id, frame.login)
                if login is None:
                    return
                party, account = login.party, login.party.account
            needed: list[str] | None = [] if frame.mcp else None
            client = LineClient(frame.request_id, self._outbox, self._ended, login, needed=needed)
            if frame.asks is not None and not self._let_ask(client, frame.asks, party):
                return
            if len(line) > LITTLE_BYTES:
                if not account.takes_args(len(line)):
                    self._refuse_large(frame.request_id, len(line))
                    return
                client.size_bytes = len(line)
                account.add(ARGS, len(line))
            if frame.request_id is None:
                self._nameless.add(client)
            else:
                self._open[frame.request_id] = client
            if login is not None:
                login.open[client] = client.cancel
                self._of_logins += 1
            client.handle = self._begin(party, frame.tool, frame.operation, frame.input, client)

    def _serve_no_request(self, frame: ClientFrame, line: bytes) -> None:
        if b'"host_result"' in line:
            questions = self._questions or ClientQuestions(self._outbox, self._begin)
            refusal = questions.answer(line)
            if refusal is not None:
                self._write_done(None, refusal)  # the request that it names may be open
            return
        words = (
            "this is not MCP; `stdiod mcp` speaks MCP on stdin and stdout, or ask for the op"
            ' first: {"tool":"supervisor","operation":"mcp","input":{}}'
        )
        self._write_done(frame.request_id, Failure.because(Reason.MALFORMED_REQUEST, words))

    def _let_ask(self, client: LineClient, asks: list[str], party: Party) -> bool:
        """Let a request ask its client by these methods; False if that was refused."""
        words = None
        unknown = next((one for one in asks if one not in ASKS), None)
        if unknown is not None:
            words = f'"asks" has {named(unknown, 80)}, a client may be asked {", ".join(ASKS)}'
        elif client.request_id is None:
            words = 'a request with "asks" needs a "requestId", which the questions have'
        if words is not None or client.request_id is None:
            failure = Failure.because(Reason.MALFORMED_REQUEST, words or "")
            self._write_done(client.request_id, failure)
            return False
        if self._questions is None:
            self._questions = ClientQuestions(self._outbox, self._begin)
        client.asking = RequestQuestions(self._questions, client.request_id, frozenset(asks), party)
        return True

    def _find_login(self, request_id: str | None, handle: str) -> OpenLogin | None:
        """Return the login as which a request is asked; None if that was refused."""
        found = self._logins.find(handle, self._party)
        if not isinstance(found, Failure):
            if len(found.open) < OPEN_REQUESTS and not found.party.account.is_full:
                return found
            words = f"too much is open that is asked as {handle}; wait for answers"
            found = Failure.because(Reason.QUEUE_FULL, words)
        self._write_done(request_id, found)
        return None

    def refuse_busy(self, line: bytes, words: str) -> None:
        """Refuse a request for which too many wait already."""
        self._write_done(self._closed(named_in(line)), Failure.because(Reason.QUEUE_FULL, words))

    def _refuse_large(self, request_id: str | None, size: int) -> None:
        bounds = self._account.bounds
        words = f"the daemon holds {bounds.principal_args} bytes for the open requests of one"
        words += f" principal, and {bounds.all} for all clients"
        words += f": this request of {size} bytes finds no room"
        words += "; try again when others are answered"
        self._write_done(request_id, Failure.because(Reason.QUEUE_FULL, words))

    def refuse(self, fault: Fault) -> None:
        """Answer a line that was dropped: of it no more is left than its excerpt."""
        shown = shown_id(fault.excerpt.encode())
        # What cannot be printed is replaced in an excerpt: then it is not the client's id.
        self._refuse_line(
            fault, None if shown is None or "\ufffd" in shown else self._closed(shown)
        )

    def cancels_open(self, line: bytes) -> bool:
        """Cancel the open request that a line names, if the line is a cancel.

        The answer to an open question is taken in the same way.
        """
        frame = decode_request(line)
        if isinstance(frame, Fault):
            return False
        is_answer = self._questions is not None and self._questions.is_open(line)
        if is_answer and frame.operation is None and b'"host_result"' in line:
            self._serve_no_request(frame, line)
            return True
        if frame.operation != "cancel":
            return False
        if frame.request_id not in self._open:
            return False  # what it names may wait itself
        self._cancel(frame)
        return True

    def cancelling(self, stopped: Stopped) -> Iterator[None]:
        """Cancel the client's open requests, one with each step."""
        # The last one first: the end of one must not be the beginning of another.
        for client in (*reversed(self._open.values()), *self._nameless):
            client.cancel(stopped)
            yield

    def close(self) -> None:
        self._told_ended = _nothing  # of its conversation, which holds it

    def resume(self) -> None:
        for client in (*self._open.values(), *self._nameless):
            if client.handle is not None:
                client.handle.resume()

    def _cancel(self, frame: RequestFrame) -> None:
        client = self._open.get(frame.request_id or "")
        # A cancel may cross the answer on its way; then there is nothing left to cancel.
        if client is not None:
            client.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def _closed(self, request_id: str | None) -> str | None:
        """Return the id unless it is that of an open request, whose one `done` is to come."""
        return None if request_id in self._open else request_id

    def _refuse_line(self, fault: Fault, request_id: str | None) -> None:
        failure = Failure.because(
            Reason.MALFORMED_REQUEST, fault.message, line_excerpt=fault.excerpt
        )
        self._write_done(request_id, failure)

    def _write_done(self, request_id: str | None, failure: Failure) -> None:
        self._outbox.put(done_line(request_id, Response(failure)))

    def _ended(self, client: LineClient) -> None:
        if client.request_id is None:
            self._nameless.discard(client)
        else:
            self._open.pop(client.request_id, None)
        login = client.login
        if login is not None:
            del login.open[client]
            self._of_logins -= 1
        if client.size_bytes:
            account = self._account if login is None else login.party.account
            account.add(ARGS, -client.size_bytes)
        elif self._open:
            return
        self._told_ended()


class LineClient(Client, msgspec.Struct, eq=False):
    """The client of one request (kernel.parties.Client); a struct is made in half the time."""

    request_id: str | None
    outbox: Outbox
    ended: Callable[[LineClient], None]
    """Called when the request has its answer."""
    login: OpenLogin | None = None
    """The login as which it is asked; None if it is the connection's own."""
    size_bytes: int = 0
    """The counted bytes of the request."""
    asking: RequestQuestions | None = None
    """What it may ask its client; None if nothing."""
    handle: Handle | None = None
    """The request, while it is open."""
    to_gather: list[tuple[Progress, bytes]] = msgspec.field(default_factory=list)
    """The client gets these at the end of this turn, once they have its id."""
    unread_bytes: int = 0
    """The bytes of this request since the client fell behind."""
    needed: list[str] | None = None
    """The methods that only its client could have answered; None if it is no MCP client's."""

    def cancel(self, stopped: Stopped) -> None:
        if self.handle is not None:
            self.handle.cancel(stopped)

    def event(self, event: Progress, line: bytes | None) -> None:
        """Write an event, as the module wrote it if `line` is given."""
        outbox = self.outbox
        if (
            line is not None
            and len(line) <= SHORT_BYTES
            and (outbox.gatherer is self or outbox.awaits(self))
        ):
            self.to_gather.append((event, line))
            if len(self.to_gather) >= TOGETHER:
                outbox.gather()
            return
        told = self._told(event, line)
        outbox.put(told)
        if outbox.congested:
            self.unread_bytes += len(told)
        if line is None and self.asking is not None and isinstance(event, ApprovalUiEvent):
            self.asking.told(event)

    def may_be_asked(self, method: str) -> bool:
        return self.asking is not None and method in self.asking.methods

    def was_needed(self, method: str) -> None:
        if self.needed is not None and not self.may_be_asked(method):
            self.needed.append(method)

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Answered,
    ) -> Withdraw:
        """Ask the client by a `host_call`; returns the function that withdraws it."""
        assert self.asking is not None  # noqa: S101 - `may_be_asked` was asked first
        return self.asking.ask(key, method, params, answered)

    def gathered(self) -> list[bytes]:
        """Return the lines of this turn with the client's id."""
        gathered, self.to_gather = self.to_gather, []
        if len(gathered) > 1:
            ids = {event.request_id for event, _ in gathered}
            if len(ids) == 1:
                lines = [line for _, line in gathered]
                together = replace_ids(lines, ids.pop(), self.request_id)
                if together is not None:
                    return [together]
        return [self._told(event, line) for event, line in gathered]

    def _told(self, event: Progress, line: bytes | None) -> bytes:
        told = None if line is None else readdress(line, event.request_id, self.request_id)
        return event_line(event, self.request_id) if told is None else told

    def finished(self, response: Response) -> None:
        """Write the response as a `done` with its fields."""
        self.handle = None  # they hold each other, and only the garbage collector would see it
        if self.asking is not None:
            self.asking.end()
        if self.needed is not None:
            response = response.for_mcp(self.needed)
        outbox, outcome = self.outbox, response.outcome
        said = outcome.said if type(outcome) is Success else None
        if type(said) is Pieces or (type(said) is msgspec.Raw and len(said) > TOGETHER_BYTES):
            lines = done_pieces(self.request_id, response)
            size = sum(map(len, lines))
        else:
            lines = [done_line(self.request_id, response)]
            size = len(lines[0])
        large = size > outbox.account.bounds.least_free and size > outbox.account.free_bytes
        if (large or outbox.congested) and not outbox.account.takes_answer(size):
            lines = [done_line(self.request_id, _unread(size, outbox.waiting_bytes, response))]
        for line in lines:
            outbox.put(line)
        self.ended(self)

    def congested(self) -> Congestion:
        if not self.outbox.congested:
            self.unread_bytes = 0
            return Congestion.NONE
        # It may have read some of it meanwhile, and what it did not may be of other requests.
        unread = min(self.unread_bytes, self.outbox.waiting_bytes)
        return Congestion.FULL if unread > OVERRUN_BYTES else Congestion.SLOW


def _told_where(fault: Fault, line: bytes) -> Fault:
    """Say of a line of HTTP where that is spoken."""
    if not _HTTP.match(line):
        return fault
    words = "this is not HTTP but lines of JSON; `stdiod up --http HOST:PORT` serves HTTP"
    return msgspec.structs.replace(fault, message=words)


def _unread(size: int, waiting: int, response: Response) -> Response:
    words = (
        f"an answer of {size} bytes was dropped: {waiting} bytes wait for this client to read them,"
        " and there is no room for more"
    )
    failure = Failure.because(Reason.SLOW_READER, words, succeeded=response.ok)
    return msgspec.structs.replace(response, outcome=failure, notices=(), injected=())


def event_line(event: Event, request_id: str | None) -> bytes:
    """Encode an event for a client, with the client's id in place of the module's."""
    named = msgspec.UNSET if request_id is None else request_id
    try:
        return encode_line(msgspec.structs.replace(event, request_id=named))
    except UNENCODABLE as error:
        kind = type(error).__name__
        words = f"a {type(event).__name__} event cannot be passed on: {kind}"
        return encode_line(Log(version="0", request_id=named, level="warn", message=words))


def done_pieces(request_id: str | None, response: Response) -> list[bytes]:
    """Encode the `done` event in pieces, where its result is bytes."""
    try:
        return response.done_pieces(request_id)
    except UNENCODABLE:
        return [done_line(request_id, response)]


def done_line(request_id: str | None, response: Response) -> bytes:
    try:
        return response.done_line(request_id)
    except UNENCODABLE as error:
        # Too deep, or text that is no Unicode, such as a file's name: this request has its
        # answer all the same, and the others on the connection theirs.
        words = f"the answer cannot be passed on: {type(error).__name__}"
        return done_line(request_id, Response(Failure.because(Reason.INVALID_EVENT, words)))


def _nothing() -> None:
    pass
