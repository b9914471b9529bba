"""The dialect seam: the conversation of a process and the daemon, without I/O.

A dialect is a `Connection` for one process. It knows only what the host tells it:

    start()                   the process runs
    ask(request)              the host has a request for the module
    cancel(id, written)       a request was settled without the module
    flow(id, operation)       the events of a request have to pause, or may go on
    answer(asked, outcome)    the host has an answer to a call of the module, or a part of one
    receive_data(data)        the module printed bytes
    receive_eof()             the module will print no more
    process_exited(code)      the process has ended
    time_passed(wait)         one of its `waits` is over

Each returns the events it led to. After *each*, the host takes all events, writes all that lies in
`outgoing`, and begins or ends timers as `waits` says (always through
`supervisor.runtime.process.incarnation`). So a dialect may answer its module without an event.

The events of a start, and of a request:

    start -> Asked*  ->  Ready | StartFailed | StartAgain       (or the process ends)
    ask   -> (EventReceived | Warned | HostCalled | Violated)*  ->  Answered | Unanswered

- Every request ends once: those of `ask`, and the connection's own, which it reports with `Asked`.
  A cancel is such an end, and has no event.
- `ask` may answer at once. A process per invocation is asked before it is spawned, since its
  `arguments` may depend on that, and is not spawned if it has answered.
- The handshake is the dialect's, and its time limits are in its `waits`. Until it is ready nothing
  is asked, unless the process serves one request only.
- The exit is an input too, because Spec 001 5.3 makes it decisive.
- A peer's fault is an event, never an exception; `LocalError` is raised when the host itself breaks
  a rule of this interface.
- A dialect has no clock and no randomness: its own ids come from `new_id`, and the host hands on
  the facts for the next process of the same module (`memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from protocol.errors import Failure, Outcome, Reason
from protocol.events import CallEvent, Log
from protocol.framing import Outgoing, Written
from protocol.host_call import Chunk, HostCall
from protocol.json_line import Fault
from protocol.problem import printable
from protocol.replies import Operation

# docs/protocol.md: what a tolerant module may print where it is not taken for an answer. A line of
# another version, of an unknown type, too long or cut off is a fault under either policy.
TOLERABLE = frozenset(
    {Reason.MALFORMED_JSON, Reason.NOT_OBJECT, Reason.INVALID_UTF8, Reason.INVALID_EVENT}
)


ID_CHARS = 80
"""Of an id that a module made up, in words."""


LOOK_AGAIN = "look_again"
"""The `op` of a `describe` that is answered after the module has been asked for its ops anew."""


class LocalError(Exception):
    """The host used a connection in a way its rules forbid."""


class Flow(StrEnum):
    """The pace of a request's events, as a module is told of it."""

    PAUSE = "pause"
    RESUME = "resume"


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request to a process; `request_id` is unique among the host's requests."""

    request_id: str
    operation: Operation
    op: str = ""
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    session_id: str | None = None
    traceparent: str | None = None
    """The invocation's; for an invocation without a trace, only in dialects with `span_attributes`.
    """


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line or value that was not accepted and was carried on without; an entry of `warnings`."""

    reason: str
    message: str
    line_excerpt: str | None = None

    @classmethod
    def of(cls, fault: Fault) -> Notice:
        noise = fault.reason in TOLERABLE
        words = fault.message
        if noise:
            words += "; use stderr for anything that is not an answer"
        return cls(str(fault.reason), words, fault.excerpt)

    @property
    def words(self) -> str:
        shown = self.line_excerpt
        return self.message if shown is None else f"{self.message}: {shown}"

    @property
    def in_place_of_answer(self) -> str:
        """The line printed where an answer was expected, as a clause; empty if there was none."""
        if self.line_excerpt is None or self.reason not in TOLERABLE:
            return ""
        return f"the last line it printed is not an answer: {self.line_excerpt} ({self.message})"

    @property
    def evidence(self) -> dict[str, Any]:
        return {"line_excerpt": self.line_excerpt}


class Wait(msgspec.Struct, frozen=True, gc=False):
    """A bound on a connection's wait, in words that end "it waited for".

    The wait begins when the object first stands in `waits`, and is over once: another wait takes
    another object.
    """

    seconds: float
    for_what: str


# Events of a request.


class EventReceived(msgspec.Struct, frozen=True, gc=False):
    """An event of an open request.

    `line` is the module's own line, with the fields that `event` has no place for, but without
    those that clients do not get (`host_events`). `readdress` passes it on; None stands for the
    encoding of `event`.
    """

    request_id: str
    event: CallEvent
    line: bytes | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The module's last word on an open request.

    For a per-invocation process it is not the verdict yet: the exit status is part of that. `fault`
    is the bad line that stands in the place of an answer, if one does; `codes` are the exit codes
    of a per-invocation process with which the answer stands.
    """

    request_id: str
    outcome: Outcome
    fault: Fault | None = None
    codes: tuple[int, ...] = (0,)


class Unanswered(msgspec.Struct, frozen=True):
    """The process ended without a last word on an open request; `error` is the last reported."""

    request_id: str
    error: Failure | None = None


class Asked(msgspec.Struct, frozen=True):
    """A request of the handshake is open, which was not `ask`ed."""

    request: Request


class Warned(msgspec.Struct, frozen=True):
    request_id: str
    notice: Notice


class Violated(msgspec.Struct, frozen=True):
    """The request cannot end well any more: processing has ended, the process has to be stopped."""

    request_id: str
    fault: Fault


