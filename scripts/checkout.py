"""This checkout: where it is, its `stdiod` command, and the processes that a script has started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
INSTALLED: Final = Path(sys.executable).with_name("stdiod")
STDIOD: Final = (
    [str(INSTALLED)] if INSTALLED.exists() else [sys.executable, "-P", "-m", "supervisor.cli"]
)
"""The command, installed or not."""


def has_tmpdir(process: psutil.Process, folder: Path) -> bool:
    """Tell whether a process has inherited a TMPDIR, whoever started it."""
    try:
        # A zombie has no environment any more, and holds nothing.
        return process.environ().get("TMPDIR") == str(folder)
    except (psutil.Error, OSError):
        return False


def with_tmpdir(folder: Path) -> list[psutil.Process]:
    """Return all processes that have inherited a TMPDIR."""
    return [process for process in psutil.process_iter() if has_tmpdir(process, folder)]
