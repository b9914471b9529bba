"""Where the peers from PyPI are, each in an environment of its own, and why one is not there."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / ".venv-peers"
PACKAGES: Final = ("mcp", "supervisor", "circus")
HOW: Final = "not installed; `make bench-peers` does that"


def program(package: str, name: str, folder: Path = FOLDER) -> Path:
    """Return the path that a program of a package has if it is installed."""
    return folder / package / "bin" / name


def version(package: str, folder: Path = FOLDER) -> str | None:
    """Return the version of what is installed, or None."""
    site = [str(path) for path in (folder / package).glob("lib/python*/site-packages")]
    found = importlib.metadata.distributions(name=package, path=site) if site else ()
    return next((one.version for one in found), None)


def why_missing(package: str, folder: Path = FOLDER) -> str:
    """Return what the installation left as its reason, or how to try."""
    try:
        return _note(package, folder).read_text(encoding="utf-8").strip() or HOW
    except FileNotFoundError:
        return HOW


def note_failure(package: str, why: str, folder: Path = FOLDER) -> None:
    """Keep the reason why a peer could not be installed; an empty one is forgotten."""
    folder.mkdir(parents=True, exist_ok=True)
    _note(package, folder).write_text(why, encoding="utf-8")


def _note(package: str, folder: Path) -> Path:
    return folder / f"{package}.missing"
