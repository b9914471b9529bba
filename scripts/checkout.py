"""This checkout: where it is, its `stdiod` command, and the processes that a script has started."""

from __future__ import annotations

import contextlib
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


def with_tmpdir(folder: Path) -> list[psutil.Process]:
    """Return the processes that have inherited a TMPDIR, whoever started them."""
    found = []
    for process in psutil.process_iter():
        # A zombie has no environment any more, and holds nothing.
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process)
    return found
