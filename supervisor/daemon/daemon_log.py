"""Where the daemon's own log goes, and in which form: for people on a terminal, else as JSON."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from supervisor.daemon.log_stream import PID_FIELD, LogStream

FILE_BYTES = 5 << 20
OLD_FILES = 2
"""A daemon runs for months: its log is put aside at this size, and so many old ones are kept."""


def set_up_logging(log_format: str, log_file: Path | None) -> None:
    """Configure structlog: `console`, `json` or `auto`; to stderr, or to a rotated file."""
    on_terminal = log_file is None and sys.stderr.isatty()
    as_json = log_format == "json" or (log_format == "auto" and not on_terminal)
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=on_terminal)
    )
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)

    def notice(lines: int, words: str) -> str:
        lost = {"event": "log lines were lost", "level": "warning", "lines": lines, "words": words}
        return str(renderer(None, "warning", stamp(None, "warning", lost))) + "\n"

    structlog.configure(
        processors=[
            *([] if log_file is None else [_add_daemon_pid]),
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=_to_stderr(notice) if log_file is None else _to_file(log_file),
        cache_logger_on_first_use=True,
    )


def _add_daemon_pid(logger: Any, method: str, line: Any) -> Any:
    """Say whose line it is: daemons that are started at the same time share the file."""
    del logger, method
    line[PID_FIELD] = os.getpid()
    return line


def _to_stderr(notice: Callable[[int, str], str]) -> Callable[..., Any]:
    stream = LogStream(sys.stderr.fileno(), notice)
    return structlog.WriteLoggerFactory(cast("TextIO", stream))


class _PrivateFile(logging.handlers.RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding=self.encoding)


def _to_file(log_file: Path) -> Callable[..., Any]:
    handler = _PrivateFile(log_file, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
    # A full disk is to degrade the log, not to fill stderr, the same file, with tracebacks.
    logging.raiseExceptions = False
    logger = logging.getLogger("stdiod")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    return lambda *_: logger
