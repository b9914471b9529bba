"""The sample modules with pools and warm starts forced on: `forced` rewrites their descriptors.

A persistent module gets several instances, one with a process per invocation gets warm ones. Those
of `ALONE` and `NEVER_WARM` are left as they are, by name and with the reason.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

Json = dict[str, Any]

POOL = {"min": 2, "max": 4}
WARM = 2

ALONE = {
    "notes": "what it was told to remember is in the memory of the process that was told",
    "audit": "it counts the events that its own process was told",
    "memory": "a conversation without a session is in the memory of the process that was told",
}
"""Modules of which there is to be one process only (docs/descriptor.md, `instances`)."""

NEVER_WARM = {"torch": "it takes 5 s of silence on its stdin for an empty request"}
"""Modules that do not wait for their request (docs/operating.md, Warm processes)."""


def pooled(document: Json) -> bool:
    """Whether `forced` gives it a pool."""
    return document["transport"]["protocol"] == "module" and document["name"] not in ALONE


def warmed(document: Json) -> bool:
    """Whether `forced` gives it warm processes."""
    return document["transport"]["protocol"] == "narratoria" and document["name"] not in NEVER_WARM


def forced(document: Json) -> Json:
    """Return a descriptor with a pool, or with warm processes, unless it is excepted."""
    more: Json = {"instances": POOL} if pooled(document) else {}
    more |= {"warm": WARM} if warmed(document) else {}
    return {**document, "supervision": {**document.get("supervision", {}), **more}}


def copy_forced(source: Path, target: Path) -> None:
    """Copy sample modules, with pools and warm starts forced on."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.glob("*/module.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(forced(document), indent=2), encoding="utf-8")
