"""The end of a module's log as `top` shows it, and what is added to it."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.quantities import time_of_day
from supervisor.cli.terminal import one_line
from supervisor.cli.top.link import Link
from supervisor.cli.top.view import LogText

LINES = 200
"""More than a screen has; none is scrolled back to."""


class LogPage:
    """Follows the log of one module."""

    def __init__(self, socket: Path, module: str) -> None:
        """Begin to follow it."""
        self.title = f"log of {module}"
        self.message = ""
        """Why nothing more comes."""
        self.lines: deque[LogText] = deque(maxlen=LINES)
        self.link = Link(socket)
        try:
            self.link.ask("logs", {"module": module, "lines": LINES, "follow": True})
        except NoDaemonError as error:
            self._end(error.message)

    def read(self) -> None:
        """Take what has come."""
        try:
            for document in self.link.documents():
                if document.get("type") == "log":
                    self.lines.append(_line(document))
                elif document.get("type") == "done":
                    error = document.get("error") or {}
                    self._end(str(error.get("message", "the daemon has ended it")))
                    return
        except NoDaemonError as error:
            self._end(error.message)

    def _end(self, why: str) -> None:
        self.message = why
        self.link.drop()


def _line(document: dict[str, Any]) -> LogText:
    said = one_line(str(document.get("message")))
    fields = document.get("fields")
    if not fields:  # the daemon says that lines were left out
        return LogText(said, of_module=False)
    words = f"{time_of_day(fields['ts'])} {one_line(fields['instance'])} {said}"
    return LogText(words, of_module=fields["stream"] != "host")
