"""Speak with a daemon over its control socket, as any program would: lines of JSON."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.system.liveness import BOUND_S


class Answer(NamedTuple):
    """What came back for a request: its `done`, and the events before it."""

    done: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def ok(self) -> bool:
        return bool(self.done["ok"])

    @property
    def result(self) -> Any:
        assert self.ok, self.done
        return self.done["result"]

    @property
    def error(self) -> dict[str, Any]:
        assert not self.ok, self.done
        error: dict[str, Any] = self.done["error"]
        return error

    @property
    def details(self) -> dict[str, Any]:
        details: dict[str, Any] = self.error["details"]
        return details

    @property
    def verdict(self) -> str:
        """`ok`, or code and reason: `timeout/deadline`."""
        return "ok" if self.ok else f"{self.error['code']}/{self.details.get('reason')}"

    @property
    def warnings(self) -> list[str]:
        """The reasons of its warnings."""
        return [warning["reason"] for warning in self.done.get("warnings", [])]


class Client:
    """One connection; requests may overlap."""

    def __init__(self, path: Path) -> None:
        self.login: str | None = None
        """The handle of the login as which requests are asked (`login.open`)."""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOUND_S)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self._reader = self.socket.makefile("rb")
        self._numbers = itertools.count(1)
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._answers: dict[str, Answer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._reader.close()
        self.socket.close()

    def write(self, line: bytes) -> None:
        """Send bytes as they are."""
        self.socket.settimeout(BOUND_S)
        self.socket.sendall(line)

    def send(self, tool: str, operation: str, content: Any = None) -> str:
        """Write a request and return its id."""
        request_id = f"c{next(self._numbers)}"
        frame = {"requestId": request_id, "tool": tool, "operation": operation}
        if self.login is not None:
            frame["as"] = self.login
        self.write(json.dumps({**frame, "input": content or {}}).encode() + b"\n")
        return request_id

    def send_invoke(
        self, module: str, op: str = "go", /, timeout_s: float = BOUND_S, **args: Any
    ) -> str:
        """Write an invoke and return its id."""
        return self.send(module, "invoke", {"op": op, "args": args, "timeout_s": timeout_s})

    def cancel(self, request_id: str) -> None:
        """Take a request back."""
        self.write(json.dumps({"requestId": request_id, "operation": "cancel"}).encode() + b"\n")

    def raw_line(self) -> bytes:
        """Wait for the next line that the daemon writes."""
        self.socket.settimeout(BOUND_S)
        return self._reader.readline()

    def lines(
        self, awaited: str = "what was waited for", bound_s: float = BOUND_S
    ) -> Iterator[dict[str, Any]]:
        """Yield what the daemon writes, as it comes, until it hangs up.

        The bound is one for all lines: others that come in between do not prolong it.
        """
        ends_at = time.monotonic() + bound_s
        line = b"none yet"
        while line:
            left_s = ends_at - time.monotonic()
            assert left_s > 0, f"{awaited} did not come; the last line is {line!r}"
            self.socket.settimeout(left_s)
            with contextlib.suppress(TimeoutError):
                if line := self._reader.readline():
                    yield json.loads(line)

    def answer(self, request_id: str, bound_s: float = BOUND_S) -> Answer:
        """Wait for the answer to a request; those to others are kept."""
        if request_id in self._answers:
            return self._answers.pop(request_id)
        for line in self.lines(f"the answer to {request_id}", bound_s):
            of = line.get("requestId", "")
            if line["type"] == "done":
                assert of not in self._answers, f"{of} was answered twice"
                self._answers[of] = Answer(line, self._events.pop(of, []))
            else:
                self._events.setdefault(of, []).append(line)
            if request_id in self._answers:
                break
        return self._answers.pop(request_id)

    def invoke(
        self, module: str, op: str = "go", /, timeout_s: float = BOUND_S, **args: Any
    ) -> Answer:
        """Invoke and wait."""
        return self.answer(self.send_invoke(module, op, timeout_s, **args))

    def ask(self, module: str, operation: str) -> Answer:
        """Ask for `health` or `describe`."""
        return self.answer(self.send(module, operation))

    def op(self, op: str, **args: Any) -> Answer:
        """Run one of the daemon's own operations."""
        return self.answer(self.send("supervisor", "invoke", {"op": op, "args": args}))
