"""Install the peers: from PyPI into .venv-peers/, from Debian if that is allowed.

None is a must: for one that cannot be installed the reason is kept, and the report gives it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.peers.environments import FOLDER, PACKAGES, note_failure, program, version

WITHIN_S = 240.0
S6 = "s6"


def install_all(say: Callable[[str], None], folder: Path = FOLDER) -> None:
    """Install what is missing of all peers."""
    for package in PACKAGES:
        from_pypi(package, say, folder)
    s6_from_debian(say, folder)


def from_pypi(package: str, say: Callable[[str], None], folder: Path = FOLDER) -> None:
    """Install a package into an environment of its own, unless it is there."""
    if version(package, folder) is not None:
        return
    say(f"installing {package} from PyPI into {folder.name}/{package}")
    where = folder / package
    try:
        venv.create(where, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        _failed(package, f"no environment could be made: {error}", say, folder)
        return
    python = str(program(package, "python", folder))
    options = ["--disable-pip-version-check", "--quiet", "install"]
    why = _run([python, "-m", "pip", *options, package])
    _failed(package, why, say, folder)


def s6_from_debian(say: Callable[[str], None], folder: Path = FOLDER) -> None:
    """Install Debian's package, for which one has to be root: s6 runs from /usr/bin only."""
    if shutil.which("s6-svscan") is not None:
        return
    if shutil.which("apt-get") is None:
        _failed(S6, "no `s6-svscan` in PATH, and there is no apt-get here", say, folder)
        return
    if os.geteuid() != 0:
        _failed(S6, "no `s6-svscan` in PATH, and apt-get needs root", say, folder)
        return
    say("installing s6 from Debian, for the whole machine")
    why = _run(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", S6])
    _failed(S6, why, say, folder)


def _run(command: Sequence[str]) -> str:
    """Run an installer; returns the last line of what it says if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {WITHIN_S:.0f} s"
    if done.returncode == 0:
        return ""
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return said[-1] if said else f"exit code {done.returncode}"


def _failed(package: str, why: str, say: Callable[[str], None], folder: Path) -> None:
    if why:
        say(f"{package} could not be installed: {why}")
    note_failure(package, why, folder)


def main() -> None:
    """Install all."""
    install_all(lambda what: print(f"peers: {what}", file=sys.stderr, flush=True))


if __name__ == "__main__":
    main()
