"""Install the MCP servers and clients of others that the tests use, in exact versions.

Run by `make test-mcp`, into `.mcp-servers`. What is there in these versions already is left alone.
Without npm what comes from npm is left out, and its tests are skipped; whatever else is in the way
is a failure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".mcp-servers"
PYTHON = FOLDER / "python"
NODE = FOLDER / "node"
INSPECTOR = FOLDER / "inspector"

PACKAGES = {
    PYTHON: (
        "mcp==2.3.0",
        "mcp-server-time==2026.10.19",
        "mcp-server-git==2026.10.19",
        "mcp-server-fetch==2026.10.24",
    ),
    NODE: (
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "@modelcontextprotocol/server-memory@2026.8.31",
    ),
    INSPECTOR: ("node@22", "@modelcontextprotocol/inspector@2.12.0"),
}

WITHIN_S = 600.0


def say(words: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def install(folder: Path) -> str | None:
    """Install what belongs in a folder, unless it is there; returns why that was not possible."""
    packages = PACKAGES[folder]
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(packages):
        return None
    say(f"installing {', '.join(packages)}")
    shutil.rmtree(folder, ignore_errors=True)
    if folder == PYTHON:
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        command = [*pip, "install", "--quiet", *packages]
    else:
        folder.mkdir(parents=True)
        npm = ["npm", "install", "--no-fund", "--no-audit", "--loglevel", "error"]
        command = [*npm, "--save-exact", "--prefix", str(folder), *packages]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        return f"it took longer than {WITHIN_S:g} s"
    if done.returncode:
        return f"{command[0]} ended with {done.returncode}"
    stamp.write_text("\n".join(packages), encoding="utf-8")
    return None


def main() -> None:
    """Install all of them; only npm may be missing."""
    for folder, packages in PACKAGES.items():
        if folder != PYTHON and shutil.which("npm") is None:
            say(f"npm is missing: what it installs into {folder.name} is left out")
            continue
        why = install(folder)
        if why is not None:
            sys.exit(f"{', '.join(packages)} cannot be installed: {why}")


if __name__ == "__main__":
    main()
