"""Install axe-core, which looks for what keeps people from using a page, in an exact version.

Run by `make test-page`, into `.axe`. What is there already is left alone. Without npm it is left
out with a word, and what needs it is skipped.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from scripts import own_environment

FOLDER: Final = Path(__file__).resolve().parents[1] / ".axe"
PACKAGE: Final = "axe-core@4.14.1"
SOURCE: Final = FOLDER / "node_modules" / "axe-core" / "axe.min.js"


def source() -> str | None:
    """Return the script, if it is installed in this version."""
    whole = own_environment.is_installed(FOLDER, (PACKAGE,))
    return SOURCE.read_text(encoding="utf-8") if whole else None


def main() -> None:
    """Install it, unless it is there; only npm may be missing."""
    if source() is None and shutil.which("npm") is None:
        sys.stderr.write(f"npm is missing: {PACKAGE} is left out\n")
        return
    why = own_environment.install_from_npm(FOLDER, (PACKAGE,))
    if why is not None:
        sys.exit(f"{PACKAGE} cannot be installed: {why}")


if __name__ == "__main__":
    main()
