"""`stdiod status`, `reload` and `down`: the daemon that runs."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator
from typing import Any

import click

from protocol.client import Answer, RequestEvent
from supervisor.cli.client import DaemonClient, given_args, own_op
from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.exit_status import NoError, exit_unless, interruption
from supervisor.cli.options import MODULE, example
from supervisor.cli.quantities import count, duration
from supervisor.cli.results import print_document, result_of, short
from supervisor.cli.status_text import in_trouble, module_text, of_project, status_text
from supervisor.cli.terminal import Ticker, columns_of_stdout, dim, one_line
from supervisor.edge.bindings.blocking import RequestTimeoutError


@click.command(epilog=example("status", "status dice", "status --failing"))
@click.argument("modules", metavar="[MODULE]", nargs=-1, type=MODULE)
@click.option(
    "--failing",
    is_flag=True,
    help="Show only what is in trouble; exit with 1 if there is any, with 0 if all is well.",
)
@with_daemon
def status(modules: tuple[str, ...], failing: bool, daemon: DaemonVerb) -> None:
    """Show the daemon and its modules, those in trouble first, or all that is known of one MODULE.

    A module is in trouble if it is failed, in backoff or degraded, waits for another one, has
    ended badly, or has a bad changed descriptor. So is a quarantined descriptor.
    """
    if len(modules) > 1:
        raise click.UsageError("name one MODULE, or none: that shows all of them in a table")
    module = modules[0] if modules else None
    with daemon.connect() as client:
        answer = client.known("status", given_args(module=module))
    found = daemon.result(answer, module or "status")
    entries = found["modules"] if module is None else [found]
    bad = [one for one in entries if in_trouble(one)]
    if daemon.as_json:
        print_document({**found, "modules": bad} if failing and module is None else found)
    elif module is None:
        click.echo(status_text(found, columns_of_stdout(), failing=failing))
    else:
        click.echo(module_text(found))
    exit_unless(not failing or not (bad or found.get("quarantined")))


@click.command(epilog=example("reload --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@with_daemon
def reload(*, dry_run: bool, daemon: DaemonVerb) -> None:
    """Replace the modules whose descriptors changed, and no others; show the plan as a diff.

    Reads the policy file again, too. Exits with 1 if the policy or a descriptor cannot be used;
    the last good version then stays in use.
    """
    with (
        daemon.connect() as client,
        contextlib.nullcontext() if dry_run else interruption("the reload continues in the daemon"),
    ):
        answer = client.own("reload", {"dry_run": dry_run})
    plan = daemon.result(answer, "reload")
    daemon.show(plan, plan_text)
    exit_unless(not (plan["quarantined"] or plan.get("unrunnable") or plan.get("policy_problem")))


def plan_text(plan: dict[str, Any]) -> str:
    """Return the plan as lines: `+` added, `-` removed, `~` changed, `>` moved, `!` not usable."""
    return "\n".join(_plan_lines(plan))


def _plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    for one in plan["removed"]:
        yield _head("-", "red", one)
    for one in plan["changed"]:
        yield _head("~", "yellow", one)
        for change in one["changes"]:
            yield f"    {one_line(change['pointer'])}"
            for mark, colour, side in (("-", "red", "old"), ("+", "green", "new")):
                if side in change:
                    yield click.style(f"    {mark} {short(change[side])}", fg=colour)
        for path in one["programs"]:
            yield f"    its program {one_line(path)} changed"
    for one in plan["added"]:
        yield _head("+", "green", one)
    for one in plan["moved"]:
        path, before = one_line(one["descriptor"]), one_line(one["from"])
        yield f"> {one_line(one['name'])}  {dim(f'{before} is now {path}')}"
    for one in [*plan["quarantined"], *plan.get("unrunnable", ())]:
        mark = click.style("!", fg="red")
        yield f"{mark} {one_line(one['descriptor'])}: {one_line(one['reason'])}"
    if plan.get("policy_problem") is not None:
        for line in plan["policy_problem"].splitlines():
            yield f"{click.style('!', fg='red')} {one_line(line)}"
        yield "  the last good policy stays in use"
    elif plan.get("policy") is not None:
        yield f"the policy {one_line(plan['policy'])} was read"
    yield _plan_summary(plan)


def _head(mark: str, colour: str, one: dict[str, Any]) -> str:
    name = click.style(f"{mark} {one_line(one['name'])}", fg=colour)
    return f"{name}  {dim(one_line(one['descriptor']))}"


def _plan_summary(plan: dict[str, Any]) -> str:
    numbers = [
        f"{len(plan[what])} {what}" for what in ("removed", "changed", "added") if plan[what]
    ]
    untouched = f"{count(len(plan['unchanged']), 'module')} untouched"
    if not numbers and plan["unchanged"]:
        how = "a reload looks at descriptors, and at programs with supervision.watch; after another"
        untouched += f" ({how} change, or one of an env file: `stdiod restart MODULE`)"
    done = "would be " if plan["dry_run"] and numbers else ""
    return f"{done}{', '.join(numbers)}; {untouched}" if numbers else f"no change; {untouched}"


GONE_S = 60.0
"""Longer than a daemon takes: it kills the remaining processes after 30 s, and ends."""


@click.command(epilog=example("down"))
@with_daemon
def down(daemon: DaemonVerb) -> None:
    """End the daemon and all its modules; returns when it is gone.

    With --json, prints {"pid"} of what ended.
    """
    began_s = time.monotonic()
    silent = Ticker(silent=daemon.as_json)
    with daemon.connect() as client, silent as ticker, _pidfd(client.daemon_pid()) as process:
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
    daemon.show({"pid": pid}, f"stdiod{whose} is down (pid {pid}), in {took}")


def _shut_down(client: DaemonClient, ticker: Ticker, running: list[str]) -> int:
    """Shut the daemon down, and show progress until the connection closes; returns its pid."""
    if running:
        # Open while the daemon ends, this request tells which modules are down already.
        client.send(*own_op("wait", {"modules": running, "for": "down"}))
    asked = client.send(*own_op("shutdown"))
    pid = 0
    with contextlib.suppress(RequestTimeoutError):
        for event in client.events(GONE_S):
            if isinstance(event, RequestEvent):
                told = event.document
                number = (told.get("fields") or {}).get("number")
                ticker.step(one_line(str(told.get("message"))), f"{number}/{len(running)} down")
            elif isinstance(event, Answer) and event.request_id == asked:
                pid = int(result_of(event, as_json=False, module="shutdown")["pid"])
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
