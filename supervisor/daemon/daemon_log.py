"""Where the daemon's own log goes, and in which form: for people on a terminal, else as JSON."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from protocol.problem import printable, without_password
from supervisor.daemon.log_stream import PID_FIELD, LogStream, Put
from supervisor.runtime.files import rotated_file
from supervisor.runtime.threads import Threads


def set_up_logging(log_format: str, log_file: Path | None, threads: Threads) -> LogStream:
    """Configure structlog: `console`, `json` or `auto`; to stderr, or to a rotated file.

    The returned stream has to be closed at the end; `threads` is told what its thread does.
    """
    on_terminal = log_file is None and sys.stderr.isatty()
    as_json = log_format == "json" or (log_format == "auto" and not on_terminal)
    rendering: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if as_json
        else [_make_printable, structlog.dev.ConsoleRenderer(colors=on_terminal)]
    )
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    beginning: list[structlog.typing.Processor] = [
        *([] if log_file is None else [_add_daemon_pid]),
        structlog.processors.add_log_level,
        stamp,
        lambda _, __, line: {
            key: without_password(value) if isinstance(value, str) else value
            for key, value in line.items()
        },
    ]

    def notice(lines: int, words: str) -> str:
        line: Any = {"event": "log lines were lost", "lines": lines, "words": words}
        for process in (*beginning, *rendering):
            line = process(None, "warning", line)
        return f"{line}\n"

    put: Put = partial(os.write, sys.stderr.fileno())
    if log_file is not None:
        put = partial(rotated_file.append, log_file)
    stream = LogStream(put, notice, threads)
    structlog.configure(
        processors=[*beginning, structlog.processors.format_exc_info, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", stream)),
        cache_logger_on_first_use=True,
    )
    return stream


def _add_daemon_pid(_: Any, __: str, line: Any) -> Any:
    """Daemons that are started at the same time share the log file."""
    line[PID_FIELD] = os.getpid()
    return line


def _make_printable(_: Any, __: str, line: Any) -> Any:
    """Keep strings of modules and clients from steering a terminal; `repr` does the rest."""
    for key, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[key] = "\n".join(map(printable, value.split("\n")))
    return line
