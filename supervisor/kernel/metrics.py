"""The table of all metrics: each is a reading of the answer to `status` (docs/metrics.md).

Nothing is counted for them alone, so they say what `status` says, to the same principals. Names and
units follow Prometheus' conventions: base units, `_total` for counters. Labels have few values: of
what a client can choose only an op is a label, and `policy.tally` bounds those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from supervisor.policy.lifecycle import State


class Form(StrEnum):
    PROMETHEUS = "prometheus"
    OPENMETRICS = "openmetrics"


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Sample(msgspec.Struct, frozen=True, gc=False):
    """A value, with those of its metric's labels; `suffix` names a part of a histogram."""

    value: float
    labels: tuple[str, ...] = ()
    suffix: str = ""
    le: str | None = None


Read = Callable[[dict[str, Any]], Iterable[Sample]]


class Metric(msgspec.Struct, frozen=True):
    """A metric: `read` takes `daemon` of the answer, or an entry of its `modules`."""

    name: str
    kind: MetricType
    words: str
    read: Read
    labels: tuple[str, ...] = ()


EDGES_US = tuple(1 << power for power in range(8, 27))
"""The upper bounds of a histogram's buckets: each bucket is twice as wide as the one before, from
256 us to 67 s. `policy.latency` has buckets with the same bounds, so nothing is estimated."""

_INF = "+Inf"


