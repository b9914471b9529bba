"""The dialect seam: what a process and the daemon say to each other, without I/O.

A dialect is a `Connection` for one process. The host tells it what happens, and it has no
other way to know:

    start()                   the process runs
    ask(request)              something is wanted of the module
    cancel(id, written)       a request was settled without it
    flow(id, operation)       what it streams for a request is to pause, or to go on
    answer(asked, outcome)    the host has an answer to a call of the module's, or a part of one
    receive_data(data)        the module printed bytes
    receive_eof()             it will print no more
    process_exited(code)      the process has ended
    time_passed(wait)         one of its `waits` is over
    sent(line)                a replay: this line was written to such a process before

Each returns the events it led to. After *each*, the host takes all events, writes all that lies in
`outgoing`, and begins or ends timers as `waits` says (`supervisor.runtime.process.dialogue`, which
nobody goes around). So a dialect may answer its module without having an event to tell.

What comes of a start, and of a request:

    start -> Asked*  ->  Ready | StartFailed | StartAgain       (or the process ends)
    ask   -> (EventReceived | Warned | HostCalled | Violated)*  ->  Answered | Unanswered

- Every request ends once: those of `ask`, and those that the connection makes itself and tells of
  with `Asked`. A cancel is such an end, and has no event.
- `ask` may answer at once. A process per invocation is asked before it is spawned, since its
  `arguments` may depend on that, and is not spawned if it has answered.
- The handshake is the dialect's, and what it needs in time is in its `waits`. Until it is ready
  nothing is asked, unless the process serves but one request.
- The exit is an input too, because Spec 001 5.3 makes it decisive.
- A peer's fault is an event, never an exception; `LocalError` is raised when the host itself breaks
  a rule of this interface.
- It has no clock and draws no lots: ids of its own come from `new_id`, and what the next process of
  the same module should know (`memory`) is handed on by the host.
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

# docs/protocol.md: what a tolerant module may print where nobody takes it for an answer. A line of
# another version, of an unknown type, too long or cut off is a fault under either policy.
TOLERABLE = frozenset(
    {Reason.MALFORMED_JSON, Reason.NOT_OBJECT, Reason.INVALID_UTF8, Reason.INVALID_EVENT}
)


ID_CHARS = 80
"""Of an id that a module made up, in words."""


LOOK_AGAIN = "look_again"
"""The `op` of a `describe` that is answered when the module has been asked for its ops anew."""


class LocalError(Exception):
    """The host used a connection in a way its rules forbid."""


class Flow(StrEnum):
    """What a module is told of the pace of a request."""

    PAUSE = "pause"
    RESUME = "resume"


class Request(msgspec.Struct, frozen=True, gc=False):
    """One thing asked of a process; `request_id` is unique among the host's requests."""

    request_id: str
    operation: Operation
    op: str = ""
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    session_id: str | None = None
    traceparent: str | None = None
    """That of the invocation; of one that belongs to no trace, only for who has
    `span_attributes`."""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something the host did not accept and carried on: an entry of a response's `warnings`."""

    reason: str
    message: str
    line_excerpt: str | None = None

    @classmethod
    def of(cls, fault: Fault) -> Notice:
        """Quarantine a faulty line."""
        noise = fault.reason in TOLERABLE
        words = fault.message
        if noise:
            words += "; use stderr for anything that is not an answer"
        return cls(str(fault.reason), words, fault.excerpt)

    @property
    def words(self) -> str:
        """What is said, with the line that it is about."""
        shown = self.line_excerpt
        return self.message if shown is None else f"{self.message}: {shown}"

    @property
    def in_place_of_answer(self) -> str:
        """Say as a clause what was printed where an answer was waited for; empty if nothing was."""
        if self.line_excerpt is None or self.reason not in TOLERABLE:
            return ""
        return f"the last line it printed is not an answer: {self.line_excerpt} ({self.message})"

    @property
    def evidence(self) -> dict[str, Any]:
        """Return the line, for `details`."""
        return {"line_excerpt": self.line_excerpt}


class Wait(msgspec.Struct, frozen=True, gc=False):
    """How long a connection waits at most for something, in words that end "it waited for".

    It begins when the object first stands in `waits`, and is over once: to wait again takes
    another object.
    """

    seconds: float
    for_what: str


# Events of a request.


class EventReceived(msgspec.Struct, frozen=True, gc=False):
    """An event of an open request.

    `line` says the same as the module put it, with the fields that `event` has no place for, but
    for those that a client is not to be told (`extended_event`). It is passed on by `readdress`;
    None stands for what `event` encodes to.
    """

    request_id: str
    event: CallEvent
    line: bytes | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The module's last word on an open request.

    Of a per-invocation process it is not the verdict yet: the exit status is part of that.
    `fault` is the bad line that stands in the place of an answer, if one does; `codes` are the exit
    codes of a per-invocation process with which it stands.
    """

    request_id: str
    outcome: Outcome
    fault: Fault | None = None
    codes: tuple[int, ...] = (0,)


class Unanswered(msgspec.Struct, frozen=True):
    """The process has ended without a last word on an open request.

    `error` is what the module told of last, if it did.
    """

    request_id: str
    error: Failure | None = None


class Asked(msgspec.Struct, frozen=True):
    """A request is open that was not `ask`ed: the handshake's, or one that `sent` read again."""

    request: Request


class Warned(msgspec.Struct, frozen=True):
    """Something about an open request was not accepted; the request goes on."""

    request_id: str
    notice: Notice


class Violated(msgspec.Struct, frozen=True):
    """The request cannot end well any more: processing has ended, the process is to be stopped."""

    request_id: str
    fault: Fault


