"""One request of a client and its answer, as lines for its outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Event, Log, Progress
from protocol.frames import encode_line
from protocol.readdress import Readdresser
from protocol.response import Response
from supervisor.faces.outbox import Outbox
from supervisor.kernel.invocation import Invocation
from supervisor.policy.verdict import Stopped

UNENCODABLE = (RecursionError, UnicodeError, TypeError, ValueError, OverflowError)
"""What `encode_line` may raise over a value it was given."""


class Exchange:
    """One request and its answer; the pipeline's client (kernel.invocations.Client)."""

    def __init__(
        self, request_id: str | None, outbox: Outbox, ended: Callable[[Exchange], None]
    ) -> None:
        self.request_id = request_id
        self.invocation: Invocation | None = None
        self.scope: trio.CancelScope | None = None
        """Of the task that sees to it, if it needs one."""
        self._outbox = outbox
        self._ended = ended
        self._finished = False
        self._readdresser: Readdresser | None = None

    def event(self, event: Progress, line: bytes | None) -> None:
        """Write an event, in the module's own words if `line` has them."""
        told = None
        if line is not None:
            if self._readdresser is None:
                self._readdresser = Readdresser(self.request_id)
            told = self._readdresser.readdress(line)
        self._outbox.put(event_line(event, self.request_id) if told is None else told)

    async def emit(self, event: Progress | None) -> None:
        """Write an event once there is room; None only waits for that."""
        await self._outbox.wait_room()
        if event is not None:
            self.event(event, None)

    def finished(self, response: Response) -> None:
        """Write the response of an invocation as a `done` with its fields."""
        envelope = _envelope(self.request_id)
        self._end({**envelope, **response.document()})

    def finish(self, outcome: Outcome) -> None:
        """Write the end of one of the daemon's own operations."""
        self._end(done_document(self.request_id, outcome))

    @property
    def is_finished(self) -> bool:
        """Whether it has its answer."""
        return self._finished

    def congested(self) -> bool:
        """Whether the client does not keep up."""
        return self._outbox.congested

    def cancel(self, stopped: Stopped) -> None:
        """Give the request up; its one answer says so."""
        if self.invocation is not None:
            self.invocation.give_up(stopped)
        elif not self._finished:
            if self.scope is not None:
                self.scope.cancel()
            self.finish(Failure.because(stopped.reason, stopped.message))

    def _end(self, document: dict[str, Any]) -> None:
        if self._finished:
            return
        self._finished = True
        self.invocation = None  # they hold each other, and only the garbage collector would see it
        try:
            line = encode_line(document)
        except UNENCODABLE as error:
            # Too deep, or text that is no Unicode, such as a file's name: this request has its
            # answer all the same, and the others on the connection theirs.
            words = f"the answer cannot be passed on: {type(error).__name__}"
            failure = Failure.because(Reason.INVALID_EVENT, words)
            line = encode_line(done_document(self.request_id, failure))
        self._outbox.put(line)
        self._ended(self)


def event_line(event: Event, request_id: str | None) -> bytes:
    """Encode an event for a client, with the client's id in place of the module's."""
    named = msgspec.UNSET if request_id is None else request_id
    try:
        return encode_line(msgspec.structs.replace(event, request_id=named))
    except UNENCODABLE as error:
        kind = type(error).__name__
        words = f"a {type(event).__name__} event cannot be passed on: {kind}"
        return encode_line(Log(version="0", request_id=named, level="warn", message=words))


def done_document(request_id: str | None, outcome: Outcome) -> dict[str, Any]:
    """Return the `done` event that ends a request."""
    document = _envelope(request_id)
    if isinstance(outcome, Success):
        document |= {"ok": True, "result": outcome.result}
    else:
        error = {"code": outcome.code, "message": outcome.message, "details": outcome.details}
        document |= {"ok": False, "error": error}
    if outcome.summary is not None:
        document["summary"] = outcome.summary
    return document


def _envelope(request_id: str | None) -> dict[str, Any]:
    envelope: dict[str, Any] = {"version": "0", "type": "done"}
    if request_id is not None:
        envelope["requestId"] = request_id
    return envelope
