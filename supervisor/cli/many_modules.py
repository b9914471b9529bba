"""The words MODULE... and --all, of verbs about several modules."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import click

from supervisor.cli.client import Answer, DaemonClient
from supervisor.cli.options import MODULE, F


def with_modules(function: F) -> F:
    """Add MODULE... and --all; the verb gets `modules` or `every`, for `chosen`."""

    @functools.wraps(function)
    def checked(*, modules: tuple[str, ...], every: bool, **others: Any) -> Any:
        if modules and every:
            raise click.UsageError("name modules or give --all, not both")
        if not modules and not every:
            raise click.UsageError("name a MODULE, or several, or give --all")
        return function(modules=modules, every=every, **others)

    all_of_them = click.option("--all", "every", is_flag=True, help="All modules instead.")
    named = click.argument("modules", metavar="[MODULE]...", nargs=-1, type=MODULE)
    return cast("F", named(all_of_them(checked)))


def chosen(
    client: DaemonClient, modules: tuple[str, ...], *, every: bool, wanted: bool = False
) -> list[str]:
    """Return the names that were typed, else all enabled modules; with `wanted` those wanted up."""
    if not every:
        return list(dict.fromkeys(modules))
    entries: list[dict[str, Any]] = client.known("status").result["modules"]
    used = (one for one in entries if one["state"] != "disabled")
    return [one["name"] for one in used if one["wanted"] == "up" or not wanted]


def in_turn(
    names: Sequence[str], answers: Iterable[tuple[int, Answer]]
) -> Iterator[tuple[str, Answer]]:
    """Yield the answers with their modules in the order of the names, each as early as possible."""
    come: dict[int, Answer] = {}
    shown = 0
    for number, answer in answers:
        come[number] = answer
        while shown in come:
            yield names[shown], come.pop(shown)
            shown += 1
