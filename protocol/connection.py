"""The seam between what a process says and what the daemon does with it, without I/O.

A dialect implements `Connection` for one process: requests and bytes go in, typed values come out,
and bytes to write are taken with `data_to_send`. The end of the output and the exit of the process
are inputs too (`receive_eof`, `process_exited`), because Spec 001 5.3 makes the exit decisive.
A peer's fault is a value in what is received, never an exception; `LocalError` is raised when the
host itself breaks a rule of this interface.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from protocol.errors import Outcome, Reason
from protocol.events import Log, Progress
from protocol.host_call import HostCall
from protocol.json_line import Fault
from protocol.outgoing import Outgoing
from protocol.replies import Operation

# docs/protocol.md: what a tolerant module may print among its events. A line of another
# version, of an unknown type, too long or cut off is a fault under either policy.
TOLERABLE = frozenset(
    {Reason.MALFORMED_JSON, Reason.NOT_OBJECT, Reason.INVALID_UTF8, Reason.INVALID_EVENT}
)


class LocalError(Exception):
    """The host used a connection in a way its rules forbid."""


class Request(msgspec.Struct, frozen=True):
    """One thing asked of a process; `request_id` is unique among the host's requests."""

    request_id: str
    operation: Operation
    op: str = ""
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    session_id: str | None = None


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something the host did not accept and carried on: an entry of a response's `warnings`."""

    reason: str
    message: str
    line_excerpt: str | None = None

    @classmethod
    def of(cls, fault: Fault) -> Notice:
        """Quarantine a faulty line."""
        return cls(str(fault.reason), fault.message, fault.excerpt)


class EventReceived(msgspec.Struct, frozen=True, gc=False):
    """An event of an open request.

    `line` says the same as the module put it, with the fields that `event` has no place for, but
    for those that a client is not to be told (`extended_event`). It is passed on by `readdress`;
    None stands for what `event` encodes to.
    """

    request_id: str
    event: Progress
    line: bytes | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The module's last word on an open request.

    Of a per-invocation process it is not the verdict yet: the exit status is part of that.
    `fault` is the bad line that stands in the place of an answer, if one does.
    """

    request_id: str
    outcome: Outcome
    fault: Fault | None = None


class Warned(msgspec.Struct, frozen=True):
    """Something about an open request was not accepted; the request goes on."""

    request_id: str
    notice: Notice


class Quarantined(msgspec.Struct, frozen=True):
    """A line that belongs to no request and cannot be accepted."""

    fault: Fault


class Stray(msgspec.Struct, frozen=True):
    """A line for a request that is not open: answered before, given up, or never made."""

    excerpt: str


class ModuleLog(msgspec.Struct, frozen=True):
    """A `log` event outside any request."""

    event: Log


class Violated(msgspec.Struct, frozen=True):
    """The request cannot end well any more: processing has ended, the process is to be stopped."""

    request_id: str
    fault: Fault


class HostCalled(msgspec.Struct, frozen=True):
    """A call of the module to the host, while it serves an open request; `size_bytes` of line."""

    request_id: str
    call: HostCall
    size_bytes: int


class HostCallRefused(msgspec.Struct, frozen=True):
    """A call that cannot be served, and is to be told why.

    `stray` says that the request it names is not open.
    """

    request_id: str | None
    call_id: str
    message: str
    stray: bool = False


Received = (
    EventReceived
    | Answered
    | Warned
    | Quarantined
    | Stray
    | ModuleLog
    | Violated
    | HostCalled
    | HostCallRefused
)


class Connection(Protocol):
    """What a dialect does for one process."""

    @property
    def outgoing(self) -> Outgoing:
        """What `data_to_send` has to return, where it can be taken back."""

    @property
    def closes_stdin(self) -> bool:
        """Whether the process is to see the end of its input once the request is written."""

    @property
    def unfinished_line(self) -> str | None:
        """The beginning of what was printed without a newline, if anything was."""

    def send_request(self, request: Request) -> None:
        """Queue a request to be written; raises `LocalError` if it may not be sent now."""

    def send_cancel(self, request_id: str) -> bool:
        """Queue a cancel for an open request; False if the module does not know `cancel`."""

    def allow_features(self, features: frozenset[str]) -> None:
        """Take note of the optional features that the module's `describe` named."""

    def abandon(self, request_id: str) -> bool:
        """Give up an open request; False if a late answer could be taken for another request's."""

    def data_to_send(self) -> bytes:
        """Return the bytes to write, and forget them."""

    def receive_data(self, data: bytes) -> list[Received]:
        """Take bytes the process printed."""

    def receive_eof(self) -> list[Received]:
        """Take the end of what the process prints; its last line may lack a newline."""

    def process_exited(self) -> list[str]:
        """Take the end of the process; return the ids of requests it left unanswered."""
