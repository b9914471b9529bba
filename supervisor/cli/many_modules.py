"""Let a verb be about several modules, or about all: the words MODULE... and --all."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.client import Client
from supervisor.cli.options import MODULE, F


def with_modules(function: F) -> F:
    """Add MODULE... and --all; the verb gets `modules` and `every`, for `chosen`."""
    every = click.option("--all", "every", is_flag=True, help="All modules instead.")
    return click.argument("modules", metavar="[MODULE]...", nargs=-1, type=MODULE)(every(function))


def chosen(
    client: Client, modules: tuple[str, ...], *, every: bool, wanted: bool = False
) -> list[str]:
    """Return the names that were typed, or all; of all, those that are to be up if `wanted`.

    Raises `click.UsageError` unless there is one or the other.
    """
    if modules and every:
        raise click.UsageError("name modules, or say --all; not both")
    if modules:
        return list(dict.fromkeys(modules))
    if not every:
        raise click.UsageError("name a MODULE, or several, or say --all")
    entries: list[dict[str, Any]] = client.known("status").result["modules"]
    return [one["name"] for one in entries if one["wanted"] == "up" or not wanted]