class HostCalled(msgspec.Struct, frozen=True):
    """A call of the module to the host, of `size_bytes`; without an id it is of no request.

    `call.call_id` is unique among the open calls of its request, or of none.
    """

    request_id: str | None
    call: HostCall
    size_bytes: int


# Events of the process.


class Ready(msgspec.Struct, frozen=True):
    """The handshake is over; `description` has what `describe` answers (`DescribeReply`).

    `why` is a clause without its subject that says what shows it.
    """

    description: dict[str, Any]
    why: str = "is ready to serve"


class StartFailed(msgspec.Struct, frozen=True):
    """The handshake came to a bad end: a reason as a word, and a clause without its subject."""

    reason: str
    message: str
    bound: str = ""
    """The timeout that was passed, if nothing more is known."""


class StartAgain(msgspec.Struct, frozen=True):
    """The handshake needs a process that has heard nothing yet; the host spawns one, once a start.

    A process that ended because of what it was asked is no crash then. `why` is a clause without
    its subject.
    """

    why: str


class Described(msgspec.Struct, frozen=True):
    """The module is something else now than it said before."""

    description: dict[str, Any]


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource is another one than it was, or one below it: who follows it may read it again."""

    uri: str


class Notified(msgspec.Struct, frozen=True):
    """A notification of an extension, which means nothing here: its line has `size_bytes`."""

    method: str
    params: dict[str, Any]
    size_bytes: int


class Alive(msgspec.Struct, frozen=True):
    """The module showed that it is not stuck: with a request of that id, or altogether."""

    request_id: str | None = None


class OutOfStep(msgspec.Struct, frozen=True):
    """What comes next could be taken for something else: the process is to be replaced.

    `why` is a clause without its subject.
    """

    why: str


class Quarantined(msgspec.Struct, frozen=True):
    """A line that belongs to no request and cannot be accepted."""

    fault: Fault


class Stray(msgspec.Struct, frozen=True):
    """A line for a request that is not open: answered before, given up, or never made.

    `named` is the id that it names, unless that is of a request that was given up.
    """

    excerpt: str
    named: str | None = None
    words: str = ""
    """Why the line answers no request, if the dialect can say; told to each open request."""

    @property
    def in_place_of_answer(self) -> str:
        """As `Notice` has it."""
        if self.named is None or self.words:
            return self.words
        return (
            f"a line came for request '{printable(self.named, ID_CHARS)}', which is not open: is "
            "each request answered once, with its own requestId?"
        )

    @property
    def warning(self) -> str:
        """The words and the line, for `status` and the log; empty if its request was given up."""
        words = self.in_place_of_answer
        return f"{words}: {self.excerpt}" if words else ""

    @property
    def evidence(self) -> dict[str, Any]:
        """Return the line and its id, for `details`."""
        return {"line_excerpt": self.excerpt, "stray_id": self.named}


class ModuleLog(msgspec.Struct, frozen=True):
    """A `log` event outside any request."""

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
    | ModuleLog
)
Received = OfRequest | OfProcess

Events = Sequence[Received]

NOTHING: Events = ()
"""What most verbs lead to."""

NewId = Callable[[], str]
"""Gives an id that no other request of the host has."""

Memory = dict[str, Any]
"""What connections of one module leave to those that follow, such as which version it speaks.

Read from `start` on. It is JSON, and may be of an earlier daemon: it can be wrong by now."""


class Connection:
    """A dialect for one process; the defaults are of one that serves one invocation and ends.

    No method raises for the fault of the process.
    """

    outgoing: Outgoing
    """What is to be written, and where it can be taken back."""

    closes_stdin = False
    """Whether the process is to see the end of its input once the request is written."""

    arguments: tuple[str, ...] = ()
    """What is added to the command of a process per invocation, once that was asked."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        """How long it waits, and for what; another tuple whenever that has changed."""
        return ()

    @property
    def unfinished_line(self) -> str | None:
        """The beginning of what was printed without a newline, if anything was."""
        return None

    def start(self) -> Events:
        """Begin the handshake: the process runs."""
        return NOTHING

    def ask(self, request: Request) -> Events:
        """Open a request; raises `LocalError` if it may not be asked now."""
        raise LocalError(f"request {request.request_id} cannot be asked of this process")

    def cancel(self, request_id: str, written: Written) -> Events:
        """Forget a request that the host has settled, and tell the module if it can be told.

        `written` is how much of it the process has got; of a part it makes nothing, and the host
        replaces it. Without an open request of that id, do nothing.
        """
        del request_id, written
        return NOTHING

    def flow(self, request_id: str, operation: Flow) -> Events:
        """Tell the module that the events of a request are not read for now, or are again.

        Do nothing if it can't be told, or the request is not open: it is ended if it goes on.
        """
        del request_id, operation
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Answer a call; a result that cannot be told becomes the failure to tell it.

        `chunk` says which part it is of an answer in several.
        """
        del outcome, chunk
        raise LocalError(f"no call {asked.call.call_id!r} was made")

    def receive_data(self, data: bytes) -> Events:
        """Take bytes the process printed."""
        del data
        return NOTHING

    def receive_eof(self) -> Events:
        """Take the end of what the process prints; its last line may lack a newline."""
        return NOTHING

    def process_exited(self, code: int | None) -> Events:
        """Take the end of the process, with its exit code if it has one: no request is open now."""
        del code
        return NOTHING

    def time_passed(self, wait: Wait) -> Events:
        """Take note that so much time has passed since `wait` began."""
        del wait
        return NOTHING

    def sent(self, line: bytes) -> Events:
        """Take a line that another connection of this dialect wrote, and do what led to it.

        What is written because of that is no matter: it has been. A line that means nothing here
        is ignored.
        """
        del line
        return NOTHING
