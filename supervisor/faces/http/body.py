"""A JSON body, piece by piece: counted while it comes, decoded once it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.amcp_errors import ErrorCode
from protocol.frames import DEPTH
from protocol.json_line import Fault, read_object
from protocol.weight import LONG_BYTES, MOST_VALUES, ValueCount, collector_paused, is_deeper
from supervisor.faces.http.head import Refusal
from supervisor.runtime.held_bytes import Account

BODY_BYTES = 16 << 20
"""As a line of the control socket may have."""


class Body:
    """The body of a request, or a message, while it comes."""

    def __init__(self, account: Account, dropped: Callable[[], None]) -> None:
        """Count for `account`; `dropped` is called if that has no room."""
        self._account = account
        self._dropped = dropped
        self._data = bytearray()
        self.is_begun = False
        self._held = 0
        self._values: ValueCount | None = None

    def add(self, data: bytes) -> None:
        """Raises `Refusal`."""
        whole = self._data
        whole += data
        self.is_begun = True
        if len(whole) > BODY_BYTES:
            raise too_large()
        if len(whole) > LONG_BYTES:
            if self._values is None:
                self._values, data = ValueCount(), bytes(whole)
            if self._values.feed(data) > MOST_VALUES:
                words = f"the body holds more than {MOST_VALUES} values"
                raise Refusal(ErrorCode.BAD_REQUEST, words, status=413)

    def hold(self) -> None:
        """Count the unfinished body in the account."""
        size = len(self._data)
        if size != self._held:
            self._held = size
            self._account.hold_unfinished(size, self._dropped)

    def take(self) -> bytes:
        """Return the whole body, and begin the next one."""
        if not self.is_begun:
            return b""
        data, self._data, self._values = bytes(self._data), bytearray(), None
        self.is_begun = False
        self.hold()
        return data


def read_body(data: bytes, noun: str = "body") -> dict[str, Any]:
    """Raises `Refusal`, which calls the data the `noun`."""
    if len(data) > LONG_BYTES:
        with collector_paused():
            found = read_object(data)
    else:
        found = read_object(data)
    if isinstance(found, Fault):
        code = ErrorCode.VALIDATION_ERROR
        if found.reason != "not_object":
            code = ErrorCode.INVALID_JSON
        raise Refusal(code, found.message.replace("the line", f"the {noun}"))
    if is_deeper(found, DEPTH, data):
        words = f"the {noun} is nested more than {DEPTH} levels deep"
        raise Refusal(ErrorCode.VALIDATION_ERROR, words)
    return found


def too_large(most: int = BODY_BYTES) -> Refusal:
    words = f"the body is longer than the {most} bytes that it may have"
    return Refusal(ErrorCode.BAD_REQUEST, words, status=413)
