"""A daemon that answers what a test tells it to, in a thread, on a real Unix socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Frame = dict[str, Any]
Reply = Frame | bytes
Script = Callable[[Frame], list[Reply] | None]
"""Takes a request; returns what to write (bytes as they are), or None to close the connection."""


class FakeDaemon:
    def __init__(self, listener: socket.socket, script: Script) -> None:
        self.frames: list[Frame] = []
        self.cancelled = threading.Event()
        """Set when a client has closed its connection."""
        self.close_after_reply = False
        self.close_after: int | None = None
        """The number of requests, in all, behind which connections are closed."""
        self._listener = listener
        self._script = script

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(ConnectionError):
                self._serve_client(client)
            self.cancelled.set()

    def _serve_client(self, client: socket.socket) -> None:
        with client.makefile("rb") as lines:
            for line in lines:
                frame = json.loads(line)
                self.frames.append(frame)
                replies = self._script(frame)
                if replies is None:
                    return
                for reply in replies:
                    client.sendall(_encoded(reply, frame))
                if self.close_after_reply or len(self.frames) == self.close_after:
                    return


def _encoded(reply: Reply, frame: Frame) -> bytes:
    if isinstance(reply, bytes):
        return reply
    envelope = {"version": "0", "requestId": frame.get("requestId")}
    return json.dumps({**envelope, **reply}).encode() + b"\n"


@contextlib.contextmanager
def serving(path: Path, script: Script) -> Iterator[FakeDaemon]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        daemon = FakeDaemon(listener, script)
        thread = threading.Thread(target=daemon.serve)
        thread.start()
        try:
            yield daemon
        finally:
            # close() alone would leave the thread in accept(2).
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def log(message: str, level: str = "info", **fields: Any) -> Frame:
    event: Frame = {"type": "log", "level": level, "message": message}
    return {**event, "fields": fields} if fields else event


def ok(result: Any = None, **others: Any) -> Frame:
    return {"type": "done", "ok": True, "result": result, **others}


def not_ok(code: str, message: str, *, of: Frame | None = None, **details: Any) -> Frame:
    error = {"code": code, "message": message, "details": details}
    return {"type": "done", "ok": False, "error": error, **(of or {})}


def module(name: str = "dice", **others: Any) -> Frame:
    """Return an entry of `status`, as the daemon gives it."""
    return {
        "name": name,
        "kind": "tool",
        "version": "1.0.0",
        "description": "Rolls dice.",
        "protocol": "module",
        "lifecycle": "persistent",
        "state": "ready",
        "wanted": "up",
        "start": "eager",
        "waits_for": [],
        "missing": [],
        "restarts": 0,
        "next_retry_s": None,
        "in_flight": 0,
        "queued": 0,
        "descriptor": f"/modules/{name}/module.json",
        "instances": [
            {
                "id": f"{name}#1",
                "pid": 4711,
                "state": "ready",
                "uptime_s": 65.2,
                "rss_bytes": 9 << 20,
                "cpu_s": 1.5,
                "in_flight": 0,
            }
        ],
        "last_exit": None,
        "counters": {
            "invocations": 3,
            "failures": 1,
            "late_lines": 0,
            "quarantined_lines": 0,
            "left_out_log_lines": 0,
        },
        "latency_ms": {"p50": 0.9, "p99": 4.5, "max": 4.6, "count": 3},
        **others,
    }


def last_exit(message: str, **others: Any) -> Frame:
    return {
        "reason": "exited",
        "message": message,
        "ts": 1_700_000_000.0,
        "exit_code": None,
        "signal": None,
        "stderr_tail": [],
        **others,
    }


def status(*modules: Frame, quarantined: tuple[Frame, ...] = ()) -> Frame:
    return {
        "daemon": {
            "pid": 99,
            "version": "0.1.0",
            "uptime_s": 12.0,
            "containment": "process_group",
            "guardian_pid": None,
            "socket": "/run/s",
            "http": None,
            "data_dir": "/data",
            "directories": ["/modules"],
            "rss_bytes": 1,
        },
        "modules": list(modules),
        "quarantined": list(quarantined),
    }
