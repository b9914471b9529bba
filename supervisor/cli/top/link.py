"""Ask the daemon without waiting for it: keys go on while it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supervisor.cli.client import SUPERVISOR, Answer, DaemonClient, NoAnswerError, own_op
from supervisor.cli.exit_status import NoDaemonError

_REST_OF_A_LINE_S = 0.05
"""How long to wait for the rest of an answer that has begun, before keys are looked at again."""


class Link:
    """One question at a time; what it takes to wait for the answer is a descriptor to select on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: DaemonClient | None = None
        self._asked = ""

    @property
    def waits(self) -> bool:
        """Whether a question is open."""
        return bool(self._asked)

    def descriptors(self) -> list[int]:
        """Return what can be read when an answer comes."""
        return [] if self._client is None else [self._client.fileno()]

    def ask(self, op: str, args: dict[str, Any]) -> None:
        """Ask; raises `NoDaemonError` if nobody listens."""
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
        """Yield what has come for the question; raises `NoDaemonError`, as `answer`."""
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
        """Close the connection, if there is one."""
        client, self._client, self._asked = self._client, None, ""
        if client is not None:
            client.__exit__(None, None, None)
