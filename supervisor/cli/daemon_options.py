"""Options that `run` and `up` share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from supervisor.cli import configured
from supervisor.cli.options import TEXT, UNSEEN_PATH, F, UnseenPath
from supervisor.cli.project import default_data_dir
from supervisor.daemon.config_file import Config
from supervisor.kernel.store.settings import JournalLimits, JournalOptions
from supervisor.policy.http_exposure import OFF, Exposure, ExposureError, read_exposure


class HttpOptions(NamedTuple):
    """The values of --http, --http-cert, --http-key and --http-insecure."""

    place: str | None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def exposure(self, ctx: click.Context, otherwise: str = OFF) -> Exposure | None:
        """Return where HTTP is served; raises `click.UsageError`.

        An address on the command line does not use the certificate of an address in the file.
        """
        file = configured.said(ctx) or Config()
        place, cert, key, insecure = self
        if place is None:
            place = file.http or otherwise
            cert, key = cert or file.http_cert, key or file.http_key
            insecure = insecure or bool(file.http_insecure)
        cert, key = (None if one is None else one.absolute() for one in (cert, key))
        try:
            origins = file.http_origins or ()
            return read_exposure(place, cert, key, insecure=insecure, origins=origins)
        except ExposureError as error:
            raise click.UsageError(f"--http: {error}", ctx) from None

    def words(self) -> list[str]:
        words = [] if self.place is None else ["--http", self.place]
        for option, path in {"--http-cert": self.cert, "--http-key": self.key}.items():
            if path is not None:
                words += [option, str(path.absolute())]
        return words + ["--http-insecure"] * self.insecure


def _data_dir(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path:
    config = configured.said(ctx)
    return (value or (config and config.data_dir) or default_data_dir()).absolute()


def _policy(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    config = configured.said(ctx)
    chosen = value or (config.policy if config is not None else None)
    return None if chosen is None else chosen.absolute()


def _directories(
    ctx: click.Context, param: click.Parameter, value: tuple[Path, ...]
) -> tuple[Path, ...]:
    configured.refuse_untrusted(ctx, directories_named=bool(value))
    found = value or configured.directories(ctx)
    if not found:
        words = "name a DIR with modules, or a --config that names one, or run this in a project"
        usual = Path(click.get_app_dir("stdiod"), "stdiod.toml")
        if usual.exists():
            words += f"; {usual} is read with `--config {usual}`"
        raise click.UsageError(words, ctx)
    for directory in configured.no_directories(found):
        raise click.BadParameter(f"{directory} is not a directory", ctx, param)
    return tuple(directory.absolute() for directory in found)


with_config = click.option(
    "--config",
    type=UNSEEN_PATH,
    metavar="FILE",
    is_eager=True,
    callback=configured.read,
    help="A TOML file with defaults for DIR... and the options; see docs/operating.md."
    "  [default: the stdiod.toml of a trusted project]",
)

_WHERE = click.option(
    "--http",
    metavar="sock|HOST:PORT",
    help="Where: on http.sock beside the socket, or at an address too.  [default: sock]",
)

_TLS = (
    click.option(
        "--http-cert",
        type=UNSEEN_PATH,
        metavar="FILE",
        help="The certificate (PEM) for TLS at the address.",
    ),
    click.option(
        "--http-key",
        type=UNSEEN_PATH,
        metavar="FILE",
        help="Its private key.",
    ),
    click.option(
        "--http-insecure",
        is_flag=True,
        help="Serve an address that others reach without TLS; tokens can be read on their way.",
    ),
)

_OPTIONS = (
    click.argument(
        "directories",
        metavar="[DIR...]",
        nargs=-1,
        required=False,  # a configuration file may name them
        callback=_directories,
        type=UnseenPath(file_okay=False),
    ),
    with_config,
    click.option(
        "--data-dir",
        type=UnseenPath(file_okay=False),
        metavar="PATH",
        callback=_data_dir,
        help="Where logs and the journal are kept."
        "  [default: $STDIOD_DATA_DIR, else the project's, else the user's state directory]",
    ),
    click.option(
        "--policy",
        type=UNSEEN_PATH,
        metavar="FILE",
        callback=_policy,
        help="What modules may call the daemon for; see docs/operating.md.  [default: nothing]",
    ),
    click.option(
        "--http",
        metavar="off|sock|HOST:PORT",
        help="Serve HTTP: on http.sock beside the socket, or at an address too.  [default: off]",
    ),
    *_TLS,
    click.option(
        "--name",
        type=TEXT,
        default="supervisor",
        show_default=True,
        metavar="NAME",
        help="The daemon's name as a module of another daemon.",
    ),
)


def with_daemon_options(function: F) -> F:
    """Add DIR..., --config, --data-dir, --policy, --name, and `http` with the --http options."""
    return _with(_OPTIONS, function)


def with_gateway_options(function: F) -> F:
    """Add --config, and `http` with the --http options."""
    return _with((with_config, _WHERE, *_TLS), function)


def _with(options: tuple[Callable[[F], F], ...], function: F) -> F:
    @functools.wraps(function)
    def called(
        *args: Any,
        http: str | None,
        http_cert: Path | None,
        http_key: Path | None,
        http_insecure: bool,
        **others: Any,
    ) -> Any:
        http_options = HttpOptions(http, http_cert, http_key, http_insecure)
        return function(*args, http=http_options, **others)

    command = cast("F", called)
    for option in reversed(options):
        command = option(command)
    return command


def journal_options(config: Config) -> JournalOptions:
    usual = JournalLimits()
    limits = JournalLimits(
        days=usual.days if config.journal_days is None else config.journal_days,
        size_bytes=usual.size_bytes if config.journal_bytes is None else config.journal_bytes,
    )
    return JournalOptions(limits=limits, power=config.durability == "power")
