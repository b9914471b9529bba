"""The peers that are installed apart: from PyPI into .venv-peers, and s6 from Debian.

`python -m scripts.bench.peers` installs them, each of PyPI in an environment of its own, s6 if
that is allowed. None is a must: why one could not be installed is kept, and the page gives it.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from scripts import foreign
from scripts.checkout import ROOT

PEERS: Final = ROOT / ".venv-peers"
PACKAGES: Final = ("mcp", "supervisor", "circus")
S6: Final = "s6"
HOW: Final = "not installed; `make bench-peers` does that"


def program(package: str, name: str, folder: Path = PEERS) -> Path:
    """Return the path that a program of a package has if it is installed."""
    return folder / package / "bin" / name


def version(package: str, folder: Path = PEERS) -> str | None:
    """Return the version of what is installed, or None."""
    if package == S6:
        return _version_of_s6()
    site = [str(path) for path in (folder / package).glob("lib/python*/site-packages")]
    found = importlib.metadata.distributions(name=package, path=site) if site else ()
    return next((one.version for one in found), None)


def _version_of_s6() -> str | None:
    """Ask dpkg, since s6 does not say."""
    if shutil.which("s6-svscan") is None:
        return None
    query = ["dpkg-query", "-W", "-f", "${Version}", S6]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "of unknown version"


def why_missing(package: str, folder: Path = PEERS) -> str:
    """Return what the installation left as its reason, or how to try."""
    note = _note(package, folder)
    return (note.read_text(encoding="utf-8").strip() if note.exists() else "") or HOW


def install(folder: Path = PEERS) -> None:
    """Install what is missing of all peers."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if version(package, folder) is None:
            why = foreign.Environment(folder / package, (package,)).install()
            _note(package, folder).write_text(why or "", encoding="utf-8")
    if version(S6) is None:
        _note(S6, folder).write_text(_install_s6(), encoding="utf-8")


def _install_s6() -> str:
    """Install Debian's package, which runs from /usr/bin only; return why that was not possible."""
    if shutil.which("apt-get") is None:
        return "no `s6-svscan` in PATH, and there is no apt-get here"
    if os.geteuid() != 0:
        return "no `s6-svscan` in PATH, and apt-get needs root"
    apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", S6]
    try:
        return foreign.run(apt) or ""
    except subprocess.TimeoutExpired as error:
        return str(error)


def _note(package: str, folder: Path) -> Path:
    return folder / f"{package}.missing"


if __name__ == "__main__":
    install()
    for missing in (*PACKAGES, S6):
        if (reason := why_missing(missing)) != HOW:
            print(f"peers: {missing} could not be installed: {reason}", file=sys.stderr)
