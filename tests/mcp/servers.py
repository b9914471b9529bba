"""The six servers that `make test-mcp` installs: how each is started, here and in a descriptor."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from scripts.foreign import NODE, PYTHON, Environment
from tests.system.descriptors import descriptor

needs_servers = pytest.mark.skipif(
    "STDIOD_TEST_MCP" not in os.environ, reason="foreign programs run in `make test-mcp` only"
)

NEWER = ("time", "git", "fetch")
"""Those that speak both eras; the others speak the older one only."""
OLDER = ("everything", "filesystem", "memory")
NAMES = (*NEWER, *OLDER)

PATIENT = {"start_s": 60, "describe_s": 60, "invoke_s": 60, "health_s": 10}
BOUND_S = 120.0
"""For all that a test waits for; a server that is slow to start must not fail it."""


def skip_unless_installed(where: Environment) -> None:
    if where.is_installed():
        return
    words = f"{where.packages[-1]} is not installed: it needs {where.folder.name}'s own tools"
    if os.environ.get("CI") == "true" and shutil.which("npm"):
        pytest.fail(f"{words}, and npm is there")
    pytest.skip(words)


def command(name: str, folder: Path) -> list[str]:
    """Return the command of a server that works on what is in a folder; skips without it."""
    arguments = {
        "time": ["--local-timezone", "UTC"],
        "git": ["--repository", str(folder / "repo")],
        "fetch": ["--allow-private-ips"],
        "filesystem": [str(folder)],
    }
    skip_unless_installed(PYTHON if name in NEWER else NODE)
    if name in NEWER:
        program = [str(PYTHON.bin / f"mcp-server-{name}")]
    else:
        package = NODE.folder / f"node_modules/@modelcontextprotocol/server-{name}"
        program = ["node", str(package / "dist" / "index.js")]
    return [*program, *arguments.get(name, [])]


def environment(folder: Path) -> dict[str, str]:
    """Return what the servers' environment has to say."""
    dates = {f"GIT_{who}_DATE": "2026-01-02T03:04:05Z" for who in ("AUTHOR", "COMMITTER")}
    node = {"NODE_OPTIONS": f"--require={Path(__file__).with_name('no_clock.cjs')}"}
    return {"MEMORY_FILE_PATH": str(folder / "memory.json"), "TZ": "UTC", **dates, **node}


def eras(name: str) -> tuple[str, ...]:
    """Return the eras that a server speaks."""
    return ("legacy", "modern") if name in NEWER else ("legacy",)


def document(
    name: str, folder: Path, *capabilities: str, era: str = "auto", **supervision: Any
) -> dict[str, Any]:
    """Return the descriptor of a server."""
    transport = {"protocol": "mcp", "mcp": {"era": era}, "env": environment(folder)}
    made = descriptor(name, command(name, folder), **transport)
    made["supervision"] = {"timeouts": PATIENT, **supervision}
    return {**made, "capabilities": list(capabilities)}
