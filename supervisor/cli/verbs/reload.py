"""`stdiod reload`: apply changed descriptors, and show the plan."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import NO, interruption
from supervisor.cli.options import example, with_json, with_socket
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json, result_of
from supervisor.cli.terminal import cut, dim, one_line


@click.command(epilog=example("reload --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@with_json
@with_socket
def reload(*, dry_run: bool, as_json: bool, socket: Path) -> None:
    """Replace the modules whose descriptors changed, and no others; show the plan as a diff.

    Reads the policy file again, too. Exits with 1 if the policy or a descriptor cannot be used;
    the last good version then stays in use.
    """
    with (
        DaemonClient(socket) as client,
        contextlib.nullcontext() if dry_run else interruption("the reload continues in the daemon"),
    ):
        answer = client.own("reload", {"dry_run": dry_run})
    plan = result_of(answer, as_json=as_json, module="reload")
    if as_json:
        print_json(plan)
    else:
        click.echo(plan_text(plan))
    if plan["quarantined"] or plan.get("unrunnable") or plan.get("policy_problem"):
        raise click.exceptions.Exit(NO)


VALUE_CHARS = 200
"""A longer value is cut; --json has all of it."""


def plan_text(plan: dict[str, Any]) -> str:
    """Return the plan as lines: `+` added, `-` removed, `~` changed, `>` moved, `!` not usable."""
    return "\n".join(_lines(plan))


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    for one in plan["removed"]:
        yield _head("-", "red", one)
    for one in plan["changed"]:
        yield _head("~", "yellow", one)
        for change in one["changes"]:
            yield f"    {one_line(change['pointer'])}"
            for mark, colour, side in (("-", "red", "old"), ("+", "green", "new")):
                if side in change:
                    yield click.style(f"    {mark} {_value(change[side])}", fg=colour)
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
    yield from _policy(plan.get("policy_problem"), plan.get("policy"))
    yield _summary(plan)


def _policy(problem: str | None, path: str | None) -> Iterator[str]:
    if problem is None:
        if path is not None:
            yield f"the policy {one_line(path)} was read"
        return
    mark = click.style("!", fg="red")
    yield from (f"{mark} {one_line(line)}" for line in problem.splitlines())
    yield "  the last good policy stays in use"


def _head(mark: str, colour: str, one: dict[str, Any]) -> str:
    name = click.style(f"{mark} {one_line(one['name'])}", fg=colour)
    return f"{name}  {dim(one_line(one['descriptor']))}"


def _value(value: Any) -> str:
    text = one_line(msgspec.json.encode(value).decode())
    return cut(text, VALUE_CHARS)


def _summary(plan: dict[str, Any]) -> str:
    numbers = [
        f"{len(plan[what])} {what}" for what in ("removed", "changed", "added") if plan[what]
    ]
    untouched = f"{count(len(plan['unchanged']), 'module')} untouched"
    if not numbers and plan["unchanged"]:
        how = "a reload looks at descriptors, and at programs with supervision.watch; after another"
        untouched += f" ({how} change, or one of an env file: `stdiod restart MODULE`)"
    done = "would be " if plan["dry_run"] and numbers else ""
    return f"{done}{', '.join(numbers)}; {untouched}" if numbers else f"no change; {untouched}"
