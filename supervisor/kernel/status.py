"""The answer to `status`: what runs, what does not, and what it died of (DESIGN 8)."""

from __future__ import annotations

from typing import Any

import msgspec
import psutil

from supervisor.policy.lifecycle import HAS_PROCESS
from supervisor.runtime.custody import Custody
from supervisor.runtime.log_files import LogFiles
from supervisor.runtime.module import Module
from supervisor.runtime.watch import WatchState


class DaemonFacts(msgspec.Struct, kw_only=True):
    """What is known of the daemon itself."""

    pid: int
    version: str
    started_at: float
    """Monotonic time (s)."""
    custody: Custody
    socket: str | None = None
    http: str | None = None
    data_dir: str
    directories: list[str]
    log_files: LogFiles
    watch: WatchState = msgspec.field(default_factory=WatchState)


def daemon_status(facts: DaemonFacts, now: float) -> dict[str, Any]:
    """Return the `daemon` part."""
    return {
        "pid": facts.pid,
        "version": facts.version,
        "uptime_s": round(now - facts.started_at, 3),
        "containment": facts.custody.containment,
        "why_not_higher": facts.custody.why_not_higher,
        "guardian_pid": facts.custody.guardian_pid,
        "socket": facts.socket,
        "http": facts.http,
        "data_dir": facts.data_dir,
        "directories": facts.directories,
        "rss_bytes": _rss_bytes(facts.pid),
        "reaped_orphans": facts.custody.reaped_orphans,
        "dropped_log_bytes": facts.log_files.dropped_bytes,
        "log_error": facts.log_files.last_error,
    }


def module_status(module: Module) -> dict[str, Any]:
    """Return one entry of `modules`."""
    descriptor, slot = module.descriptor, module.slot
    life = slot.life
    instances = [] if life is None else life.instances()
    return {
        "name": module.name,
        "kind": str(descriptor.kind),
        "version": descriptor.version,
        "description": descriptor.description,
        "protocol": descriptor.transport.protocol,
        "lifecycle": str(descriptor.transport.lifecycle),
        "state": str(slot.state),
        "wanted": "up" if slot.wanted else "down",
        "start": str(descriptor.supervision.start),
        "waits_for": list(module.waits_for) if slot.state not in HAS_PROCESS else [],
        "restarts": slot.restarts,
        "next_retry_s": slot.next_retry_s,
        "in_flight": module.in_flight,
        "queued": module.queued,
        "descriptor": descriptor.source,
        "instances": [
            {
                "id": one.id,
                "pid": one.pid,
                "state": str(slot.state),
                "uptime_s": round(one.uptime_s, 3),
                "rss_bytes": _rss_bytes(one.pid),
                "in_flight": one.in_flight,
            }
            for one in instances
        ],
        "last_exit": None if slot.last_exit is None else msgspec.to_builtins(slot.last_exit),
        "counters": {
            **msgspec.to_builtins(module.counters),
            "left_out_log_lines": module.log.left_out_lines,
        },
    }


def _rss_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
