"""Ask the daemon without blocking: keys are read while it answers, or a log is followed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supervisor.cli.client import SUPERVISOR, Answer, DaemonClient, NoAnswerError, own_op
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.quantities import time_of_day
from supervisor.cli.terminal import one_line
from supervisor.cli.top.view import LogText

_REST_OF_A_LINE_S = 0.05
"""How long to wait for the rest of an answer that has begun, before keys are read again."""


class Link:
    """One question at a time; its descriptor can be selected on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: DaemonClient | None = None
        self._asked = ""

    @property
    def waits(self) -> bool:
        """Whether a question is open."""
        return bool(self._asked)

    def descriptors(self) -> list[int]:
        """Return the descriptors that are readable when an answer comes."""
        return [] if self._client is None else [self._client.fileno()]

    def ask(self, op: str, args: dict[str, Any]) -> None:
        """Ask; raises `NoDaemonError` without a daemon."""
        if self._client is None:
            self._client = DaemonClient(self._path)
        self._asked = self._client.send(SUPERVISOR, "invoke", own_op(op, args))

    def answer(self) -> Answer | None:
        """Return the answer if it is complete; raises `NoDaemonError` if the daemon went away."""
        for document in self.documents():
            if document.get("type") == "done":
                self._asked = ""
                return Answer(document)
        return None

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the question so far; raises `NoDaemonError`, as `answer`."""
        if self._client is None:
            return
        try:
            for document, _ in self._client.events(_REST_OF_A_LINE_S):
                if document.get("requestId") == self._asked:
                    yield document
        except NoAnswerError:
            return
        raise NoDaemonError("the daemon closed the connection")

    def drop(self) -> None:
        client, self._client, self._asked = self._client, None, ""
        if client is not None:
            client.__exit__(None, None, None)


LINES = 200
"""More than a screen has; there is no scrolling."""


class LogPage:
    def __init__(self, socket: Path, module: str) -> None:
        self.title = f"log of {module}"
        self.message = ""
        """Why the log has ended."""
        self.lines: deque[LogText] = deque(maxlen=LINES)
        self.link = Link(socket)
        try:
            self.link.ask("logs", {"module": module, "lines": LINES, "follow": True})
        except NoDaemonError as error:
            self._end(error.message)

    def read(self) -> None:
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
