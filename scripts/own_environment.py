"""Environments that others' programs have to themselves, made when they are first needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

WITHIN_S = 600.0


def is_installed(folder: Path, packages: Sequence[str]) -> bool:
    """Tell whether an environment has these packages, and was made to its end."""
    stamp = folder / "installed"
    return stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(packages)


def install(folder: Path, packages: Sequence[str]) -> str | None:
    """Make an environment with packages, unless it is there; returns why that was not possible."""
    if is_installed(folder, packages):
        return None
    sys.stderr.write(f"installing {', '.join(packages)}\n")
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install"]
    try:
        venv.create(folder, with_pip=True)
        subprocess.run(
            [*pip, "--quiet", *packages], stdin=subprocess.DEVNULL, check=True, timeout=WITHIN_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    (folder / "installed").write_text("\n".join(packages), encoding="utf-8")
    return None
