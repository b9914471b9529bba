"""Counts of a module's invocations, by outcome and op.

An op is counted under its name if the module describes it, and under `OTHER` else, or once there
are `SERIES` counts: clients may ask for any op, and counts are kept as long as the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.errors import Code, Failure, Origin

OK = "ok"
MODULE_ERROR = "module_error"
"""The module itself said that it failed, by whatever code; `isError` of MCP is that, too."""

OUTCOMES = (OK, MODULE_ERROR, *map(str, Code))
"""Every outcome; a code is the host's own finding, such as `internal` for a missing `done`."""

OTHER = "other"

SERIES = 256
"""How many pairs of outcome and op are counted apart; `OTHER` adds one for each outcome."""

Cell = list[int]
"""A count, as its only item: adding to it takes no further look-up."""


class Tally:
    """The invocations of one module, since the daemon started."""

    __slots__ = ("_counts", "succeeded")

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, Cell]] = {}
        """By outcome, then by op."""
        self.succeeded: dict[str, Cell] = {}
        """The success counts of ops, as far as they are known: each invocation looks here, and adds
        to the cell by itself. Some ops that count as `OTHER` are in it, too."""

    def add(self, op: str, outcome: str, is_described: Callable[[], bool]) -> None:
        """Count an invocation; `is_described` tells whether the module describes the op."""
        cells = self._counts.setdefault(outcome, {})
        cell = cells.get(op)
        if cell is None:
            apart = sum(map(len, self._counts.values())) < SERIES and is_described()
            cell = cells.setdefault(op if apart else OTHER, [0])
        cell[0] += 1
        if outcome == OK and len(self.succeeded) < 2 * SERIES:
            self.succeeded[op] = cell

    def look_again(self) -> None:
        """Ask anew which ops are described, since that may have changed; counts stay."""
        self.succeeded = {}

    @property
    def by_outcome(self) -> Mapping[str, Mapping[str, int]]:
        """The counts, by outcome, then by op."""
        return {
            outcome: {op: cell[0] for op, cell in cells.items()}
            for outcome, cells in self._counts.items()
        }

    @property
    def invocations(self) -> int:
        return sum(cell[0] for cells in self._counts.values() for cell in cells.values())

    @property
    def failures(self) -> int:
        return self.invocations - sum(cell[0] for cell in self._counts.get(OK, {}).values())


def outcome_of(failure: Failure) -> str:
    """Return the outcome that a failure counts as; one of `OUTCOMES`."""
    reported = failure.details.get("origin") == Origin.MODULE
    return MODULE_ERROR if reported else str(failure.code)
