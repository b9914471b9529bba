"""Install AMCP's own clients in exact versions, each in an environment of its own.

Run by `make test-amcp`. What is there already is left alone. One that cannot be installed is left
out with a word, and its tests are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts import own_environment

FOLDER = Path(__file__).resolve().parents[1] / ".amcp-clients"
VERSIONS = ("0.11.1", "0.13.0")
"""The newest before its clients could say a key, and the newest."""


def python_of(version: str) -> Path:
    """Return the interpreter that has the client of a version, if that is installed."""
    return FOLDER / version / "bin/python"


def is_installed(version: str) -> bool:
    """Tell whether a version is there whole."""
    return own_environment.is_installed(FOLDER / version, _packages(version))


def main() -> None:
    """Install all versions, or say why one is left out."""
    for version in VERSIONS:
        why = own_environment.install(FOLDER / version, _packages(version))
        if why is not None:
            sys.stderr.write(f"amcp-agent {version} cannot be installed, and is left out: {why}\n")


def _packages(version: str) -> list[str]:
    # It imports websockets, and does not say that it needs them.
    return [f"amcp-agent=={version}", "websockets>=13"]


if __name__ == "__main__":
    main()
