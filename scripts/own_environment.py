"""Environments that others' programs have to themselves, made when they are first needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

WITHIN_S = 600.0
TRIES = 3
"""What a registry failed to hand over may be there a moment later."""


def is_installed(folder: Path, packages: Sequence[str]) -> bool:
    """Tell whether an environment has these packages, and was made to its end."""
    stamp = folder / "installed"
    return stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(packages)


def install(folder: Path, packages: Sequence[str]) -> str | None:
    """Make an environment with packages, unless it is there; returns why that was not possible."""
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install"]
    return _install(folder, packages, lambda: venv.create(folder, with_pip=True), [*pip, "--quiet"])


def install_from_npm(folder: Path, packages: Sequence[str]) -> str | None:
    """Do the same with what npm has; that it is there is for the caller to know."""
    npm = ["npm", "install", "--no-fund", "--no-audit", "--loglevel", "error", "--save-exact"]
    npm += ["--prefix", str(folder)]
    return _install(folder, packages, lambda: folder.mkdir(parents=True), npm)


def run(command: Sequence[str]) -> str | None:
    """Run an installer; return why it failed: the last line of what it said."""
    # What it prints is no part of what our own program prints.
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    said = [line for line in done.stdout.splitlines() if line.strip()]
    return None if done.returncode == 0 else "\n".join(said[-1:]) or f"exit code {done.returncode}"


def _install(
    folder: Path, packages: Sequence[str], begin: Callable[[], None], installer: list[str]
) -> str | None:
    if is_installed(folder, packages):
        return None
    sys.stderr.write(f"installing {', '.join(packages)}\n")
    sys.stderr.flush()
    why: str | None = None
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            begin()
            why = run([*installer, *packages])
        except subprocess.TimeoutExpired as error:
            return str(error)
        except (OSError, subprocess.CalledProcessError) as error:
            why = f"no environment could be made: {error}"
        if why is None:
            (folder / "installed").write_text("\n".join(packages), encoding="utf-8")
            return None
    return why
