"""The text of `status`: the daemon and a table of its modules; or the page of one module.

On a narrow terminal, notes stand below their rows, and columns are left out in the order of
`_LEAVE_OUT`; elsewhere a line is as long as necessary.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import click

from supervisor.cli.quantities import (
    ago,
    count,
    duration,
    held_words,
    latency,
    limit_text,
    size,
    stall_words,
    time_of_day,
)
from supervisor.cli.terminal import (
    GAP,
    cells,
    column_widths,
    cut,
    dim,
    one_line,
    row_width,
    state_word,
    table_line,
)
from supervisor.policy.verdict import last_words, signal_name, unset_remark

WORST_FIRST = (
    "failed",
    "backoff",
    "degraded",
    "stopping",
    "preparing",
    "starting",
    "down",
    "ready",
)
NO_TROUBLE = len(WORST_FIRST) + 1
"""The place of a module without trouble among those of `severity`."""

_BAD = frozenset({"failed", "backoff", "degraded"})
_NOT_UP = frozenset({"down", "preparing", "starting"})
"""Between two tries, a crashing module is in each of them."""

FORGOTTEN_S = 3600.0


def recent_exit(module: dict[str, Any], now_s: float) -> dict[str, Any] | None:
    """Return `last_exit`; None for an old exit of a ready module that left no processes."""
    died: dict[str, Any] | None = module["last_exit"]
    if died is None or module["state"] != "ready" or now_s - died["ts"] < FORGOTTEN_S:
        return died
    return died if died.get("survivors") else None


def in_trouble(module: dict[str, Any]) -> bool:
    """Tell whether a module needs attention.

    `module` is its entry in `status`. It is in a bad state, waits for another module, is not up
    again after a bad exit, or its changed descriptor is invalid. A stopped module, or one that
    waits for its first request, is not in trouble.
    """
    if module["state"] in _BAD or module.get("quarantined"):
        return True
    if module["state"] not in _NOT_UP:
        return False
    died = module["last_exit"]
    if module["state"] == "down" and module["wanted"] == "up" and module["waits_for"]:
        return True
    return died is not None and died["reason"] != "stopped" and died["exit_code"] != 0


def is_asleep(module: dict[str, Any]) -> bool:
    """Tell whether a module ended because it was idle, and waits for its next request."""
    died = module["last_exit"]
    return module["state"] == "down" and died is not None and died["reason"] == "idle"


def trouble_first(modules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of `status`, modules in trouble first, the worst first."""
    return sorted(
        modules, key=lambda one: severity(one["state"]) if in_trouble(one) else NO_TROUBLE
    )


def severity(state: str) -> int:
    """Return the place of a state in the order of `WORST_FIRST`."""
    return WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST)


def _pids(module: dict[str, Any]) -> str:
    instances = module["instances"]
    if not instances or instances[0]["pid"] is None:
        return _NONE
    others = f" +{len(instances) - 1}" if len(instances) > 1 else ""
    return f"{instances[0]['pid']}{others}"


def _uptime(module: dict[str, Any]) -> str:
    return duration(max(up)) if (up := [one["uptime_s"] for one in module["instances"]]) else _NONE


def _memory(module: dict[str, Any]) -> str:
    memory = [one["rss_bytes"] for one in module["instances"] if one["rss_bytes"] is not None]
    return size(sum(memory)) if memory else _NONE


