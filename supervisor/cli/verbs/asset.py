"""`stdiod asset`: find the files that modules handed over, and open them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from functools import partial
from typing import Any

import click

from supervisor.cli.daemon_verb import DaemonVerb, with_daemon
from supervisor.cli.exit_status import NoError
from supervisor.cli.options import TEXT, example
from supervisor.cli.quantities import count, size, utc_stamp
from supervisor.cli.results import compact
from supervisor.cli.terminal import column_widths, dim, is_terminal, one_line, table_line

OPENER = "xdg-open"


@click.group(epilog=example("asset list --module chart"))
def asset() -> None:
    """Find the files that modules handed over, and open them.

    ASSET is an id as `list` shows it, its beginning, or the module's own name for the file, which
    means the newest one.
    """


@asset.command("list", epilog=example("asset list --module chart"))
@click.option("--session", "session_id", type=TEXT, metavar="ID", help="Only those of a session.")
@click.option("--module", type=TEXT, metavar="NAME", help="Only those of a module.")
@click.option("--request", "request_id", type=TEXT, metavar="ID", help="Only those of a request.")
@with_daemon
def list_assets(*, daemon: DaemonVerb, **wanted: str | None) -> None:
    """List assets, the oldest first."""
    daemon.show(daemon.call("asset.list", **wanted), assets_text)


@asset.command(epilog=example("asset show rain.svg"))
@click.argument("asset", type=TEXT)
@with_daemon
def show(asset: str, *, daemon: DaemonVerb) -> None:
    """Show all that is known about ASSET, without looking at its file."""
    daemon.show(daemon.call("asset.show", asset=asset), asset_text)


@asset.command("open", epilog=example("asset open rain.svg"))
@click.argument("asset", type=TEXT)
@click.option("--print", "only_print", is_flag=True, help="Print the path, even on a terminal.")
@with_daemon
def open_asset(asset: str, *, only_print: bool, daemon: DaemonVerb) -> None:
    """Open ASSET, after checking that it is still the same file.

    Opens it with $STDIOD_OPENER, else xdg-open. With --print, or without a terminal, prints its
    path.
    """
    plain = only_print or not is_terminal(sys.stdout)
    found = daemon.call("asset.read", asset=asset)
    daemon.show(found, str(found["path"]) if plain else lambda found: _open(str(found["path"])))


def _open(path: str) -> None:
    said = os.environ.get("STDIOD_OPENER")
    try:
        command = shlex.split(said) if said else [OPENER]
    except ValueError as error:
        raise click.UsageError(f"STDIOD_OPENER: {said!r} is not a command: {error}") from None
    if not command or shutil.which(command[0]) is None:
        missing = command[0] if command else "a command"
        words = f"there is no {missing} here to open it with; set STDIOD_OPENER, or use --print"
        raise NoError(f"{path}: {words}")
    ended = subprocess.run([*command, path], check=False)
    if ended.returncode != 0:
        raise NoError(f"{command[0]} ended with {ended.returncode} for {path}")


_COLUMNS = ("ASSET", "NAME", "MODULE", "SESSION", "TYPE", "SIZE")
_LABEL = 10


def assets_text(listed: dict[str, Any]) -> str:
    """Return a table of assets, and how many are left out."""
    rows = [_row(one) for one in listed["assets"]]
    line = partial(table_line, _COLUMNS, column_widths(_COLUMNS, rows))
    lines = [line(), *map(line, rows)] if rows else ["no assets"]
    if listed["left_out"]:
        lines.append(f"{count(listed['left_out'], 'older asset')} left out")
    if listed["forgotten"]:
        lines.append(f"{count(listed['forgotten'], 'older asset')} forgotten")
    return "\n".join(lines)


def asset_text(asset: dict[str, Any]) -> str:
    digest = asset["sha256"] or asset["problem"] or "not read yet"
    facts = {
        "name": asset["asset_id"],
        "kind": f"{asset['kind']}, {asset['media_type']}",
        "path": asset["path"],
        "leads to": asset["real_path"] if asset["real_path"] != asset["path"] else None,
        "size": f"{asset['size']} bytes",
        "sha256": digest,
        "copy": "kept" if asset["copied"] else None,
        "made by": f"{asset['module']}.{asset['op']}, request {asset['request_id']}",
        "session": asset["session_id"],
        "when": utc_stamp(asset["ts"]),
        "metadata": None if asset["metadata"] is None else compact(asset["metadata"]),
        "shown as": asset["placeholder"],
    }
    lines = [click.style(one_line(asset["asset"]), bold=True)]
    lines += [
        f"  {dim(label.ljust(_LABEL))}{one_line(str(value))}"
        for label, value in facts.items()
        if value is not None
    ]
    return "\n".join(lines)


def _row(asset: dict[str, Any]) -> dict[str, str]:
    shown = (
        asset["asset"],
        asset["asset_id"],
        asset["module"],
        asset["session_id"] or "-",
        asset["media_type"],
        size(asset["size"]),
    )
    return dict(zip(_COLUMNS, map(one_line, shown), strict=True))
