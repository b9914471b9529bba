"""Examine a running daemon: its containment, its logs, and each module with its last exit."""

from __future__ import annotations

import time
from typing import Any

from protocol.version import VERSION
from supervisor.cli.doctor import containment, descriptors, places
from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.cli.quantities import duration, size, utc_second
from supervisor.cli.status_table import warning
from supervisor.cli.terminal import shell_word
from supervisor.cli.trouble import recent_exit

AREA = "module"

TAIL_LINES = 5
"""The last lines of stderr that are shown."""

_HINTS = {
    "spawn_failed": "correct what the message names, then `stdiod restart {name}`",
    "start_deadline": "it must answer each line on stdin with a JSON line on stdout, and flush it",
    "bad_health": "it must answer a health request with one JSON line on stdout, and nothing else",
    "bad_describe": "it must answer a describe request with one JSON line on stdout, which must "
    "match its descriptor",
    "memory_limit": "raise supervision.limits.memory_bytes, or find what takes the memory",
    "cgroup_oom": "raise supervision.limits.memory_bytes, or find what takes the memory",
    "supervision_failed": "this is a bug in stdiod; the daemon's own log has the traceback",
}

_WHY = "`stdiod status` says why that is"

_EXIT_HINTS = {
    126: "126 is how a shell says that a command cannot be executed",
    127: "127 is how a shell says that a command is not in PATH",
}


def daemon(status: dict[str, Any]) -> list[Finding]:
    one = status["daemon"]
    words = (
        f"pid {one['pid']}, version {one['version']}, up {duration(one['uptime_s'])}, "
        f"socket {one['socket']}"
    )
    findings = [ok("daemon", words)]
    if one["version"] != VERSION:
        words = f"the daemon is version {one['version']}, and this command is {VERSION}"
        findings.append(warn("daemon", words, "`stdiod down`, then start it again"))
    findings.append(containment.in_force(one["containment"], one.get("why_not_higher")))
    if one.get("guardian_problem"):
        hint = (
            "see whether processes, memory or open files have run out (`ulimit -u`, `-n`), and"
            " what kills it; the daemon tries again at least once a minute, and `stdiod down` still"
            " ends everything"
        )
        findings.append(bad("guardian", one["guardian_problem"], hint))
    if one.get("data_dir_problem"):
        hint = "`stdiod down`, then start it again, so that all its files are in it"
        findings.append(bad("data directory", one["data_dir_problem"], hint))
    if one.get("log_error"):
        words = f"logs cannot be written, {one['dropped_log_bytes']} bytes so far: "
        findings.append(
            bad("logs", words + one["log_error"], "make room, or correct the permissions")
        )
    elif one.get("dropped_log_bytes"):
        words = f"{one['dropped_log_bytes']} bytes of logs were left out; now they are written"
        findings.append(warn("logs", words, "see whether the disk was full, or too slow"))
    findings += _journal(one.get("journal"))
    return findings


def told_aside(daemon: dict[str, Any]) -> set[str]:
    """Return the journals that the daemon reports as set aside."""
    return {aside["path"] for aside in (daemon.get("journal") or {}).get("set_aside", ())}


def quarantined(status: dict[str, Any]) -> list[Finding]:
    return [
        bad(
            "descriptor",
            f"the daemon has it in quarantine: {one['reason']}",
            descriptors.correct_it(status["daemon"]["directories"]),
            subject=one["descriptor"],
        )
        for one in status["quarantined"]
    ]


def modules(status: dict[str, Any], now_s: float | None = None) -> list[Finding]:
    """Examine each module of the daemon; `now_s` is Unix time."""
    return [_module(one, now_s or time.time()) for one in status["modules"]]


def _journal(journal: dict[str, Any] | None) -> list[Finding]:
    area = "journal"
    if journal is None:
        return []
    if journal["problem"] is not None:
        words = f"the journal cannot be written: {journal['problem']}"
        hint = "make room, or correct the permissions; the daemon then continues by itself"
        return [bad(area, words, hint)]
    findings = [
        warn(
            area,
            f"a file that could not be used ({aside['why']}) was set aside as {aside['path']}",
            places.hint_for_aside(aside["path"]),
        )
        for aside in journal["set_aside"]
    ]
    if journal["dropped"]:
        words = f"entries that could not be written and are lost: {journal['dropped']}"
        findings.append(warn(area, words, "see whether the disk was full, or too slow"))
    held = f"{journal['events']} entries, {size(journal['bytes'])}, in {journal['path']}"
    return findings or [ok(area, held)]


def _module(one: dict[str, Any], now_s: float) -> Finding:
    name, state = one["name"], one["state"]
    died = recent_exit(one, now_s)
    words = state
    if died is not None:
        words += f"; {_death(died)}"
    if one.get("next_retry_s") is not None:
        words += f"; tried again in {duration(one['next_retry_s'])}"
    tail = tuple((died or {}).get("stderr_tail") or ())[-TAIL_LINES:]
    hint = _hint(name, died)
    if state == "failed":
        return bad(AREA, words, hint, subject=name, evidence=tail)
    if state in ("backoff", "degraded"):
        return warn(AREA, words, hint, subject=name, evidence=tail)
    if state == "down" and one["wanted"] == "up" and one["waits_for"]:
        waits = ", ".join(one["waits_for"])
        return warn(AREA, f"down; it waits for {waits}", _WHY, subject=name)
    if state == "down" and died is not None and died["reason"] not in ("stopped", "idle"):
        return warn(AREA, words, hint, subject=name, evidence=tail)
    if one.get("missing"):
        missing = ", ".join(one["missing"])
        words += f"; it depends on modules that do not serve: {missing}"
        return warn(AREA, words, _WHY, subject=name, evidence=tail)
    if one["restarts"] and died is not None and died["reason"] not in ("stopped", "idle"):
        words += f"; {one['restarts']} restarts"
        return warn(AREA, words, hint, subject=name, evidence=tail)
    if said := warning(one):
        return warn(
            AREA, f"{words}; {said}", f"`stdiod logs {shell_word(name)}` shows when", subject=name
        )
    return ok(AREA, words, subject=name)


def _death(died: dict[str, Any]) -> str:
    return f"at {utc_second(died['ts'])} it {died['message']} ({died['reason']})"


def _hint(name: str, died: dict[str, Any] | None) -> str:
    word = shell_word(name)
    look = f"`stdiod logs {word}` has the rest"
    if died is None:
        return look
    known = _HINTS.get(died["reason"]) or _EXIT_HINTS.get(died.get("exit_code") or 0)
    return look if known is None else f"{known.format(name=word)}; {look}"
