"""Text of an error: what happened, the evidence, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from protocol.errors import Reason
from supervisor.cli.advice import ADVICE, OF_A_VALUE, advice
from supervisor.cli.client import SUPERVISOR
from supervisor.cli.quantities import duration, limit_text
from supervisor.cli.terminal import dim, one_line, safe, shell_word
from supervisor.policy.verdict import signal_name, telling_tail

_LABEL_WIDTH = 10
_STDERR_LINES = 10
_TOLD = frozenset(
    {
        "reason",
        "instance",
        "pid",
        "uptime_s",
        "exit_code",
        "signal",
        "state",
        "waits_for",
        "retry_in_s",
        "pointer",
        "line_excerpt",
        "stderr_tail",
        "ops",
        "module",
        "queue",
        "rule",
        "limit",
        "survivors",
        "stopped_by_host",
        "traced_by",
        "unfinished_line",
        "origin",
        "reported",
        "stray_id",
        "cpu_s",
        "busy",
        "hook_reason",
    }
)
"""Details with a line of their own, or in the message."""


_LABELS = {"session_id": "session", "request_id": "request"}

_OF_A_DAEMON = frozenset({"state", "retry_in_s", "stderr_tail"})
"""Details without a meaning where no daemon runs: there is no retry, and stderr was shown."""


def failure_text(
    error: dict[str, Any], *, module: str, op: str = "", with_daemon: bool = True
) -> str:
    """Return the text of an error of docs/protocol.md."""
    details = error.get("details") or {}
    if not with_daemon:
        details = {key: value for key, value in details.items() if key not in _OF_A_DAEMON}
    code = str(error.get("code"))
    name = f"{code}, {details['reason']}" if "reason" in details else code
    tail = (error.get("details") or {}).get("stderr_tail")
    told = advice({**details, "stderr_tail": tail}, module=one_line(module), op=op)
    is_of_schema = str(error.get("message")).startswith("the args of ")
    if module == SUPERVISOR and told is ADVICE[Reason.INVALID_ARGS] and not is_of_schema:
        told = OF_A_VALUE
    title = one_line(f"{module}.{op} failed" if op else module)
    lines = [
        f"{click.style(title, fg='red', bold=True)}: {one_line(str(error.get('message')))}",
        _fact("why", f"{told.meaning} {dim(f'({one_line(name)})')}"),
        *(_fact(label, text) for label, text in _evidence(details)),
    ]
    hints = [told.hint, told.command] if with_daemon else [told.hint]
    if with_daemon and details.get("reason") == Reason.UNKNOWN_MODULE:
        hints = [_of_no_name(str(details.get("module", module))), told.command]
    if any(hints):
        words = " ".join(filter(None, hints)).format(module=shell_word(module))
        lines.append(_fact("try", words))
    return "\n".join(lines)


def _of_no_name(word: str) -> str:
    """Return a hint for a word that is no module's name."""
    if word == "all":
        return "Verbs that take all modules have --all."
    if "/" in word:
        return (
            "A module is called by the name in its descriptor. A new folder is noticed by itself in"
            " a directory that the daemon serves; `stdiod up DIR` serves others."
        )
    module, dot, op = word.partition(".")
    if dot:
        return f"MODULE and OP are two words: {shell_word(module)} {shell_word(op)}."
    return ""


def _fact(label: str, text: str) -> str:
    return f"  {dim(label.ljust(_LABEL_WIDTH - 1))} {text}"


def _evidence(details: dict[str, Any]) -> Iterator[tuple[str, str]]:
    process = _process(details)
    if process:
        yield "process", process
    if "state" in details:
        yield "state", one_line(str(details["state"]))
    if details.get("waits_for"):
        names = details["waits_for"]
        yield "waits for", one_line(", ".join(names) if isinstance(names, list) else str(names))
    retry_s = details.get("retry_in_s")
    if isinstance(retry_s, int | float):
        yield "next try", f"in {duration(retry_s)}"
    if details.get("pointer"):
        yield "at", one_line(str(details["pointer"]))
    if details.get("ops"):
        yield "ops", one_line(", ".join(map(str, details["ops"])))
    if details.get("line_excerpt"):
        yield "line", one_line(str(details["line_excerpt"]))
    yield from _stderr(details.get("stderr_tail"))
    yield from _found(details)
    if details.get("reported"):
        yield "reported", _shown(details["reported"])
    others = {key: value for key, value in details.items() if key not in _TOLD}
    for key, value in others.items():
        yield one_line(_LABELS.get(key, key)), _shown(value)


def _found(details: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if details.get("unfinished_line"):
        yield "unfinished", one_line(str(details["unfinished_line"]))
    limit = details.get("limit")
    if isinstance(limit, dict):
        yield "limit", one_line(limit_text(limit))
    if details.get("survivors"):
        yield "survivors", one_line(", ".join(f"pid {pid}" for pid in details["survivors"]))
    tracer = details.get("traced_by")
    if isinstance(tracer, dict):
        yield "traced by", one_line(f"{tracer.get('name')} (pid {tracer.get('pid')})")


def _process(details: dict[str, Any]) -> str:
    parts: list[str] = []
    if "instance" in details:
        parts.append(one_line(str(details["instance"])))
    if "pid" in details:
        parts.append(f"pid {details['pid']}")
    if isinstance(details.get("signal"), int):
        number = details["signal"]
        by_us = ", sent by stdiod" if details.get("stopped_by_host") else ""
        parts.append(f"killed by {signal_name(number)} (signal {number}{by_us})")
    elif "exit_code" in details:
        parts.append(f"exit code {details['exit_code']}")
    if isinstance(details.get("uptime_s"), int | float):
        parts.append(f"ran for {duration(details['uptime_s'])}")
    return ", ".join(parts)


def _stderr(tail: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(tail, list) or not tail:
        return
    for number, line in enumerate(telling_tail(tail, _STDERR_LINES)):
        yield "" if number else "stderr", one_line(str(line))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value)
    return safe(msgspec.json.encode(value).decode())
