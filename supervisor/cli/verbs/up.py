"""`stdiod up`: start a daemon in the background, and tell when its modules are ready."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from supervisor.cli import background
from supervisor.cli.client import DaemonClient
from supervisor.cli.daemon_options import HttpOptions, with_daemon_options
from supervisor.cli.exit_status import INTERRUPTED, NoDaemonError, NoError, exit_unless
from supervisor.cli.options import SECONDS, example, with_json, with_socket
from supervisor.cli.project import socket_option
from supervisor.cli.quantities import count, duration
from supervisor.cli.results import print_json, result_of
from supervisor.cli.status_text import is_asleep, note, of_project, warning
from supervisor.cli.terminal import Ticker, is_in, one_line, shell_word, state_word
from supervisor.edge.bindings.blocking import RequestTimeoutError


@click.command(epilog=example("up modules", "up modules --timeout 20", "up"))
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    help="Wait no longer than this for the modules; the daemon stays up.",
)
@with_json
@with_daemon_options
@with_socket
@click.pass_context
def up(
    ctx: click.Context,
    *,
    directories: tuple[Path, ...],
    config: Path | None,
    socket: Path,
    data_dir: Path,
    policy: Path | None,
    http: HttpOptions,
    name: str,
    timeout_s: float | None,
    as_json: bool,
) -> None:
    """Supervise the modules of each DIR, or of the project, in the background.

    Returns when each module that starts with the daemon is ready or has failed. Names descriptors
    that cannot be used; they do not count as failures, and neither does a directory without
    modules. The daemon's log is stdiod.log in the data directory.

    Exits with 1 if a module has failed; the daemon stays up all the same.
    """
    http.exposure(ctx)  # refuses what the daemon would refuse
    _refuse_second(socket, directories)
    began_s = time.monotonic()
    arguments = background.place(socket, data_dir, config)
    if policy is not None:
        arguments += ["--policy", str(policy)]
    arguments += [*http.words(), "--name", name, "--", *map(str, directories)]
    with Ticker(silent=as_json) as ticker:
        ticker.show("starting the daemon")
        pid = background.start(arguments, data_dir)
        try:
            status = _follow(socket, ticker, timeout_s)
        except KeyboardInterrupt:
            ticker.line(f"the daemon stays up (pid {pid}); {_way_out(socket)}")
            raise click.exceptions.Exit(INTERRUPTED) from None
    late = [one for one in status["modules"] if _start(one) == "eager" and not _serves(one)]
    if as_json:
        print_json(status)
    else:
        _report(status, late, time.monotonic() - began_s)
    exit_unless(not late)


def _refuse_second(socket: Path, wanted: tuple[Path, ...]) -> None:
    pid: int | None = None
    serves: list[str] = []
    with contextlib.suppress(NoDaemonError), DaemonClient(socket) as client:
        pid = client.daemon_pid()
        status = client.known("status")
        serves = (status.result or {}).get("daemon", {}).get("directories", [])
    if pid is None:
        return  # if a daemon listens without an answer, the new one reports the socket as taken
    words = f"a daemon (pid {pid}) listens on {socket} already"
    if not serves:
        raise NoError(f"{words}; {_way_out(socket)}")
    words += f", for {one_line(', '.join(serves))}: a module's folder that is put there is noticed"
    known = {os.path.realpath(one) for one in serves}
    others = [str(one) for one in wanted if os.path.realpath(one) not in known]
    if others:
        words += f"; it does not serve {one_line(', '.join(others))}"
    again = " ".join(map(shell_word, (*serves, *others)))
    then = f", then `stdiod {socket_option(socket)}up {again}` starts one for all" if others else ""
    raise NoError(f"{words}; {_way_out(socket)}{then}")


def _way_out(socket: Path) -> str:
    return f"`stdiod {socket_option(socket)}down` ends it"


def _follow(socket: Path, ticker: Ticker, timeout_s: float | None) -> dict[str, Any]:
    """Show the modules getting ready; returns the status at the end."""
    ready = 0

    def progress(event: dict[str, Any], _: bytes) -> None:
        nonlocal ready
        fields = event.get("fields") or {}
        if event.get("level") == "debug":
            ticker.line(one_line(str(event.get("message"))))
            return
        well = event.get("level") == "info"
        ready += well
        count = f"{ready}/{fields.get('of')} ready"
        if well or ticker.live:  # a failure is reported once, at the end, with more details
            ticker.step(one_line(str(event.get("message"))), count)

    with DaemonClient(socket) as client:
        ticker.show("starting the modules")
        try:
            answer = client.own("wait", {"for": "verdict"}, progress, timeout_s)
        except RequestTimeoutError:
            ticker.line(f"not all modules have a verdict after {timeout_s:g} s")
        else:
            result_of(answer, as_json=False, module="wait")
    with DaemonClient(socket) as client:
        answer = client.known("status")
    status: dict[str, Any] = result_of(answer, as_json=False, module="status")
    return status


def _start(module: dict[str, Any]) -> str:
    return str("disabled" if module["state"] == "disabled" else module["start"])


def _serves(module: dict[str, Any]) -> bool:
    return module["state"] in ("ready", "degraded") or is_asleep(module)


def _report(status: dict[str, Any], late: list[dict[str, Any]], took_s: float) -> None:
    for one in late:
        name, state, why = one_line(one["name"]), one["state"], note(one)
        told = f"{name}: {why} ({state_word(state)})" if why else f"{name} {is_in(state)}"
        click.echo(told, err=True)
    for one in status["modules"]:
        if one not in late and (words := warning(one)):
            told = f"warning: {one_line(one['name'])}: {words}"
            click.echo(click.style(told, fg="yellow"), err=True)
    for one in status["quarantined"]:
        words = f"{one_line(one['descriptor'])} is quarantined: {one_line(one['reason'])}"
        click.echo(click.style(words, fg="yellow"), err=True)
    if not status["modules"] and not status["quarantined"]:
        from supervisor.runtime.files.directory import none_found

        click.echo(one_line(none_found([*map(Path, status["daemon"]["directories"])])), err=True)
    starts = Counter(map(_start, status["modules"]))
    eager = starts.pop("eager", 0)
    parts = [f"{eager - len(late)} of {count(eager, 'module')} ready in {duration(took_s)}"]
    if not eager:
        parts = [] if starts else ["no modules"]
    parts += [f"{number} {start}" for start, number in sorted(starts.items(), reverse=True)]
    if status["quarantined"]:
        parts.append(f"{count(len(status['quarantined']), 'descriptor')} quarantined")
    daemon = status["daemon"]
    where = f"pid {daemon['pid']}, socket {daemon['socket']}"
    click.echo(f"stdiod{of_project(daemon)} is up ({where}): {', '.join(parts)}")
