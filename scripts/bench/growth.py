"""What grows with the number of modules: measures at several sizes, and how fast they rise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

RUNNING = "persistent modules, all running"
LAZY = "descriptors of lazy modules in one directory"

START = "start (`stdiod up`)"
MEMORY = "memory of the daemon and its guardian (PSS)"
IDLE = "idle CPU"
RELOAD = "reload after one descriptor changed"
INVOKE = "invoke of one module, median"
FIRST = "first invoke of a lazy module, which starts it"
STOP = "stop (`stdiod down`)"

UNITS = {START: "s", MEMORY: "MB", IDLE: "%", RELOAD: "s", INVOKE: "ms", FIRST: "ms", STOP: "s"}


class Point(NamedTuple):
    """One measure at one size."""

    family: str
    measure: str
    size: int
    value: float


class Curve(NamedTuple):
    """One measure over the sizes, smallest first."""

    family: str
    measure: str
    points: tuple[tuple[int, float], ...]

    @property
    def unit(self) -> str:
        """Return the unit of its values."""
        return UNITS[self.measure]

    @property
    def exponent(self) -> float | None:
        """Return k of the power law size^k through the first and the last point.

        0 is constant and 1 linear; None where there is nothing to draw a line through.
        """
        (first, low), (last, high) = self.points[0], self.points[-1]
        if first == last or low <= 0 or high <= 0:
            return None
        return math.log(high / low) / math.log(last / first)


def curves(points: Sequence[Point]) -> list[Curve]:
    """Sort points into curves, in the order in which their measures came."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for point in points:
        found.setdefault((point.family, point.measure), {})[point.size] = point.value
    return [Curve(*key, tuple(sorted(values.items()))) for key, values in found.items()]
