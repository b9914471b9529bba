"""One request of a client and its answer, as lines for its outbox."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from protocol.errors import Failure, Reason
from protocol.events import Event, Log, Progress
from protocol.frames import encode_line
from protocol.readdress import Readdresser
from protocol.response import Response
from supervisor.faces.outbox import Outbox
from supervisor.kernel.parties import Handle
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion

UNENCODABLE = (RecursionError, UnicodeError, TypeError, ValueError, OverflowError)
"""What `encode_line` may raise over a value it was given."""


TOGETHER = 128
"""As many events of a request get the client's id together: they are small, and soon counted."""


class Exchange:
    """The client of one request (kernel.parties.Client)."""

    __slots__ = (
        "_ended",
        "_gathered",
        "_outbox",
        "_readdresser",
        "_unread_bytes",
        "handle",
        "request_id",
        "size_bytes",
    )

    def __init__(
        self,
        request_id: str | None,
        outbox: Outbox,
        ended: Callable[[Exchange], None],
    ) -> None:
        """Tell `ended` when it has its answer."""
        self.request_id = request_id
        self.size_bytes = 0
        """What its request is counted as."""
        self.handle: Handle | None = None
        """The request, while it is open."""
        self._outbox = outbox
        self._ended = ended
        self._readdresser: Readdresser | None = None
        self._gathered: list[tuple[Progress, bytes]] = []
        """What its client gets at the end of this turn, once it has the id."""
        self._unread_bytes = 0
        """What came of it since its client keeps up no more."""

    def event(self, event: Progress, line: bytes | None) -> None:
        """Write an event, in the module's own words if `line` has them."""
        if line is not None:
            readdresser = self._readdresser
            if readdresser is None:
                readdresser = self._readdresser = Readdresser(self.request_id)
            outbox = self._outbox
            if readdresser.proves(line) and (outbox.gatherer is self or outbox.awaits(self)):
                self._gathered.append((event, line))
                if len(self._gathered) >= TOGETHER:
                    outbox.gather()
                return
            if self._gathered:
                outbox.gather()  # before the next one is looked at, and what is proved is another
        told = self._told(event, line)
        self._outbox.put(told)
        if self._outbox.congested:
            self._unread_bytes += len(told)

    def gathered(self) -> list[bytes]:
        """Return the lines of this turn with the client's id (outbox.Gatherer)."""
        gathered, self._gathered = self._gathered, []
        if self._readdresser is not None and len(gathered) > 1:
            together = self._readdresser.readdress_all([line for _, line in gathered])
            if together is not None:
                return [together]
        return [self._told(event, line) for event, line in gathered]

    def _told(self, event: Progress, line: bytes | None) -> bytes:
        told = None
        if line is not None and self._readdresser is not None:
            told = self._readdresser.readdress(line)
        return event_line(event, self.request_id) if told is None else told

    def finished(self, response: Response) -> None:
        """Write the response as a `done` with its fields."""
        self.handle = None  # they hold each other, and only the garbage collector would see it
        line = done_line(self.request_id, response)
        outbox = self._outbox
        large = outbox.congested or len(line) > outbox.account.free_bytes
        if large and not outbox.account.takes_answer(len(line)):
            line = done_line(self.request_id, _unread(len(line), outbox.waiting_bytes, response))
        outbox.put(line)
        self._ended(self)

    def congested(self) -> Congestion:
        """Whether the client does not keep up."""
        if not self._outbox.congested:
            self._unread_bytes = 0
            return Congestion.NONE
        # It may have read some of it meanwhile, and what it did not may be of other requests.
        unread = min(self._unread_bytes, self._outbox.waiting_bytes)
        return Congestion.FULL if unread > OVERRUN_BYTES else Congestion.SLOW


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


def done_line(request_id: str | None, response: Response) -> bytes:
    """Encode the `done` event that ends a request."""
    try:
        document = response.document(built=False)
        named = {} if request_id is None else {"requestId": request_id}
        return encode_line({"version": "0", "type": "done", **named, **document})
    except UNENCODABLE as error:
        # Too deep, or text that is no Unicode, such as a file's name: this request has its
        # answer all the same, and the others on the connection theirs.
        words = f"the answer cannot be passed on: {type(error).__name__}"
        return done_line(request_id, Response(Failure.because(Reason.INVALID_EVENT, words)))
