"""The answer to `status`: what runs, what does not, and what it died of (docs/operating.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.descriptor.model import Kind
from supervisor.kernel.spans import Spans
from supervisor.policy.causes import seen_cause
from supervisor.policy.findings import why_bad
from supervisor.policy.hook_findings import hook_findings
from supervisor.policy.latency import BucketCounts, Histogram, quantile_us
from supervisor.policy.lifecycle import HAS_PROCESS, State
from supervisor.policy.principals import Principal
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.watch import WatchState
from supervisor.runtime.held_bytes import HeldBytes
from supervisor.runtime.stalls import Stalls
from supervisor.runtime.supervision.life import Instance
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.journal import Journal
    from supervisor.kernel.kernel import Kernel

_MAY_BE_TRACED = frozenset((str(State.STOPPING), str(State.DEGRADED)))

_OF_GATEWAY = ("state", "restarts", "next_retry_s", "instances", "last_exit")

NOTHING_QUARANTINED: Mapping[str, str] = MappingProxyType({})


class Connections(msgspec.Struct):
    """The counts of clients, set by the control socket."""

    open: int = 0
    refused: int = 0
    """Since the start, for want of room."""


class DaemonFacts(msgspec.Struct, kw_only=True):
    """The facts that `status` shows of the daemon itself."""

    pid: int
    version: str
    started_at: float
    """Monotonic time (s)."""
    registry: ProcessRegistry
    left_containers: Mapping[Path, str] = {}
    socket: str | None = None
    http: str | None = None
    gateway: Module | None = None
    """What serves HTTP in a process of its own: a module of the daemon, and none of the fleet."""
    project: str | None = None
    """The folder of the project that it is for; None for the user's own daemon."""
    data_dir: str
    directories: list[str]
    log_files: LogFiles
    own_log: Callable[[], dict[str, Any]] | None = None
    """Returns what `status` shows of the daemon's own log, if there is one."""
    spans: Spans | None = None
    """The exporter of spans to a collector, if there is one."""
    journal: Journal | None = None
    """None if the daemon keeps no journal."""
    stalls: Stalls
    watch: WatchState = msgspec.field(default_factory=WatchState)
    connections: Connections = msgspec.field(default_factory=Connections)
    ledger: HeldBytes = msgspec.field(default_factory=HeldBytes)

    def is_gateway(self, pid: int) -> bool:
        """Whether that is the process of the gateway."""
        return self.gateway is not None and any(
            pid == one.pid for one, _ in self.gateway.instances()
        )


def daemon_status(facts: DaemonFacts, now: float) -> dict[str, Any]:
    """Return the `daemon` part."""
    own_log = None if facts.own_log is None else facts.own_log()  # so the ledger has it
    guardianship, lock = facts.registry.guardianship, facts.registry.lock
    return {
        "pid": facts.pid,
        "version": facts.version,
        "uptime_s": round(now - facts.started_at, 3),
        "containment": facts.registry.rung.name,
        "tool_containment": facts.registry.rung.of_tools.name,
        "why_not_higher": facts.registry.why_not_higher,
        "guardian_pid": None if guardianship is None else guardianship.pid,
        "guardian_problem": None if guardianship is None else guardianship.problem,
        "spawner_pid": None,
        "blank_pid": None,
        "socket": facts.socket,
        "http": facts.http,
        "project": facts.project,
        "data_dir": facts.data_dir,
        "data_dir_problem": None if lock is None else lock.problem,
        "directories": facts.directories,
        "rss_bytes": procfs.rss_bytes(facts.pid),
        "reaped_orphans": facts.registry.orphans.reaped_count,
        "left_containers": list(facts.left_containers.values()),
        "open_files": {
            "used": facts.registry.file_limit.used,
            "limit": facts.registry.file_limit.number,
        },
        "held_bytes": facts.ledger.status(),
        "connections": msgspec.to_builtins(facts.connections),
        "dropped_log_bytes": facts.log_files.dropped_bytes,
        "log_error": facts.log_files.last_error,
        "own_log": own_log,
        "spans": None if facts.spans is None else facts.spans.status(),
        **facts.stalls.status(),
        "stuck": msgspec.to_builtins(facts.registry.threads.stuck()),
        "journal": None if facts.journal is None else facts.journal.status(),
    }


def gateway_status(gateway: Module) -> dict[str, Any]:
    """Return the `http` part."""
    whole = module_status(gateway)
    return {name: whole[name] for name in _OF_GATEWAY}


