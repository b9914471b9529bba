"""Hand what `--config FILE` says to the options it stands in for; the command line wins.

The option is eager, so the file has been read when the others look for their defaults here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from supervisor.daemon.config_file import Config

_KEY = "stdiod.config"


def read(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Read the file of the option `--config`; returns its absolute path."""
    del param
    if value is None:
        return None
    from supervisor.daemon.config_file import ConfigError, read_config

    path = value.absolute()
    try:
        ctx.meta[_KEY] = (path, read_config(path))
    except ConfigError as error:
        raise click.UsageError(str(error), ctx) from None
    return path


def said(ctx: click.Context) -> Config | None:
    """Return what the file says, or None if none was named."""
    found = ctx.meta.get(_KEY)
    return None if found is None else found[1]


def directories(ctx: click.Context) -> tuple[Path, ...]:
    """Return the directories that the file names; raises `click.UsageError` if one is not there."""
    path, config = ctx.meta.get(_KEY, (None, None))
    named: tuple[Path, ...] = () if config is None else config.directories or ()
    for directory in no_directories(named):
        raise click.UsageError(f"{path}: directories: {directory} is not a directory", ctx)
    return named


def no_directories(paths: tuple[Path, ...]) -> list[Path]:
    """Return those that are no directories; one that does not answer is left to the daemon."""
    from supervisor.runtime.files.looks import Looks

    are = Looks().each([(f"looking at {path}", path.is_dir) for path in paths])
    return [path for path, is_one in zip(paths, are, strict=True) if is_one is False]
