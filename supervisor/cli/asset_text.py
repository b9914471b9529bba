"""Lay out what is known of assets, for people."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.quantities import count, size, utc_stamp
from supervisor.cli.results import compact
from supervisor.cli.terminal import dim, one_line, pad

_COLUMNS = ("ASSET", "NAME", "MODULE", "SESSION", "TYPE", "SIZE")
_LABEL = 10


def assets_text(listed: dict[str, Any]) -> str:
    """Return a table of assets, one in a line, and what is not in it."""
    assets = listed["assets"]
    lines = _table([_row(one) for one in assets]) if assets else ["no assets"]
    if listed["left_out"]:
        lines.append(f"{count(listed['left_out'], 'older asset')} left out")
    if listed["forgotten"]:
        lines.append(f"{count(listed['forgotten'], 'older asset')} forgotten")
    return "\n".join(lines)


def asset_text(asset: dict[str, Any]) -> str:
    """Return a page for one asset."""
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


def _row(asset: dict[str, Any]) -> tuple[str, ...]:
    shown = (
        asset["asset"],
        asset["asset_id"],
        asset["module"],
        asset["session_id"] or "-",
        asset["media_type"],
        size(asset["size"]),
    )
    return tuple(one_line(one) for one in shown)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[n]) for row in [_COLUMNS, *rows]) for n in range(len(_COLUMNS))]
    return [
        "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [_COLUMNS, *rows]
    ]
