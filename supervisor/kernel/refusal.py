"""The way an op of the daemon ends without a result."""

from __future__ import annotations

from protocol.errors import Failure


class RefusedError(Exception):
    """An op ends with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
