"""What the tests of hot reload share: a change of a file, and the daemon that notices it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving


@contextmanager
def reload_of(daemon: Daemon) -> Iterator[dict[str, Any]]:
    """Have the daemon notice what is done in the block; gives what it did about it, in numbers."""
    before = daemon.op("status")["daemon"]["reloads"]
    last: dict[str, Any] = {}
    yield last
    last |= daemon.op("reloaded", number=before + 1)
    # On a slow machine it may have looked when half of the block was done.
    daemon.op("reload")
    modules = daemon.op("status")["modules"]
    serving = [one["name"] for one in modules if one["state"] in ("ready", "degraded")]
    daemon.op("wait", **{"modules": serving, "for": "verdict"})


def pids(daemon: Daemon) -> dict[str, list[int]]:
    """Return who is there to stay, by module."""
    return {
        one["name"]: [instance["pid"] for instance in one["instances"] if not _goes(instance)]
        for one in daemon.op("status")["modules"]
    }


def _goes(instance: dict[str, Any]) -> bool:
    return bool(instance["state"] == "stopping")


def quarantined(daemon: Daemon) -> dict[str, str]:
    found = daemon.op("status")["quarantined"]
    return {Path(one["descriptor"]).name: one["reason"] for one in found}


def replace(path: Path, text: str) -> None:
    """Put a file in the place of another one, as careful programs do."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def text(document: dict[str, Any], **fields: Any) -> str:
    return json.dumps({**document, **fields})


A, B = misbehaving("a"), misbehaving("b")


def touch(path: Path) -> None:
    os.utime(path)


def rename(path: Path) -> None:
    path.rename(path.with_name("renamed.json"))
