"""Put modules in an order: by name, or what asks for attention first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from supervisor.cli.top.figures import ModuleFigures

_WORST_FIRST = ("failed", "backoff", "degraded", "stopping", "starting", "down", "ready")


class Order(StrEnum):
    """What modules are sorted by; the name decides where it says nothing."""

    NAME = "name"
    STATE = "state"
    RATE = "rate"
    FAILURES = "failures"
    P99 = "p99"
    MEMORY = "memory"
    RESTARTS = "restarts"

    @property
    def following(self) -> Order:
        """The next one, and after the last the first."""
        all_of_them = list(Order)
        return all_of_them[(all_of_them.index(self) + 1) % len(all_of_them)]


_KEYS: dict[Order, Callable[[ModuleFigures], float]] = {
    Order.NAME: lambda _: 0,
    Order.STATE: lambda one: (
        _WORST_FIRST.index(one.state) if one.state in _WORST_FIRST else len(_WORST_FIRST)
    ),
    Order.RATE: lambda one: -(one.invocations_per_s or 0),
    Order.FAILURES: lambda one: -(one.failures_per_s or 0),
    Order.P99: lambda one: -(one.p99_ms or 0),
    Order.MEMORY: lambda one: -(one.rss_bytes or 0),
    Order.RESTARTS: lambda one: -one.restarts,
}


def in_order(modules: Iterable[ModuleFigures], order: Order) -> list[ModuleFigures]:
    """Return the modules in an order."""
    return sorted(modules, key=lambda one: (_KEYS[order](one), one.name))