def seen_status(
    kernel: Kernel,
    module: Module,
    principal: Principal,
    *,
    histogram: bool = False,
    outcomes: bool = False,
    inputs: bool = False,
) -> dict[str, Any]:
    """Return one entry of `modules`, without what the principal may not see."""
    fleet = kernel.fleet
    reasons = fleet.quarantine_reasons
    shown = module_status(module, reasons, histogram=histogram, outcomes=outcomes)
    if principal.is_full and module.descriptor.kind is Kind.HOOK:
        descriptors = [one.descriptor for one in fleet.modules.values()]
        shown["misfits"] += map(str, hook_findings(module.descriptor, descriptors))
    else:
        for others in ("waits_for", "missing"):
            shown[others] = [name for name in shown[others] if principal.sees(name)]
        if reason := shown.get("quarantined"):
            shown["quarantined"] = seen_cause(reason, principal)
    ops = kernel.effects.descriptions.ops(module, inputs=inputs)
    return {**shown, "ops": ops, "hook": kernel.hooks.status(module)}


def module_status(
    module: Module,
    quarantined: Mapping[str, str] = NOTHING_QUARANTINED,
    *,
    histogram: bool = False,
    outcomes: bool = False,
) -> dict[str, Any]:
    """Return one entry of `modules`.

    `quarantined` has the reasons by path; `histogram` adds the buckets behind the quantiles,
    `outcomes` the outcomes of each op's invocations and the causes of restarts.
    """
    descriptor = module.descriptor
    causes = {"outcomes": module.tally.by_outcome, "restarts": dict(module.restarts_by_cause)}
    last_exit, refused = module.last_exit, module.succession.refused
    return {
        "name": module.name,
        "kind": str(descriptor.kind),
        "version": descriptor.version,
        "description": descriptor.description,
        "protocol": descriptor.transport.protocol,
        "lifecycle": str(descriptor.transport.lifecycle),
        "url": descriptor.transport.url or None,
        "mcp": _agreed(module),
        "state": module.shown_state,
        "wanted": "up" if module.wanted else "down",
        "start": str(descriptor.supervision.start),
        "waits_for": list(module.waits_for),
        "missing": list(module.missing) if module.state in HAS_PROCESS else [],
        "restarts": module.restarts,
        "next_retry_s": module.next_retry_s,
        "in_flight": module.in_flight,
        "queued": module.queued,
        "descriptor": descriptor.source,
        "unset_variables": list(module.workers[0].setting.unset_variables),
        "misfits": module.descriptions.misfits(),
        "quarantined": why_bad(descriptor, quarantined) or (refused and refused.reason),
        "instances": [_instance(one, state) for one, state in module.instances()],
        "last_exit": None if last_exit is None else last_exit.shown(),
        "counters": {
            "invocations": module.tally.invocations,
            "failures": module.tally.failures,
            **msgspec.to_builtins(module.counters),
            "left_out_log_lines": module.log.left_out_lines,
            **(causes if outcomes else {}),
        },
        "latency_ms": _latency(module.latency, histogram=histogram),
    }


def _agreed(module: Module) -> dict[str, Any] | None:
    """Return the era and the revision of an MCP server that is ready."""
    current = module.descriptions.current
    if current is None or module.descriptor.transport.protocol != "mcp":
        return None
    return {one: current["mcp"][one] for one in ("era", "revision")}


def _instance(one: Instance, state: State) -> dict[str, Any]:
    # Its memory is not psutil's figure: that is 0 once the main thread has ended, and takes ten
    # times as long, on the event loop, for each of a thousand modules.
    shown = one.state or str(state)
    # One that is well is not asked for it: of a thousand, each takes two files to read.
    tracer = tracer_of(one.pid) if shown in _MAY_BE_TRACED else None
    return {
        "id": one.id,
        "pid": one.pid,
        "state": shown,
        "uptime_s": round(one.uptime_s, 3),
        "rss_bytes": None if one.pid is None else procfs.rss_bytes_of_process(one.pid) or None,
        "cpu_s": None if one.pid is None else procfs.cpu_s(one.pid),
        "in_flight": one.in_flight,
        "warning": one.warning,
        "traced_by": None if tracer is None else msgspec.structs.asdict(tracer),
        "last_line": one.last_line,
    }


def _latency(latency: Histogram, *, histogram: bool) -> dict[str, Any]:
    """Return quantiles since the daemon started; null where nothing was counted."""
    reading = latency.reading()
    found: dict[str, Any] = {
        "p50": _quantile_ms(reading, 0.50, latency.max_us),
        "p99": _quantile_ms(reading, 0.99, latency.max_us),
        "max": latency.max_us / 1000 if reading else None,
        "count": sum(count for _, count in reading),
    }
    more = {"histogram_us": reading, "total_us": latency.total_us}
    return {**found, **more} if histogram else found


def _quantile_ms(reading: BucketCounts, fraction: float, max_us: int) -> float | None:
    found_us = quantile_us(reading, fraction)
    # The middle of a bucket may lie above all that is in it.
    return None if found_us is None else min(found_us, max_us) / 1000
