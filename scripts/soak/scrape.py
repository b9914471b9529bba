"""Hold `/metrics` to `status`, as a Prometheus server would read it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import trio
from prometheus_client.parser import text_string_to_metric_families

REQUEST: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

OF_MODULE: Final = {
    "stdiod_module_late_lines_total": ("counters", "late_lines"),
    "stdiod_module_quarantined_lines_total": ("counters", "quarantined_lines"),
    "stdiod_module_left_out_log_lines_total": ("counters", "left_out_log_lines"),
    "stdiod_module_restarts_total": ("restarts",),
    "stdiod_module_in_flight": ("in_flight",),
    "stdiod_module_queued": ("queued",),
    "stdiod_invocations_total": ("counters", "invocations"),
    "stdiod_invocation_duration_seconds_count": ("latency_ms", "count"),
}
"""What is compared of each module, all other labels added up; and where it is in `status`."""

OF_DAEMON: Final = {
    "stdiod_reloads_total": ("reloads",),
    "stdiod_suspensions_total": ("suspensions", "count"),
    "stdiod_dropped_log_bytes_total": ("dropped_log_bytes",),
    "stdiod_journal_dropped_total": ("journal", "dropped"),
}


async def scrape(path: Path) -> str:
    """Return the metrics of a daemon whose HTTP socket is at `path`."""
    received = b""
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(REQUEST)
        async for data in stream:
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        words = f"GET /metrics: {head.decode()[:200]}"
        raise RuntimeError(words)
    return body.decode()


def differences(text: str, status: dict[str, Any]) -> list[str]:
    """Return in words where the metrics of an idle daemon are not what its `status` says."""
    figures: defaultdict[tuple[str, str], float] = defaultdict(float)
    failures: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            module = one.labels.get("module", "")
            figures[one.name, module] += one.value
            if one.name == "stdiod_invocations_total" and one.labels["outcome"] != "ok":
                failures[module] += one.value
    compared = [(name, "", status["daemon"], path) for name, path in OF_DAEMON.items()]
    for module in status["modules"]:
        compared += [(name, module["name"], module, path) for name, path in OF_MODULE.items()]
    found = [
        f"{name} of {module or 'the daemon'} is {figures[name, module]:g}, status says {said:g}"
        for name, module, shown, path in compared
        if figures[name, module] != (said := _at(shown, path))
    ]
    found += [
        f"{failures[module['name']]:g} failures of {module['name']}, status says {said}"
        for module in status["modules"]
        if failures[module["name"]] != (said := module["counters"]["failures"])
    ]
    there = {module for name, module in figures if name == "stdiod_module_info"}
    if there != {module["name"] for module in status["modules"]}:
        found.append(f"/metrics has the modules {sorted(there)}, and status others")
    return found


def _at(shown: Any, path: tuple[str, ...]) -> float:
    for key in path:
        shown = shown[key]
    return float(shown)