_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "NAME": lambda one: one_line(one["name"]),
    "STATE": lambda one: one["state"],
    "KIND": lambda one: one["kind"],
    "PROTOCOL/LIFECYCLE": lambda one: (
        f"{one['protocol']}/{'service' if one.get('url') else one['lifecycle']}"
    ),
    "PID": _pids,
    "UPTIME": _uptime,
    "RSS": _memory,
    "RESTARTS": lambda one: str(one["restarts"]),
    "IN-FLIGHT/QUEUED": lambda one: f"{one['in_flight']}/{one['queued']}",
}
_NOTE = "NOTE"
_RIGHT = frozenset({"PID", "UPTIME", "RSS", "RESTARTS", "IN-FLIGHT/QUEUED"})
_LEAVE_OUT = ("KIND", "PROTOCOL/LIFECYCLE", "IN-FLIGHT/QUEUED", "RSS", "RESTARTS")
_LEAVE_OUT_FOR_NOTES = ("KIND", "PROTOCOL/LIFECYCLE")
_SHORTEST_NAME = 8
_NONE = "-"
_NEARLY_ALL = 0.75
STUCK_NOTED = 5
CAUSE_CHARS = 300
"""The longest note about an exit, the last line of stderr included."""

OPS_NOTED = 5
"""The remembered ops that are shown of a module that has not run yet."""


def status_text(
    status: dict[str, Any], width: int | None, *, failing: bool = False, now_s: float | None = None
) -> str:
    """Return the page.

    `width` is the terminal's, None without one. Modules in trouble stand first; with `failing`
    there are no others. `now_s` is Unix time.
    """
    daemon = status["daemon"]
    warnings = (*_gateway(status.get("http")), *_warnings(daemon))
    lines = [daemon_line(daemon), _summary(status), *warnings, ""]
    modules = trouble_first(status["modules"])
    if failing:
        modules = [one for one in modules if in_trouble(one)]
    if modules:
        rows = [{name: cell(one) for name, cell in _COLUMNS.items()} for one in modules]
        lines += _table(rows, [note(one, now_s) for one in modules], width)
    elif failing:
        lines.append("no module is in trouble")
    else:
        directories = daemon.get("directories") or []
        where = ", ".join(directories) or "its directories"
        holds = "hold" if len(directories) > 1 else "holds"
        lines.append(f"no modules: {one_line(where)} {holds} no usable descriptor")
    quarantined = status["quarantined"]
    if quarantined:
        lines += ["", _yellow("Quarantined descriptors")]
        for one in quarantined:
            lines += [f"  {one_line(one['descriptor'])}", f"    {one_line(one['reason'])}"]
    left = daemon.get("left_containers")
    if left:
        lines += ["", _yellow("Containers left over; remove them by hand")]
        lines += [f"  {one_line(command)}" for command in left]
    waiting = (daemon.get("approvals") or {}).get("waiting")
    if waiting:
        words = f"{count(waiting, 'question')} for a person: `stdiod approvals`"
        lines += ["", click.style(words, fg="yellow")]
    return "\n".join(lines)


def daemon_line(daemon: dict[str, Any]) -> str:
    facts = [
        f"pid {daemon['pid']}",
        f"up {duration(daemon['uptime_s'])}",
        f"containment {daemon['containment']}",
        f"socket {daemon['socket']}",
    ]
    if daemon.get("http"):
        facts.append(f"http {daemon['http']}")
    name = f"stdiod {daemon['version']}{of_project(daemon)}"
    return click.style(name, bold=True) + f", {', '.join(facts)}"


def of_project(daemon: dict[str, Any]) -> str:
    """Return ` of FOLDER` for the daemon of a project, "" for the user's own."""
    return f" of {one_line(daemon['project'])}" if daemon.get("project") else ""


def note(module: dict[str, Any], now_s: float | None = None) -> str:
    """Return why the module is not ready, or why its last process ended."""
    now_s = now_s or time.time()
    died = recent_exit(module, now_s)
    if died is not None and died["reason"] == "stopped":
        died = None
    unset = unset_remark(module.get("unset_variables") or ())
    cause = "" if died is None else _cause(died, unset)
    match module["state"]:
        case "down" if module["wanted"] == "up" and module["waits_for"]:
            return f"waits for {', '.join(map(one_line, module['waits_for']))}"
        case "down" if module["start"] == "lazy" and module["last_exit"] is None:
            return f"lazy: starts with its first request{_remembered(module.get('ops'))}"
        case "down":
            return cause or "stopped"
        case "backoff" | "failed":
            retry_s = module["next_retry_s"]
            again = "" if retry_s is None else f"next try in {duration(retry_s)}"
            return "; ".join(filter(None, (cause, again)))
        case "preparing" if module["instances"]:
            one = module["instances"][0]
            words = f"for {duration(one['uptime_s'])}"
            return f"{words}: {one_line(one['last_line'])}" if one.get("last_line") else words
        case _:
            held = "; ".join(_traced(one) for one in module["instances"] if one.get("traced_by"))
            missing = module.get("missing") or ()
            without = f"runs without {', '.join(map(one_line, missing))}" if missing else ""
            if died is not None:
                cause = f"before: {cause.removesuffix(unset)}, {ago(died['ts'], now_s)}"
            return "; ".join(filter(None, (held, without, cause, warning(module))))


