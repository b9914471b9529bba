"""A verb of the daemon: options, `daemon.call(op, ...)`, and `daemon.show` of the result.

Such a verb is a function below `with_daemon`. A failure of the daemon is printed, as JSON where the
verb prints JSON, and ends the verb with status 1; a daemon that is away ends it with status 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from protocol.client import Answer
from supervisor.cli.client import SUPERVISOR, DaemonClient, given_args
from supervisor.cli.options import F, with_json, with_socket
from supervisor.cli.results import result_of, show_result
from supervisor.edge.bindings.blocking import OnEvent


class DaemonVerb(NamedTuple):
    """The values of --socket and --json, and what a verb does with them."""

    socket: Path
    as_json: bool

    def connect(self) -> DaemonClient:
        return DaemonClient(self.socket)

    def call(self, op: str, /, **args: Any) -> Any:
        """Return the result of an op that the daemon answers at once; args that are None go."""
        with self.connect() as client:
            answer = client.known(op, given_args(**args))
        return self.result(answer, SUPERVISOR, op)

    def follow(self, op: str, on_event: OnEvent | None = None, /, **args: Any) -> Any:
        """Return the result of an op that takes its time, or goes on until Ctrl-C."""
        with self.connect() as client:
            answer = client.own(op, given_args(**args), on_event)
        return self.result(answer, SUPERVISOR, op)

    def result(self, answer: Answer, module: str, op: str = "") -> Any:
        """Return the result of an answer; `module` and `op` are what a failure is about."""
        return result_of(answer, as_json=self.as_json, module=module, op=op)

    def show(self, result: Any, text: str | Callable[[Any], str | None]) -> None:
        """Print a result as JSON; or for a person: words, or what a function makes of it."""
        show_result(result, text, as_json=self.as_json)


def with_daemon(function: F) -> F:
    """Add --json and --socket; the verb gets them as `daemon`."""

    @functools.wraps(function)
    def called(*args: Any, socket: Path, as_json: bool, **others: Any) -> Any:
        return function(*args, daemon=DaemonVerb(socket, as_json), **others)

    return cast("F", with_json(with_socket(called)))
