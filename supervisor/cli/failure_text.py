"""Text of an error: what happened, the evidence, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        *("reason", "origin", "stopped_by_host", "module", "queue", "rule"),
        *("stray_id", "cpu_s", "busy", "hook_reason"),
    }
)
"""Details that are in the message, in the hint, or beside another one."""

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
    """Yield details with their labels; those without a label of their own come last."""
    left = {key: value for key, value in details.items() if key not in _TOLD}

    def take(key: str) -> Any:
        return left.pop(key, None)

    names, retry_s, tail = take("waits_for"), take("retry_in_s"), take("stderr_tail")
    limit, tracer = take("limit"), take("traced_by")
    before_stderr = {
        "process": _process(take, details),
        "state": take("state"),
        "waits for": ", ".join(names) if isinstance(names, list) else names,
        "next try": f"in {duration(retry_s)}" if isinstance(retry_s, int | float) else "",
        "at": take("pointer"),
        "ops": ", ".join(map(str, take("ops") or ())),
        "line": take("line_excerpt"),
    }
    after_stderr = {
        "unfinished": take("unfinished_line"),
        "limit": limit_text(limit) if isinstance(limit, dict) else "",
        "survivors": ", ".join(f"pid {pid}" for pid in take("survivors") or ()),
        "traced by": f"{tracer.get('name')} (pid {tracer.get('pid')})"
        if isinstance(tracer, dict)
        else "",
        "reported": take("reported"),
    }
    yield from ((label, _shown(value)) for label, value in before_stderr.items() if value)
    if isinstance(tail, list):
        for number, line in enumerate(telling_tail(tail, _STDERR_LINES)):
            yield "" if number else "stderr", one_line(str(line))
    yield from ((label, _shown(value)) for label, value in after_stderr.items() if value)
    for key, value in left.items():
        yield one_line(_LABELS.get(key, key)), _shown(value)


def _process(take: Callable[[str], Any], details: dict[str, Any]) -> str:
    number, exit_code, uptime_s = take("signal"), take("exit_code"), take("uptime_s")
    parts = [str(take("instance"))] if "instance" in details else []
    if "pid" in details:
        parts.append(f"pid {take('pid')}")
    if isinstance(number, int):
        by_us = ", sent by stdiod" if details.get("stopped_by_host") else ""
        parts.append(f"killed by {signal_name(number)} (signal {number}{by_us})")
    elif "exit_code" in details:
        parts.append(f"exit code {exit_code}")
    if isinstance(uptime_s, int | float):
        parts.append(f"ran for {duration(uptime_s)}")
    return ", ".join(parts)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value)
    return safe(msgspec.json.encode(value).decode())
