"""Install AMCP's own clients in exact versions, each in an environment of its own.

Run by `make test-amcp`. What is there already is left alone. One that cannot be installed is left
out with a word, and its tests are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".amcp-clients"
VERSIONS = ("0.11.1", "0.13.0")
"""The newest before its clients could say a key, and the newest."""

WITHIN_S = 600.0


def python_of(version: str) -> Path:
    """Return the interpreter that has the client of a version, if that is installed."""
    return FOLDER / version / "bin/python"


def is_installed(version: str) -> bool:
    """Tell whether a version is there whole."""
    return (FOLDER / version / "installed").is_file()


def install(version: str) -> str | None:
    """Install a version, unless it is there; returns why that was not possible."""
    folder = FOLDER / version
    if is_installed(version):
        return None
    sys.stderr.write(f"installing amcp-agent {version}\n")
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(python_of(version)), "-m", "pip", "--disable-pip-version-check", "install"]
    # It imports websockets, and does not say that it needs them.
    packages = [f"amcp-agent=={version}", "websockets>=13"]
    try:
        venv.create(folder, with_pip=True)
        subprocess.run(
            [*pip, "--quiet", *packages], stdin=subprocess.DEVNULL, check=True, timeout=WITHIN_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    (folder / "installed").touch()
    return None


def main() -> None:
    """Install all versions, or say why one is left out."""
    for version in VERSIONS:
        why = install(version)
        if why is not None:
            sys.stderr.write(f"amcp-agent {version} cannot be installed, and is left out: {why}\n")


if __name__ == "__main__":
    main()
