"""Defaults of options from a file.

The command line wins. The file is that of `--config`, else the `stdiod.toml` of a trusted project.
The option is eager, so the file has been read when the other options look for their defaults here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli.exit_status import NoError
from supervisor.cli.project import TrustState, here

if TYPE_CHECKING:
    from supervisor.daemon.config_file import Config

_KEY = "stdiod.config"
_PROJECTS = "stdiod.config_of_project"


def read(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    """Read the file of `--config`; returns its absolute path."""
    if value is None:
        return None
    from supervisor.daemon.config_file import ConfigError, read_config

    path = value.absolute()
    try:
        ctx.meta[_KEY] = (path, read_config(path))
    except ConfigError as error:
        raise click.UsageError(str(error), ctx) from None
    return path


def named(ctx: click.Context) -> Config | None:
    """Return the configuration of `--config`, None without the option."""
    found = ctx.meta.get(_KEY)
    return None if found is None else found[1]


def said(ctx: click.Context) -> Config | None:
    """Return the configuration, None without a file. Raises `click.UsageError`."""
    found = _file(ctx)
    return None if found is None else found[1]


def _file(ctx: click.Context) -> tuple[Path, Config] | None:
    if _KEY in ctx.meta:
        found: tuple[Path, Config] = ctx.meta[_KEY]
        return found
    if _PROJECTS not in ctx.meta:
        ctx.meta[_PROJECTS] = _of_project(ctx)
    of_project: tuple[Path, Config] | None = ctx.meta[_PROJECTS]
    return of_project


def _of_project(ctx: click.Context) -> tuple[Path, Config] | None:
    project = here()
    if project is None or project.standing is not TrustState.TRUSTED:
        return None
    from supervisor.daemon.config_file import ConfigError

    try:
        return project.file, project.config()
    except ConfigError as error:  # another version accepted the file
        raise click.UsageError(str(error), ctx) from None


def directories(ctx: click.Context) -> tuple[Path, ...]:
    """Return the directories of the file; raises `click.UsageError` if one does not exist."""
    file = _file(ctx)
    if file is None:
        return ()
    path, config = file
    found = config.directories or ()
    for directory in no_directories(found):
        raise click.UsageError(f"{path}: directories: {directory} is not a directory", ctx)
    return found


def refuse_untrusted(ctx: click.Context, *, directories_named: bool) -> None:
    """Raise `NoError` if the project here is not trusted as it is.

    With directories on the command line, a project that was never trusted does not matter: the
    user's own daemon is started.
    """
    project = here() if named(ctx) is None else None
    if project is None or project.standing is TrustState.TRUSTED:
        return
    if not directories_named or project.standing is TrustState.CHANGED:
        raise NoError(f"no daemon is started for {project.folder} before `stdiod trust`")


def no_directories(paths: tuple[Path, ...]) -> list[Path]:
    """Return the paths that are not directories; a hung mount is left to the daemon."""
    from supervisor.runtime.threads import Threads

    are = Threads().look_at_each([(f"looking at {path}", path.is_dir) for path in paths])
    return [path for path, is_one in zip(paths, are, strict=True) if is_one is False]
