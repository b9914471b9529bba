"""Answers to `status` with counts of durations, as `top` asks for them."""

from __future__ import annotations

from typing import Any

from supervisor.policy.latency import BucketCounts
from tests.cli import fake_daemon

Status = dict[str, Any]


def module(
    name: str = "dice",
    invocations: int = 0,
    failures: int = 0,
    histogram: BucketCounts | None = None,
    max_ms: float | None = 5000.0,
    **others: Any,
) -> Status:
    made = fake_daemon.module(name, **others)
    made["counters"] |= {"invocations": invocations, "failures": failures}
    made["latency_ms"] |= {"max": max_ms, "histogram_us": [list(pair) for pair in histogram or []]}
    return made


def status(*modules: Status, uptime_s: float = 10.0, pid: int = 99) -> Status:
    made = fake_daemon.status(*modules)
    made["daemon"] |= {"uptime_s": uptime_s, "pid": pid}
    return made
