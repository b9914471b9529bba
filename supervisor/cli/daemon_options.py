"""Define what `run` and `up` have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from supervisor.cli import configured
from supervisor.cli.locations import default_data_dir
from supervisor.cli.options import TEXT
from supervisor.daemon.config_file import Config
from supervisor.kernel.store.settings import JournalOptions, Limits

F = TypeVar("F", bound=Callable[..., Any])


def _no_http(ctx: click.Context, param: click.Parameter, value: str) -> None:
    del ctx
    if value != "off":
        words = f"{value!r}: this version has no HTTP face; only 'off' can be chosen"
        raise click.BadParameter(words, param=param)


def _data_dir(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path:
    del param
    config = configured.said(ctx)
    return (value or (config and config.data_dir) or default_data_dir()).absolute()


def _policy(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    del param
    config = configured.said(ctx)
    chosen = value or (config.policy if config is not None else None)
    return None if chosen is None else chosen.absolute()


def _directories(
    ctx: click.Context, param: click.Parameter, value: tuple[Path, ...]
) -> tuple[Path, ...]:
    found = value or configured.directories(ctx)
    if not found:
        raise click.MissingParameter(ctx=ctx, param=param)
    for directory in configured.no_directories(found):
        raise click.BadParameter(f"{directory} is not a directory", ctx, param)
    return found


class _Directory(click.Path):
    """Completed as one by shells; `click.Path` would wait for one that does not answer."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        del param, ctx
        return Path(value)


with_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    is_eager=True,
    callback=configured.read,
    help="A TOML file with defaults for DIR... and the options; see docs/operating.md.",
)

_OPTIONS = (
    click.argument(
        "directories",
        metavar="DIR...",
        nargs=-1,
        required=False,  # a configuration file may name them
        callback=_directories,
        type=_Directory(file_okay=False),
    ),
    with_config,
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="PATH",
        callback=_data_dir,
        help="Where logs and the journal are kept."
        "  [default: $STDIOD_DATA_DIR, else the user's state directory]",
    ),
    click.option(
        "--policy",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_policy,
        help="What modules may call the daemon for; see docs/operating.md.  [default: nothing]",
    ),
    click.option(
        "--http",
        default="off",
        metavar="off",
        callback=_no_http,
        expose_value=False,
        help="No HTTP face; this version has none.",
    ),
    click.option(
        "--name",
        type=TEXT,
        default="supervisor",
        show_default=True,
        metavar="NAME",
        help="What the daemon calls itself where it is a module of another one.",
    ),
)


def with_daemon_options(function: F) -> F:
    """Add DIR..., --config, --data-dir, --policy, --http and --name."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def absolute(directories: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return directories as they are to be remembered, wherever a daemon works."""
    return tuple(directory.absolute() for directory in directories)


def journal_options(config: Config) -> JournalOptions:
    """Return the options, each at its default where the file does not say."""
    usual = Limits()
    limits = Limits(
        days=usual.days if config.journal_days is None else config.journal_days,
        size_bytes=usual.size_bytes if config.journal_bytes is None else config.journal_bytes,
    )
    return JournalOptions(limits=limits, power=config.durability == "power")
