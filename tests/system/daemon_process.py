"""A daemon as a process of its own, for tests of what is left of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.runtime.containment.lifelines import PATIENCE_S
from tests.system.daemon import command, start


class DaemonProcess:
    """`stdiod run` on a folder of descriptors; started and able to take requests."""

    def __init__(
        self,
        modules: Path,
        home: Path,
        containment: str | None = None,
        *,
        prefix: Sequence[str] = (),
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it by `python`, which `prefix` executes, with some more variables."""
        self.socket = home / "s"
        self.data_dir = home / "data"
        self._requests = 0
        self.log = home / "daemon.log"
        configuration = home / "stdiod.toml"
        configuration.write_text(f'containment = "{containment or "auto"}"\n')
        where = (modules, self.socket, self.data_dir)
        _, *words = command(*where, "--config", str(configuration))
        with self.log.open("ab") as log:
            self.popen, ready = start(
                [*prefix, python, *words],
                {**os.environ, **(environment or {})},
                log.fileno(),
                session=True,
            )
        assert ready, self.log.read_text()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        # With a timeout, a full backlog would be an error at once (unix(7): EAGAIN).
        connection.connect(str(self.socket))
        connection.settimeout(PATIENCE_S)
        return connection

    def begin(self, tool: str, op: str, /, **args: Any) -> socket.socket:
        """Send a request and do not wait."""
        self._requests += 1
        request = {
            "requestId": f"t{self._requests}",
            "tool": tool,
            "operation": "invoke",
            "input": {"op": op, "args": args},
        }
        connection = self.connect()
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection

    def ask(self, tool: str, op: str, /, **args: Any) -> dict[str, Any]:
        """Send a request and return the payload of its `done`."""
        with self.begin(tool, op, **args) as connection, connection.makefile("rb") as lines:
            for line in lines:
                event = json.loads(line)
                if event["type"] == "done":
                    payload: dict[str, Any] = event.get("payload", event)
                    return payload
        raise AssertionError("the daemon closed the connection")

    def status(self) -> dict[str, Any]:
        result: dict[str, Any] = self.ask("supervisor", "status")["result"]
        return result

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE_S)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