class HostCalled(msgspec.Struct, frozen=True):
    """A call of the module to the host, of `size_bytes`.

    Without an id it belongs to no request. `call.call_id` is unique among the open calls of its
    request, or of none.
    """

    request_id: str | None
    call: HostCall
    size_bytes: int


# Events of the process.


class Ready(msgspec.Struct, frozen=True):
    """The handshake has succeeded.

    `description` is the answer to `describe` (`DescribeReply`). `why` is a clause without its
    subject, with the evidence.
    """

    description: dict[str, Any]
    why: str = "is ready to serve"


class StartFailed(msgspec.Struct, frozen=True):
    """The handshake has failed: a reason as a word, and a clause without its subject."""

    reason: str
    message: str
    bound: str = ""
    """The timeout that was exceeded, if nothing more is known."""


class StartAgain(msgspec.Struct, frozen=True):
    """The handshake needs a fresh process.

    The host spawns one, once per start. A process that ended because of a question of the handshake
    is no crash then. `why` is a clause without its subject.
    """

    why: str


class Described(msgspec.Struct, frozen=True):
    description: dict[str, Any]


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource, or one below it, has changed: its followers may read it again."""

    uri: str


class Notified(msgspec.Struct, frozen=True):
    """A notification of an extension, which has no meaning here; its line has `size_bytes`."""

    method: str
    params: dict[str, Any]
    size_bytes: int


class Alive(msgspec.Struct, frozen=True):
    """The module showed that it is not stuck: with the request of that id, or altogether."""

    request_id: str | None = None


class OutOfStep(msgspec.Struct, frozen=True):
    """The next line could be taken for another answer.

    The process has to be replaced. `why` is a clause without its subject.
    """

    why: str


class Quarantined(msgspec.Struct, frozen=True):
    fault: Fault


class Stray(msgspec.Struct, frozen=True):
    """A line for a request that is not open.

    Answered before, given up, or never made. `named` is the id in the line, unless the request of
    that id was given up.
    """

    excerpt: str
    named: str | None = None
    words: str = ""
    """Why the line answers no request, if the dialect can say; every open request reports it."""

    @property
    def in_place_of_answer(self) -> str:
        """As `Notice.in_place_of_answer`."""
        if self.named is None or self.words:
            return self.words
        return (
            f"a line came for request '{printable(self.named, ID_CHARS)}', which is not open: is "
            "each request answered once, with its own requestId?"
        )

    @property
    def warning(self) -> str:
        """The words and the line for `status` and the log; empty if its request was given up."""
        words = self.in_place_of_answer
        return f"{words}: {self.excerpt}" if words else ""

    @property
    def evidence(self) -> dict[str, Any]:
        return {"line_excerpt": self.excerpt, "stray_id": self.named}


class Logged(msgspec.Struct, frozen=True):
    event: Log
    is_finding: bool = False
    """Whether the dialect itself reports a fault of a definition; else the module logged it."""


OfRequest = EventReceived | Answered | Unanswered | Asked | Warned | Violated | HostCalled
OfProcess = (
    Ready
    | StartFailed
    | StartAgain
    | Described
    | ResourceUpdated
    | Notified
    | Alive
    | OutOfStep
    | Quarantined
    | Stray
    | Logged
)
Received = OfRequest | OfProcess

Events = Sequence[Received]

NOTHING: Events = ()

NewId = Callable[[], str]
"""Makes an id that no other request of the host has."""

Memory = dict[str, Any]
"""State that connections of one module leave to later ones, such as the version it speaks. JSON,
read from `start` on; it may come from an earlier daemon and be out of date."""


class Connection:
    """A dialect for one process; the defaults are of one that serves one invocation and ends.

    No method raises for the fault of the process.
    """

    outgoing: Outgoing
    """Bytes to be written, which can be taken back."""

    closes_stdin = False
    """Whether the process sees the end of its input once the request is written."""

    arguments: tuple[str, ...] = ()
    """Added to the command of a process per invocation, after the request was asked."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The current waits; another tuple whenever they have changed."""
        return ()

    @property
    def unfinished_line(self) -> str | None:
        """The beginning of a line that was printed without a newline yet."""
        return None

    def start(self) -> Events:
        return NOTHING

    def ask(self, request: Request) -> Events:
        """Open a request; raises `LocalError` if it may not be asked now."""
        raise LocalError(f"request {request.request_id} cannot be asked of this process")

    def cancel(self, request_id: str, written: Written) -> Events:
        """Forget a request that the host has settled, and tell the module if it can be told.

        `written` says how much of the request the process has got; a module cannot use a part, and
        the host replaces it then. An unknown id is ignored.
        """
        del request_id, written
        return NOTHING

    def flow(self, request_id: str, operation: Flow) -> Events:
        """Tell the module that the events of a request are not read for now, or are read again.

        Does nothing if the module can't be told or the request is not open; the host ends a request
        that goes on.
        """
        del request_id, operation
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Answer a call.

        A result that cannot be encoded becomes a failure that says so. `chunk` says which part of
        an answer in several it is.
        """
        del outcome, chunk
        raise LocalError(f"no call {asked.call.call_id!r} was made")

    def receive_data(self, data: bytes) -> Events:
        del data
        return NOTHING

    def receive_eof(self) -> Events:
        """Take the end of stdout; its last line may lack a newline."""
        return NOTHING

    def process_exited(self, code: int | None) -> Events:
        """Take the end of the process, with its exit code if it has one; no request stays open."""
        del code
        return NOTHING

    def time_passed(self, wait: Wait) -> Events:
        del wait
        return NOTHING
