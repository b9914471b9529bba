"""The page of `status MODULE`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import click

from supervisor.cli.quantities import ago, count, duration, latency, limit_text, size, time_of_day
from supervisor.cli.status_table import note
from supervisor.cli.terminal import dim, one_line, state_word
from supervisor.policy.verdict import signal_name

_LABEL_WIDTH = 12
OPS_SHOWN = 20


def module_text(module: dict[str, Any]) -> str:
    return "\n".join(_lines(module))


def _lines(module: dict[str, Any]) -> Iterator[str]:
    version = f" {one_line(module['version'])}" if module.get("version") else ""
    name = click.style(one_line(module["name"]) + version, bold=True)
    yield f"{name}, {module['kind']}: {state_word(module['state'])}"
    if module.get("description"):
        yield one_line(module["description"])
    yield ""
    facts = {
        "note": note(module),
        "protocol": f"{module['protocol']}, {module['lifecycle']}{_agreed(module.get('mcp'))}",
        "service": one_line(module.get("url") or ""),
        "wanted": f"{module['wanted']} ({module['start']} start)",
        "restarts": str(module["restarts"]),
        "requests": _requests(module),
        "ops": _ops(module.get("ops")),
        "latency": _latency(module["latency_ms"]),
        "left out": _left_out(module["counters"]),
        "observes": _observes(module.get("hook")),
        "gates": _gates(module.get("hook")),
        "not set": one_line(", ".join(module.get("unset_variables") or ())),
        "misfit": one_line("; ".join(module.get("misfits") or ())),
        "descriptor": one_line(module["descriptor"]),
        "quarantined": one_line(module.get("quarantined") or ""),
    }
    for label, text in facts.items():
        if text:
            yield _fact(label, text)
    for instance in module["instances"]:
        yield _fact("instance", _instance(instance))
    if not module["instances"]:
        yield _fact("instance", "the service is not asked" if module.get("url") else "none runs")
    if module["last_exit"] is not None:
        yield from _last_exit(module["last_exit"])


def _fact(label: str, text: str) -> str:
    return dim(label.ljust(_LABEL_WIDTH)) + text


def _agreed(mcp: dict[str, Any] | None) -> str:
    return "" if mcp is None else one_line(f" ({mcp['era']}, {mcp['revision']})")


def _requests(module: dict[str, Any]) -> str:
    counters = module["counters"]
    return (
        f"{module['in_flight']} in flight, {module['queued']} queued, "
        f"{counters['invocations']} answered, {counters['failures']} of them failed"
    )


def _ops(ops: dict[str, Any] | None) -> str:
    if ops is None:
        return ""
    names = ", ".join(map(one_line, ops["names"][:OPS_SHOWN]))
    more = ops["count"] - len(ops["names"][:OPS_SHOWN])
    words = f"{names} and {more} more" if more else names
    return f"{words} (remembered: what it said when it last ran)" if ops["remembered"] else words


def _latency(latency_ms: dict[str, Any]) -> str:
    if not latency_ms["count"]:
        return ""
    half, most, longest = (latency(latency_ms[one]) for one in ("p50", "p99", "max"))
    return f"half within {half}, 99 % within {most}, the longest {longest}"


def _observes(hook: dict[str, Any] | None) -> str:
    events = None if hook is None else hook["events"]
    if hook is None or events is None:
        return ""
    return (
        f"{one_line(', '.join(hook['observe']))}: {events['delivered']} given, "
        f"{events['waiting']} wait, {events['dropped']} dropped, {events['failed']} failed"
    )


def _gates(hook: dict[str, Any] | None) -> str:
    if hook is None or not hook["gate"]:
        return ""
    gates, modules = ", ".join(hook["gate"]), one_line(", ".join(hook["modules"]))
    return f"{gates} of {modules}, priority {hook['priority']}, {hook['on_failure']} on failure"


def _left_out(counters: dict[str, Any]) -> str:
    parts = {
        "late line": counters["late_lines"],
        "line outside the protocol": counters["quarantined_lines"],
        "log line over the rate": counters["left_out_log_lines"],
    }
    found = ((number, *noun.partition("line")) for noun, number in parts.items() if number)
    return ", ".join(count(number, kind + line) + rest for number, kind, line, rest in found)


def _instance(instance: dict[str, Any]) -> str:
    memory, tracer = instance["rss_bytes"], instance.get("traced_by")
    parts = [
        one_line(instance["id"]),
        "" if instance["pid"] is None else f"pid {instance['pid']}",
        f"up {duration(instance['uptime_s'])}",
        "" if memory is None else size(memory),
        "warm" if instance["state"] == "warm" else f"{instance['in_flight']} in flight",
        "" if tracer is None else f"traced by {one_line(tracer['name'])} (pid {tracer['pid']})",
    ]
    return ", ".join(filter(None, parts))


def _last_exit(died: dict[str, Any]) -> Iterator[str]:
    date = dt.datetime.fromtimestamp(died["ts"]).astimezone().date().isoformat()
    yield _fact("last exit", f"{one_line(died['message'])}, {ago(died['ts'])}")
    yield _fact(
        "", dim(f"at {date} {time_of_day(died['ts'])}, reason {died['reason']}{_how(died)}")
    )
    if died.get("limit"):
        yield _fact("", f"limit: {one_line(limit_text(died['limit']))}")
    if died["stderr_tail"]:
        yield _fact("", "the last lines of its stderr:")
        for line in died["stderr_tail"]:
            yield _fact("", f"  {one_line(line)}")
    if died.get("survivors"):
        pids = ", ".join(map(str, died["survivors"]))
        yield _fact("", f"still running, could not be killed: pid {pids}")
    for one in died.get("possible_survivors") or ():
        yield _fact("", f"possibly still running: pid {one['pid']}, {one_line(one['command'])}")


def _how(died: dict[str, Any]) -> str:
    if died["signal"] is not None:
        by_us = " sent by stdiod" if died.get("stopped_by_host") else ""
        return f", {signal_name(died['signal'])}{by_us}"
    return "" if died["exit_code"] is None else f", exit code {died['exit_code']}"