def _found(shown: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path; None where something on the way is null."""
    found: Any = shown
    for key in path:
        found = None if found is None else found[key]
    return found


def _at(*path: str, per: float = 1) -> Read:
    """Read a number, or the length of a list, which may be null."""

    def read(shown: dict[str, Any]) -> Iterator[Sample]:
        found = _found(shown, path)
        if found is not None:
            yield Sample((len(found) if isinstance(found, list) else found) / per)

    return read


def _is(*path: str) -> Read:
    """Read whether a value is there."""

    def read(shown: dict[str, Any]) -> Iterator[Sample]:
        yield Sample(float(_found(shown, path) is not None))

    return read


def _each(*path: str) -> Read:
    """Read an object of numbers; the key is the label."""

    def read(shown: dict[str, Any]) -> Iterator[Sample]:
        for label, value in _found(shown, path).items():
            yield Sample(value, (label,))

    return read


def _sessions(daemon: dict[str, Any]) -> Iterator[Sample]:
    counts = daemon["sessions"]
    yield Sample(counts["live"] - counts["busy"], ("idle",))
    yield Sample(counts["busy"], ("busy",))
    yield Sample(counts["ended"], ("ended",))


def _build(daemon: dict[str, Any]) -> Iterator[Sample]:
    yield Sample(1, (daemon["version"], daemon["containment"]))


def _module(module: dict[str, Any]) -> Iterator[Sample]:
    known = ("kind", "version", "protocol", "lifecycle")
    yield Sample(1, tuple(module[one] or "" for one in known))


def _states(module: dict[str, Any]) -> Iterator[Sample]:
    for state in (*State, "disabled"):
        yield Sample(float(module["state"] == state), (str(state),))


def _wanted(module: dict[str, Any]) -> Iterator[Sample]:
    yield Sample(float(module["wanted"] == "up"))


def _memory(module: dict[str, Any]) -> Iterator[Sample]:
    yield Sample(sum(one["rss_bytes"] or 0 for one in module["instances"]))


def _outcomes(module: dict[str, Any]) -> Iterator[Sample]:
    for outcome, ops in module["counters"]["outcomes"].items():
        for op, count in ops.items():
            yield Sample(count, (op, outcome))


def _durations(module: dict[str, Any]) -> Iterator[Sample]:
    latency = module["latency_ms"]
    counted = iter(latency["histogram_us"])
    one = next(counted, None)
    total = 0
    for edge_us in EDGES_US:
        while one is not None and one[0] < edge_us:
            total += one[1]
            one = next(counted, None)
        yield Sample(total, suffix="_bucket", le=str(edge_us / 1e6))
    yield Sample(latency["count"], suffix="_bucket", le=_INF)
    yield Sample(latency["count"], suffix="_count")
    yield Sample(latency["total_us"] / 1e6, suffix="_sum")


def _metric(kind: MetricType, name: str, words: str, read: Read, *labels: str) -> Metric:
    return Metric(f"stdiod_{name}", kind, words, read, labels)


_counter, _gauge = partial(_metric, MetricType.COUNTER), partial(_metric, MetricType.GAUGE)
_info = partial(_metric, MetricType.INFO)

OF_DAEMON: tuple[Metric, ...] = (
    _info("build_info", "What runs; always 1", _build, "version", "containment"),
    _gauge("uptime_seconds", "Since the start of the daemon", _at("uptime_s")),
    _gauge("resident_memory_bytes", "Memory of the daemon itself", _at("rss_bytes")),
    _gauge("open_files", "Descriptors that the daemon has", _at("open_files", "used")),
    _gauge("open_files_limit", "How many it may have", _at("open_files", "limit")),
    _gauge(
        "held_bytes", "What is held in memory for clients and modules", _at("held_bytes", "total")
    ),
    _gauge("held_most_bytes", "The most that ever was held", _at("held_bytes", "most")),
    _gauge("held_limit_bytes", "The most that may be held", _at("held_bytes", "limit")),
    _gauge("connections", "Clients of the control socket and HTTP", _at("connections", "open")),
    _counter(
        "refused_connections_total",
        "Clients for whom there was no place",
        _at("connections", "refused"),
    ),
    _counter(
        "refused_invocations_total",
        "Invocations that ended before a module was asked",
        _each("refused"),
        "reason",
    ),
    _gauge(
        "longest_stall_seconds",
        "The longest time for which the event loop did not come round",
        _at("longest_stall", "ms", per=1000),
    ),
    _counter("suspensions_total", "Times that the daemon was stopped", _at("suspensions", "count")),
    _counter(
        "suspended_seconds_total",
        "How long it was stopped, all together",
        _at("suspensions", "total_s"),
    ),
    _gauge("stuck_work", "Work that has waited for files for 2 s or more", _at("stuck")),
    _counter(
        "dropped_log_bytes_total",
        "What could not be written to the logs of modules",
        _at("dropped_log_bytes"),
    ),
    _counter(
        "lost_log_lines_total",
        "Lines of the daemon's own log that were lost",
        _at("own_log", "lost_lines"),
    ),
    _counter("exported_spans_total", "Spans that a collector took", _at("spans", "exported")),
    _counter("failed_spans_total", "Spans that a collector did not take", _at("spans", "failed")),
    _counter("dropped_spans_total", "Spans for which there was no room", _at("spans", "dropped")),
    _gauge("journal_events", "Entries in the journal", _at("journal", "events")),
    _gauge("journal_bytes", "Size of the journal", _at("journal", "bytes")),
    _gauge(
        "journal_waiting_bytes",
        "Entries that are not written yet: the journal's lag",
        _at("journal", "waiting_bytes"),
    ),
    _counter("journal_dropped_total", "Entries that could not be kept", _at("journal", "dropped")),
    _gauge("journal_problem", "1 if nothing can be written", _is("journal", "problem")),
    _counter("reloads_total", "Reloads that were applied", _at("reloads")),
    _counter(
        "reaped_orphans_total",
        "Processes that modules left to the daemon",
        _at("reaped_orphans"),
    ),
    _gauge("sessions", "Sessions that are idle, busy or ended", _sessions, "state"),
    _gauge("assets", "Assets that are known", _at("assets", "known")),
    _gauge("asset_store_bytes", "Copies of assets", _at("assets", "copied_bytes")),
    _gauge("approvals_waiting", "Questions that wait for a person", _at("approvals", "waiting")),
    _gauge("ui_subscribers", "Clients that watch ui_events", _at("ui", "subscribers")),
    _gauge(
        "quarantined_descriptors",
        "Descriptors that cannot be used; only for a caller that may see all modules",
        _at("quarantined"),
    ),
)

OF_MODULE: tuple[Metric, ...] = (
    _info(
        "module_info", "What it is; always 1", _module, "kind", "version", "protocol", "lifecycle"
    ),
    _gauge("module_state", "1 for the state that it is in, 0 for the others", _states, "state"),
    _gauge("module_wanted", "1 if it is to be up", _wanted),
    _gauge("module_instances", "Processes", _at("instances")),
    _gauge("module_resident_memory_bytes", "Memory of its processes", _memory),
    _gauge("module_in_flight", "Invocations that a process serves", _at("in_flight")),
    _gauge("module_queued", "Invocations that wait for a process", _at("queued")),
    _gauge("module_quarantined", "1 if its changed descriptor cannot be used", _is("quarantined")),
    _counter(
        "module_restarts_total",
        "Automatic restarts, by how the process before ended",
        _each("counters", "restarts"),
        "cause",
    ),
    _counter(
        "module_late_lines_total",
        "Lines for requests that were no longer open; dropped",
        _at("counters", "late_lines"),
    ),
    _counter(
        "module_quarantined_lines_total",
        "Lines that were not the protocol",
        _at("counters", "quarantined_lines"),
    ),
    _counter(
        "module_left_out_log_lines_total",
        "Lines beyond the rate of its log",
        _at("counters", "left_out_log_lines"),
    ),
    _counter(
        "hook_dropped_events_total",
        "Events that a hook should have observed, and was not told",
        _at("hook", "events", "dropped"),
    ),
    _counter(
        "invocations_total",
        "Invocations that ended, whatever the outcome",
        _outcomes,
        "op",
        "outcome",
    ),
    Metric(
        "stdiod_invocation_duration_seconds",
        MetricType.HISTOGRAM,
        "From acceptance to response, the wait for a process included",
        _durations,
    ),
)
"""Each has the label `module` before its own."""

METRICS = (*OF_DAEMON, *OF_MODULE)


def of_daemon(metric: Metric, whole: dict[str, Any]) -> Iterable[Sample]:
    """Return the samples of a metric of the daemon; `whole` is the answer to `status`."""
    return metric.read({**whole["daemon"], "quarantined": whole["quarantined"]})


def of_module(metric: Metric, module: dict[str, Any]) -> Iterator[Sample]:
    for one in metric.read(module):
        yield msgspec.structs.replace(one, labels=(module["name"], *one.labels))


def labels_of(metric: Metric) -> tuple[str, ...]:
    """Return the names of all labels of a metric, except `le`."""
    return metric.labels if metric in OF_DAEMON else ("module", *metric.labels)
