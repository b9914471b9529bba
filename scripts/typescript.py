"""Install TypeScript, and what makes types of an OpenAPI document: `make test-typescript`.

They come from npm in exact versions, into `.typescript`. What is there in these versions already is
left alone. Without npm nothing is installed, and the tests that need it are skipped.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts import own_environment

FOLDER = Path(__file__).resolve().parents[1] / ".typescript"
BIN = FOLDER / "node_modules" / ".bin"

GENERATOR = "openapi-typescript@7.13.0"
PACKAGES = (GENERATOR, "openapi-fetch@0.17.0", "typescript@5.9.3")


def install() -> str | None:
    """Install them, unless they are there; returns why that is not possible."""
    if not own_environment.is_installed(FOLDER, PACKAGES) and shutil.which("npm") is None:
        return "npm is missing"
    return own_environment.install_from_npm(FOLDER, PACKAGES)


def main() -> None:
    """Install them; npm may be missing."""
    why = install()
    if why is not None:
        if shutil.which("npm") is not None:
            sys.exit(f"{', '.join(PACKAGES)} cannot be installed: {why}")
        sys.stderr.write(f"{why}: nothing is tried with TypeScript\n")


if __name__ == "__main__":
    main()
