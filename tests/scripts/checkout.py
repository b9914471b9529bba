"""Run the programs of scripts/ as `make` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent.parent
MODULES = CHECKOUT / "modules"
WITHIN_S = 900.0
"""Far more than any of them needs, even on a busy machine."""


def environment() -> dict[str, str]:
    """Return one in which the checkout is importable, whether or not it is installed."""
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of scripts/ to its end."""
    return subprocess.run(
        [sys.executable, "-m", f"scripts.{program}", *arguments],
        cwd=CHECKOUT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def documents(printed: str) -> list[dict[str, Any]]:
    """Return the JSON objects of some output, one per line."""
    return [json.loads(line) for line in printed.splitlines()]
