"""Install TypeScript, and what makes types of an OpenAPI document: `make test-typescript`.

They come from npm in exact versions, into `.typescript`. What is there in these versions already is
left alone. Without npm nothing is installed, and the tests that need it are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".typescript"
BIN = FOLDER / "node_modules" / ".bin"

GENERATOR = "openapi-typescript@7.13.0"
PACKAGES = (GENERATOR, "openapi-fetch@0.17.0", "typescript@5.9.3")

WITHIN_S = 600.0


def install() -> str | None:
    """Install them, unless they are there; returns why that is not possible."""
    stamp = FOLDER / "installed"
    if stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(PACKAGES):
        return None
    if shutil.which("npm") is None:
        return "npm is missing"
    sys.stderr.write(f"installing {', '.join(PACKAGES)}\n")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    npm = ["npm", "install", "--no-fund", "--no-audit", "--loglevel", "error", "--save-exact"]
    command = [*npm, "--prefix", str(FOLDER), *PACKAGES]
    try:
        # What npm prints is no part of the types, which may go to stdout.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False, timeout=WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return f"npm took longer than {WITHIN_S:g} s"
    if done.returncode:
        return f"npm ended with {done.returncode}"
    stamp.write_text("\n".join(PACKAGES), encoding="utf-8")
    return None


def main() -> None:
    """Install them; npm may be missing."""
    why = install()
    if why is not None:
        if shutil.which("npm") is not None:
            sys.exit(f"{', '.join(PACKAGES)} cannot be installed: {why}")
        sys.stderr.write(f"{why}: nothing is tried with TypeScript\n")


if __name__ == "__main__":
    main()