def warning(module: dict[str, Any]) -> str:
    """Return the last warning about a running process's output, and its missing variables."""
    words = next(filter(None, (one.get("warning") for one in module["instances"])), "")
    unset = unset_remark(module.get("unset_variables") or ()).removeprefix("; ")
    return cut(one_line("; ".join(filter(None, (unset, words)))), CAUSE_CHARS)


def _traced(instance: dict[str, Any]) -> str:
    tracer = instance["traced_by"]
    return one_line(f"pid {instance['pid']} is traced by {tracer['name']} (pid {tracer['pid']})")


def _remembered(ops: dict[str, Any] | None) -> str:
    if ops is None or not ops["remembered"]:
        return ""
    names = ", ".join(map(one_line, ops["names"][:OPS_NOTED]))
    return f"; it had {names}{', ...' if ops['count'] > OPS_NOTED else ''}"


def _cause(died: dict[str, Any], unset: str = "") -> str:
    """Return why a process ended, then the variables that it lacked."""
    if died.get("limit"):
        return f"ended: {one_line(limit_text(died['limit']))}"
    said = last_words(died.get("stderr_tail") or ())
    message = str(died["message"])
    lacked = one_line(unset) if unset and message.endswith(unset) else ""
    words = ": ".join(filter(None, (message.removesuffix(unset), said)))
    return cut(one_line(words), CAUSE_CHARS) + lacked


def _summary(status: dict[str, Any]) -> str:
    """Return the number of modules in each state, the worst first."""
    states = Counter(module["state"] for module in status["modules"])
    parts = [
        f"{number} {state_word(state)}"
        for state, number in sorted(states.items(), key=lambda one: severity(one[0]))
    ]
    if status["quarantined"]:
        words = f"{count(len(status['quarantined']), 'descriptor')} quarantined"
        parts.append(click.style(words, fg="yellow"))
    text = count(len(status["modules"]), "module")
    return f"{text}: {', '.join(parts)}" if parts else text


def _gateway(http: dict[str, Any] | None) -> Iterator[str]:
    """Yield a line about the gateway unless it serves."""
    if http and http["state"] != "ready":
        why = f": it {_cause(http['last_exit'])}" if http["last_exit"] else ""
        yield _yellow(f"HTTP is not served, its process is {state_word(http['state'])}{why}")


