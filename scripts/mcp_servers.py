"""Install the MCP servers and clients of others that the tests use, in exact versions.

Run by `make test-mcp`, into `.mcp-servers`. What is there in these versions already is left alone.
Without npm what comes from npm is left out, and its tests are skipped; whatever else is in the way
is a failure.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts import own_environment

FOLDER = Path(__file__).resolve().parents[1] / ".mcp-servers"
PYTHON = FOLDER / "python"
NODE = FOLDER / "node"
INSPECTOR = FOLDER / "inspector"
PYTHON_OLDER = FOLDER / "python-older"
"""PyPI's `mcp` in the line before the one that `PYTHON` has."""
NODE_CLIENTS = FOLDER / "node-clients"
"""Both lines of the TypeScript SDK, and the Node.js that runs them."""

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
    PYTHON_OLDER: ("mcp==1.30.0",),
    NODE_CLIENTS: (
        "node@22",
        "@modelcontextprotocol/sdk@1.32.2",
        "@modelcontextprotocol/client@2.4.0",
    ),
}


def main() -> None:
    """Install all of them; only npm may be missing."""
    for folder, packages in PACKAGES.items():
        install = own_environment.install_from_npm
        if folder in (PYTHON, PYTHON_OLDER):
            install = own_environment.install
        elif shutil.which("npm") is None:
            sys.stderr.write(f"npm is missing: what goes into {folder.name} is left out\n")
            continue
        why = install(folder, packages)
        if why is not None:
            sys.exit(f"{', '.join(packages)} cannot be installed: {why}")


if __name__ == "__main__":
    main()
