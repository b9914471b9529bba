"""Install axe-core, which looks for what keeps people from using a page, in an exact version.

Run by `make test-page`, into `.axe`. What is there already is left alone. Without npm it is left
out with a word, and what needs it is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / ".axe"
PACKAGE: Final = "axe-core@4.14.1"
SOURCE: Final = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
WITHIN_S: Final = 600.0


def source() -> str | None:
    """Return the script, if it is installed in this version."""
    stamp = FOLDER / "installed"
    whole = stamp.is_file() and stamp.read_text(encoding="utf-8") == PACKAGE
    return SOURCE.read_text(encoding="utf-8") if whole else None


def main() -> None:
    """Install it, unless it is there; only npm may be missing."""
    if source() is not None:
        return
    if shutil.which("npm") is None:
        sys.stderr.write(f"npm is missing: {PACKAGE} is left out\n")
        return
    sys.stderr.write(f"installing {PACKAGE}\n")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    npm = ["npm", "install", "--no-fund", "--no-audit", "--loglevel", "error", "--save-exact"]
    subprocess.run(
        [*npm, "--prefix", str(FOLDER), PACKAGE],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=WITHIN_S,
    )
    (FOLDER / "installed").write_text(PACKAGE, encoding="utf-8")


if __name__ == "__main__":
    main()
