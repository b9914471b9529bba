"""`stdiod down`: end a daemon, and wait for its end."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import click

from supervisor.cli.client import SUPERVISOR, Answer, DaemonClient, NoAnswerError, own_op
from supervisor.cli.exit_status import NoError, interruption
from supervisor.cli.options import example, with_json, with_socket
from supervisor.cli.quantities import duration
from supervisor.cli.results import result_of, show_result
from supervisor.cli.status_text import of_project
from supervisor.cli.terminal import Ticker, one_line

GONE_S = 60.0
"""Longer than a daemon takes: it kills the remaining processes after 30 s, and ends."""


@click.command(epilog=example("down"))
@with_json
@with_socket
def down(as_json: bool, socket: Path) -> None:
    """End the daemon and all its modules; returns when it is gone.

    With --json, prints {"pid"} of what ended.
    """
    began_s = time.monotonic()
    silent = Ticker(silent=as_json)
    with DaemonClient(socket) as client, silent as ticker, _pidfd(client.daemon_pid()) as process:
        status = client.known("status")
        # Without a status, as of another version, the end is not shown, but happens.
        modules = status.result["modules"] if status.ok else []
        whose = of_project(status.result["daemon"]) if status.ok else ""
        running = [one["name"] for one in modules if one["instances"]]
        ticker.show("stopping")
        with interruption("the daemon is still ending"):
            pid = _shut_down(client, ticker, running)
        if not _is_gone(process, began_s + GONE_S - time.monotonic()):
            raise NoError(f"the daemon (pid {pid}) still runs after {GONE_S:g} s")
    took = duration(time.monotonic() - began_s)
    show_result({"pid": pid}, f"stdiod{whose} is down (pid {pid}), in {took}", as_json=as_json)


def _shut_down(client: DaemonClient, ticker: Ticker, running: list[str]) -> int:
    """Shut the daemon down, and show progress until the connection closes; returns its pid."""
    if running:
        # Open while the daemon ends, this request tells which modules are down already.
        watch = own_op("wait", {"modules": running, "for": "down"})
        client.send(SUPERVISOR, "invoke", watch)
    asked = client.send(SUPERVISOR, "invoke", own_op("shutdown"))
    pid = 0
    with contextlib.suppress(NoAnswerError):
        for event, _ in client.events(GONE_S):
            if event.get("type") == "log":
                number = (event.get("fields") or {}).get("number")
                ticker.step(one_line(str(event.get("message"))), f"{number}/{len(running)} down")
            elif event.get("requestId") == asked:
                pid = int(result_of(Answer(event), as_json=False, module="shutdown")["pid"])
    return pid


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    """Hold a process, so that its pid cannot be reused."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        process = None  # another PID namespace: only the closed connection tells
    try:
        yield process
    finally:
        if process is not None:
            os.close(process)


def _is_gone(process: int | None, timeout_s: float) -> bool:
    if process is None:
        return True
    readable, _, _ = select.select([process], [], [], max(timeout_s, 0.0))
    return bool(readable)
