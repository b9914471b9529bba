"""What the host answers to the calls of one process, on its way to it; bounded in bytes.

A process that calls and does not read is not read from either, once `HIGH_BYTES` wait for it: it
gets no further with its request, and the deadline of that ends it. What it streams from other
modules pauses those meanwhile, as a slow client does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocol.errors import Failure, Reason
from protocol.host_call import encode_error
from protocol.outgoing import Outgoing
from protocol.pi_codes import pi_error

HIGH_BYTES = 1 << 20
"""What may wait while the pipe is full, before the process is not read from any more."""

FULL_BYTES = 32 << 20
"""What may wait at all: of an answer beyond it only the failure to deliver it is sent."""


class Pipe(Protocol):
    """A process's stdin."""

    drained: Callable[[], None]
    """Called each time that it has taken what it had no room for at first."""

    @property
    def half_written(self) -> bool:
        """Whether bytes wait because the process does not read them."""

    def flush(self) -> None:
        """Have what waits written."""


class Stream(Protocol):
    """What sends to the process in pieces, and pauses while there is no room."""

    def resume(self) -> None:
        """Go on: there may be room again."""


class HostResults:
    """The answers to one process, which is not there yet at first, and gone in the end."""

    def __init__(self, instance: str, outgoing: Outgoing) -> None:
        self.instance = instance
        self.on_room: Callable[[], None] = lambda: None
        """Called when there may be room again."""
        self._outgoing = outgoing
        self._pipe: Pipe | None = None
        self._streams: set[Stream] = set()

    def attach(self, pipe: Pipe) -> None:
        """Take note of the process."""
        self._pipe = pipe
        pipe.drained = self._drained

    def detach(self) -> None:
        """Take note that it is gone: what is sent from here on is dropped."""
        self._pipe = None

    @property
    def congested(self) -> bool:
        """Whether the process does not read what it is told."""
        pipe = self._pipe
        waiting = self._outgoing.unasked_bytes
        return waiting > HIGH_BYTES and pipe is not None and pipe.half_written

    @property
    def full(self) -> bool:
        """Whether no more may be added but short failures."""
        return self._outgoing.unasked_bytes > FULL_BYTES

    def send(self, line: bytes) -> None:
        """Have a `host_result` line written."""
        if self._pipe is not None:
            self._outgoing.add(line)
            self._pipe.flush()

    def refuse(
        self,
        request_id: str | None,
        call_id: str,
        words: str,
        reason: Reason = Reason.MALFORMED_REQUEST,
    ) -> None:
        """Answer a call that cannot be served."""
        failure = Failure.because(reason, words)
        self.send(encode_error(request_id, call_id, pi_error(failure)))

    def begin_stream(self, stream: Stream) -> None:
        """Have a stream told when there may be room again."""
        self._streams.add(stream)

    def end_stream(self, stream: Stream) -> None:
        """Forget a stream; idempotent."""
        self._streams.discard(stream)

    def _drained(self) -> None:
        self.on_room()
        for stream in tuple(self._streams):
            stream.resume()