def _warnings(daemon: dict[str, Any]) -> Iterator[str]:
    """Yield a line for everything about the daemon itself that needs attention."""
    for name in ("guardian_problem", "data_dir_problem"):
        if words := daemon.get(name):
            yield _yellow(words)
    journal = daemon.get("journal") or {}
    if journal.get("problem"):
        yield _yellow(f"the journal cannot be written: {journal['problem']}")
    if journal.get("set_back"):
        yield _yellow(f"the journal was set back: {journal['set_back']}")
    for aside in journal.get("set_aside") or ():
        yield _yellow(f"a journal was set aside as {aside['path']}: {aside['why']}")
    policy = daemon.get("policy") or {}
    if policy.get("problem"):
        yield _yellow(f"the policy is bad, and the last good one in use: {policy['problem']}")
    if words := stall_words(daemon.get("longest_stall")):
        yield _yellow(words)
    stopped = daemon.get("suspensions") or {}
    if stopped.get("count"):
        yield f"it was suspended for {duration(stopped['last_s'])}, {ago(stopped['last_ts'])}"
    for one in (daemon.get("stuck") or ())[:STUCK_NOTED]:
        others = f", and {one['waiting']} more wait for it" if one["waiting"] else ""
        yield _yellow(f"stuck for {duration(one['for_s'])}: {one['doing']}{others}")
    own = daemon.get("own_log") or {}
    if own.get("lost_lines"):
        why = f"; now it cannot be written: {own['problem']}" if own["problem"] else ""
        yield _yellow(f"the daemon's own log has lost {count(own['lost_lines'], 'line')}{why}")
    files = daemon.get("open_files") or {}
    if files and files["used"] > files["limit"] * _NEARLY_ALL:
        yield _yellow(f"{files['used']} of {files['limit']} files are open")
    if words := held_words(daemon.get("held_bytes")):
        yield one_line(f"it {words}")
    if refused := (daemon.get("connections") or {}).get("refused"):
        yield _yellow(f"{count(refused, 'client')} refused: there was no room for more")


def _yellow(words: str) -> str:
    return click.style(one_line(words), fg="yellow")


def _table(rows: list[dict[str, str]], notes: list[str], width: int | None) -> Iterator[str]:
    widths = column_widths(_COLUMNS, rows)
    notes_width = max(map(cells, notes))
    columns, beside = _layout(widths, notes_width, width)
    if width is not None and (too_much := row_width(columns, widths) - width) > 0:
        # A long name would break every row.
        widths["NAME"] = max(_SHORTEST_NAME, widths["NAME"] - too_much)
    titles = table_line(columns, widths, right=_RIGHT)
    yield dim(f"{titles}{GAP}{_NOTE}" if beside and notes_width else titles)
    for row, words in zip(rows, notes, strict=True):
        line = table_line(columns, widths, row, right=_RIGHT, paint=_in_colour)
        yield f"{line}{GAP}{words}" if beside and words else line
        if words and not beside:
            yield f"    {words}"


def _in_colour(column: str, text: str) -> str:
    return state_word(text) if column == "STATE" else text


def _layout(widths: dict[str, int], notes_width: int, width: int | None) -> tuple[list[str], bool]:
    """Choose the columns, and whether the notes stand beside them or below each row."""
    columns = list(_COLUMNS)
    if width is None or row_width(columns, widths) + len(GAP) + notes_width <= width:
        return columns, True
    without = [name for name in columns if name not in _LEAVE_OUT_FOR_NOTES]
    if notes_width and row_width(without, widths) + len(GAP) + notes_width <= width:
        return without, True
    for name in _LEAVE_OUT:
        if row_width(columns, widths) <= width:
            break
        columns.remove(name)
    return columns, False


_LABEL_WIDTH = 12
OPS_SHOWN = 20
_LEFT_OUT = {
    "late_lines": ("late line", ""),
    "quarantined_lines": ("line", " outside the protocol"),
    "left_out_log_lines": ("log line", " over the rate"),
}


