"""Whether lines without an id can be paired with requests, and how the pairing is regained.

    kept --a line that may stand in an answer's place--> lost
    lost --before the next request a `describe` is sent--> syncing
    syncing --its answer--> kept

The mark is a `describe` and not a `health`: `status` is a common field of results, and the late
answer of the failed request would be taken for it. Its answer is a description in full, or
the module's earlier answer to `describe`; a module that declined to describe itself declines again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.errors import Code, Failure, Outcome, Success
from protocol.json_line import Fault
from protocol.replies import DescribeReply

SYNC = ".sync"
"""The suffix of the id of the `describe` that marks where the stream is in step again."""


class ModuleStep:
    """The step of one process that may put no ids on its answers."""

    def __init__(self, tool: str) -> None:
        self.lost = False
        self.mark = ""
        """The id of the expected mark; until it comes, a line without an id belongs to no request.
        """
        self._tool = tool
        self._described: Any = None
        self._declines = False

    def lose(self) -> None:
        """Record that the next line could answer any request."""
        self.lost, self.mark = True, ""

    def begin_mark(self, mark: str) -> None:
        """Record that the mark was sent."""
        self.lost, self.mark = False, mark

    def described(self, outcome: Outcome) -> None:
        """Record the module's usual answer to `describe`."""
        if isinstance(outcome, Success):
            self._described = outcome.result
        self._declines = isinstance(outcome, Failure) and outcome.code == Code.UNSUPPORTED_OP

    def passes(self, named: str | None, answer: Outcome | Fault) -> bool:
        """Tell whether this answers the mark; then the stream is in step."""
        if named not in (None, self.mark) or not self._is_description(answer):
            return False
        self.mark = ""
        return True

    def _is_description(self, answer: Outcome | Fault) -> bool:
        match answer:
            case Failure(code=code):
                return self._declines and code == Code.UNSUPPORTED_OP
            case Success(result=result) if result == self._described:
                return True
            case Success(result=result):
                try:
                    return msgspec.convert(result, DescribeReply).name == self._tool
                except msgspec.ValidationError:
                    return False
            case _:
                return False
