"""Figures of an interval from two answers to `status`: rates, quantiles, trends.

The interval is measured by the daemon (`uptime_s`), so a slow connection adds no error. Without two
answers of one daemon, figures of an interval are None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import msgspec

from supervisor.cli.status_text import NO_TROUBLE, in_trouble, severity
from supervisor.policy.latency import BucketCounts, between, quantile_us

Status = dict[str, Any]

ARGS: dict[str, Any] = {"histogram": True}
"""The args of `status` whose answers are compared."""

TREND_LENGTH = 60
"""How many rates are kept of each module."""

Trend = tuple[float | None, ...]


class ModuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str
    in_trouble: bool
    invocations_per_s: float | None
    failures_per_s: float | None
    p50_ms: float | None
    """None too if nothing ended in the interval."""
    p99_ms: float | None
    cpu_percent: float | None
    """Of one processor, in the interval; above 100 where several are used."""
    rss_bytes: int | None
    restarts: int
    in_flight: int
    queued: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    pid: int
    project: str | None
    """The project's folder; None for the user's own daemon."""
    uptime_s: float
    rss_bytes: int | None
    interval_s: float | None
    """The interval of the rates."""
    modules: tuple[ModuleFigures, ...]
    quarantined: int
    invocations_per_s: float | None
    failures_per_s: float | None
    longest_stall: dict[str, Any] | None
    """The longest stall of the event loop since its start: `ms`, `culprit`, `doing`, `ts`."""
    held_bytes: dict[str, Any] | None
    """What the daemon holds for others: `total`, `limit`, and `parties` with the largest."""


def figures(before: Status | None, after: Status) -> Figures:
    """Compare two answers; `before` is None for the first."""
    daemon = after["daemon"]
    interval_s = None
    earlier: dict[str, Status] = {}
    if before is not None and before["daemon"]["pid"] == daemon["pid"]:
        passed_s = daemon["uptime_s"] - before["daemon"]["uptime_s"]
        if passed_s > 0:
            interval_s = round(passed_s, 3)
            earlier = {one["name"]: one for one in before["modules"]}
    modules = tuple(_module(earlier.get(one["name"]), one, interval_s) for one in after["modules"])
    return Figures(
        version=daemon["version"],
        pid=daemon["pid"],
        project=daemon.get("project"),
        uptime_s=daemon["uptime_s"],
        rss_bytes=daemon["rss_bytes"],
        interval_s=interval_s,
        modules=modules,
        quarantined=len(after["quarantined"]),
        invocations_per_s=_sum(interval_s, (one.invocations_per_s for one in modules)),
        failures_per_s=_sum(interval_s, (one.failures_per_s for one in modules)),
        longest_stall=daemon.get("longest_stall"),
        held_bytes=_held(daemon.get("held_bytes")),
    )


def _held(ledger: dict[str, Any] | None) -> dict[str, Any] | None:
    if ledger is None:
        return None
    return {**{one: ledger[one] for one in ("total", "limit")}, "parties": ledger["parties"][:1]}


def _module(before: Status | None, after: Status, interval_s: float | None) -> ModuleFigures:
    memory = [one["rss_bytes"] for one in after["instances"] if one["rss_bytes"] is not None]
    came = None if before is None else between(_reading(before), _reading(after))
    longest_us = (after["latency_ms"]["max"] or 0) * 1000
    return ModuleFigures(
        name=after["name"],
        state=after["state"],
        in_trouble=in_trouble(after),
        invocations_per_s=_rate("invocations", before, after, interval_s),
        failures_per_s=_rate("failures", before, after, interval_s),
        p50_ms=_quantile_ms(came, 0.50, longest_us),
        p99_ms=_quantile_ms(came, 0.99, longest_us),
        cpu_percent=_cpu_percent(before, after, interval_s),
        rss_bytes=sum(memory) if memory else None,
        restarts=after["restarts"],
        in_flight=after["in_flight"],
        queued=after["queued"],
    )


def _rate(
    counter: str, before: Status | None, after: Status, interval_s: float | None
) -> float | None:
    if before is None or interval_s is None:
        return None
    counted = after["counters"][counter] - before["counters"][counter]
    # A smaller counter belongs to another module of that name.
    return None if counted < 0 else round(counted / interval_s, 3)


def _cpu_percent(before: Status | None, after: Status, interval_s: float | None) -> float | None:
    """Compare the processor time of each process; all of a new process's time counts."""
    if before is None or interval_s is None:
        return None
    earlier = {one["id"]: one.get("cpu_s") for one in before["instances"]}
    used = [
        now_s - (earlier.get(one["id"]) or 0.0)
        for one in after["instances"]
        if (now_s := one.get("cpu_s")) is not None
    ]
    return round(100 * max(0.0, sum(used)) / interval_s, 1) if used else None


def _reading(module: Status) -> BucketCounts:
    return [(least_us, count) for least_us, count in module["latency_ms"]["histogram_us"]]


def _quantile_ms(came: BucketCounts | None, fraction: float, longest_us: float) -> float | None:
    found_us = None if came is None else quantile_us(came, fraction)
    return None if found_us is None else round(min(found_us, longest_us) / 1000, 3)


def _sum(interval_s: float | None, rates: Iterable[float | None]) -> float | None:
    if interval_s is None:
        return None
    return round(sum(rate for rate in rates if rate is not None), 3)


class Trends:
    """The last rates of each module, the newest last."""

    def __init__(self) -> None:
        self._rates: dict[str, deque[float | None]] = {}

    def add(self, now: Figures) -> None:
        """Add the rates of an interval; modules that are gone are forgotten."""
        before = self._rates
        self._rates = {}
        for one in now.modules:
            rates = before.get(one.name) or deque(maxlen=TREND_LENGTH)
            rates.append(one.invocations_per_s)
            self._rates[one.name] = rates

    def of(self, name: str) -> Trend:
        return tuple(self._rates.get(name, ()))


class Order(StrEnum):
    """The order of the modules; equal ones are sorted by name."""

    TROUBLE = "trouble"
    NAME = "name"
    RATE = "rate"
    FAILURES = "failures"
    P99 = "p99"
    CPU = "cpu"
    MEMORY = "memory"
    RESTARTS = "restarts"

    @property
    def following(self) -> Order:
        """The next order; the first after the last."""
        all_of_them = list(Order)
        return all_of_them[(all_of_them.index(self) + 1) % len(all_of_them)]


_KEYS: dict[Order, Callable[[ModuleFigures], float]] = {
    Order.TROUBLE: lambda one: severity(one.state) if one.in_trouble else NO_TROUBLE,
    Order.NAME: lambda _: 0,
    Order.RATE: lambda one: -(one.invocations_per_s or 0),
    Order.FAILURES: lambda one: -(one.failures_per_s or 0),
    Order.P99: lambda one: -(one.p99_ms or 0),
    Order.CPU: lambda one: -(one.cpu_percent or 0),
    Order.MEMORY: lambda one: -(one.rss_bytes or 0),
    Order.RESTARTS: lambda one: -one.restarts,
}


def in_order(modules: Iterable[ModuleFigures], order: Order) -> list[ModuleFigures]:
    return sorted(modules, key=lambda one: (_KEYS[order](one), one.name))