def module_text(module: dict[str, Any]) -> str:
    version = f" {module['version']}" if module.get("version") else ""
    name = click.style(one_line(module["name"] + version), bold=True)
    lines = [f"{name}, {module['kind']}: {state_word(module['state'])}"]
    if module.get("description"):
        lines.append(one_line(module["description"]))
    counters, mcp, service = module["counters"], module.get("mcp"), module.get("url")
    agreed = "" if mcp is None else f" ({mcp['era']}, {mcp['revision']})"
    requests = (
        f"{module['in_flight']} in flight, {module['queued']} queued, "
        f"{counters['invocations']} answered, {counters['failures']} of them failed"
    )
    left_out = [
        count(counters[counter], noun) + rest
        for counter, (noun, rest) in _LEFT_OUT.items()
        if counters[counter]
    ]
    facts = [
        ("note", note(module)),
        ("protocol", f"{module['protocol']}, {module['lifecycle']}{agreed}"),
        ("service", service or ""),
        ("wanted", f"{module['wanted']} ({module['start']} start)"),
        ("restarts", str(module["restarts"])),
        ("requests", requests),
        ("ops", _ops(module.get("ops"))),
        ("latency", _latency(module["latency_ms"])),
        ("left out", ", ".join(left_out)),
        *_hook_facts(module.get("hook")),
        ("not set", ", ".join(module.get("unset_variables") or ())),
        ("misfit", "; ".join(module.get("misfits") or ())),
        ("descriptor", module["descriptor"]),
        ("quarantined", module.get("quarantined") or ""),
        *(("instance", _instance(one)) for one in module["instances"]),
    ]
    if not module["instances"]:
        facts.append(("instance", "the service is not asked" if service else "none runs"))
    lines += ["", *(_fact(label, one_line(text)) for label, text in facts if text)]
    if module["last_exit"] is not None:
        lines += _last_exit(module["last_exit"])
    return "\n".join(lines)


def _fact(label: str, text: str) -> str:
    return dim(label.ljust(_LABEL_WIDTH)) + text


def _ops(ops: dict[str, Any] | None) -> str:
    if ops is None:
        return ""
    names = ops["names"][:OPS_SHOWN]
    more = ops["count"] - len(names)
    words = ", ".join(names) + (f" and {more} more" if more else "")
    return f"{words} (remembered: what it said when it last ran)" if ops["remembered"] else words


def _latency(latency_ms: dict[str, Any]) -> str:
    if not latency_ms["count"]:
        return ""
    half, most, longest = (latency(latency_ms[one]) for one in ("p50", "p99", "max"))
    return f"half within {half}, 99 % within {most}, the longest {longest}"


def _hook_facts(hook: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if hook is None:
        return
    if events := hook["events"]:
        given = f"{', '.join(hook['observe'])}: {events['delivered']} given"
        left = f"{events['waiting']} wait, {events['dropped']} dropped"
        yield "observes", f"{given}, {left}, {events['failed']} failed"
    if hook["gate"]:
        gates, modules = ", ".join(hook["gate"]), ", ".join(hook["modules"])
        on_failure = f"{hook['on_failure']} on failure"
        yield "gates", f"{gates} of {modules}, priority {hook['priority']}, {on_failure}"


def _instance(instance: dict[str, Any]) -> str:
    memory, tracer = instance["rss_bytes"], instance.get("traced_by")
    parts = [
        instance["id"],
        "" if instance["pid"] is None else f"pid {instance['pid']}",
        f"up {duration(instance['uptime_s'])}",
        "" if memory is None else size(memory),
        "warm" if instance["state"] == "warm" else f"{instance['in_flight']} in flight",
        "" if tracer is None else f"traced by {tracer['name']} (pid {tracer['pid']})",
    ]
    return ", ".join(filter(None, parts))


def _last_exit(died: dict[str, Any]) -> Iterator[str]:
    date = dt.datetime.fromtimestamp(died["ts"]).astimezone().date().isoformat()
    how = "" if died["exit_code"] is None else f", exit code {died['exit_code']}"
    if died["signal"] is not None:
        by_us = " sent by stdiod" if died.get("stopped_by_host") else ""
        how = f", {signal_name(died['signal'])}{by_us}"
    yield _fact("last exit", f"{one_line(died['message'])}, {ago(died['ts'])}")
    yield _fact("", dim(f"at {date} {time_of_day(died['ts'])}, reason {died['reason']}{how}"))
    if died.get("limit"):
        yield _fact("", f"limit: {one_line(limit_text(died['limit']))}")
    if died["stderr_tail"]:
        yield _fact("", "the last lines of its stderr:")
        yield from (_fact("", f"  {one_line(line)}") for line in died["stderr_tail"])
    if died.get("survivors"):
        pids = ", ".join(map(str, died["survivors"]))
        yield _fact("", f"still running, could not be killed: pid {pids}")
