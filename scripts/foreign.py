"""Programs of others that tests and scripts use, in exact versions, each in a folder of its own.

`python -m scripts.foreign GROUP` installs those of a group, as `make test-GROUP` does; what is
there in these versions is left alone. Without npm what comes from npm is left out with a word, and
what needs it is skipped. Whatever else is in the way is a failure, except for AMCP's clients.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from scripts.checkout import ROOT

WITHIN_S: Final = 600.0
TRIES: Final = 3
"""What a registry failed to hand over may be there a moment later."""
NO_NPM: Final = "npm is missing"


class Environment(NamedTuple):
    """A folder of its own for packages of PyPI, or of npm."""

    folder: Path
    packages: tuple[str, ...]
    from_npm: bool = False

    @property
    def bin(self) -> Path:
        """Return the folder of its programs."""
        return self.folder / ("node_modules/.bin" if self.from_npm else "bin")

    def is_installed(self) -> bool:
        """Tell whether it has these packages, and was made to its end."""
        stamp = self.folder / "installed"
        return stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(self.packages)

    def install(self) -> str | None:
        """Make it, unless it is there; return why that was not possible."""
        if self.is_installed():
            return None
        if self.from_npm and shutil.which("npm") is None:
            return NO_NPM
        print(f"installing {', '.join(self.packages)}", file=sys.stderr, flush=True)
        why: str | None = None
        for _ in range(TRIES):
            shutil.rmtree(self.folder, ignore_errors=True)
            try:
                why = self._try_to_install()
            except subprocess.TimeoutExpired as error:
                return str(error)
            except (OSError, subprocess.CalledProcessError) as error:
                why = f"no environment could be made: {error}"
            if why is None:
                (self.folder / "installed").write_text("\n".join(self.packages), encoding="utf-8")
                break
        return why

    def _try_to_install(self) -> str | None:
        if self.from_npm:
            self.folder.mkdir(parents=True)
            npm = ["npm", "install", "--no-fund", "--no-audit", "--loglevel", "error"]
            return run([*npm, "--save-exact", "--prefix", str(self.folder), *self.packages])
        venv.create(self.folder, with_pip=True)
        pip = [str(self.bin / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
        return run([*pip, "--quiet", *self.packages])


def run(command: Sequence[str]) -> str | None:
    """Run an installer; return why it failed: the last line of what it said."""
    # What it prints is no part of what our own program prints.
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    said = done.stdout.strip().splitlines() or [f"exit code {done.returncode}"]
    return said[-1] if done.returncode else None


MCP_SERVERS: Final = ROOT / ".mcp-servers"
PYTHON: Final = Environment(
    MCP_SERVERS / "python",
    (
        "mcp==2.3.0",
        "mcp-server-time==2026.10.19",
        "mcp-server-git==2026.10.19",
        "mcp-server-fetch==2026.10.24",
    ),
)
PYTHON_OLDER: Final = Environment(MCP_SERVERS / "python-older", ("mcp==1.30.0",))
"""PyPI's `mcp` in the line before the one that `PYTHON` has."""
NODE: Final = Environment(
    MCP_SERVERS / "node",
    (
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "@modelcontextprotocol/server-memory@2026.8.31",
    ),
    from_npm=True,
)
INSPECTOR: Final = Environment(
    MCP_SERVERS / "inspector", ("node@22", "@modelcontextprotocol/inspector@2.12.0"), from_npm=True
)
NODE_CLIENTS: Final = Environment(
    MCP_SERVERS / "node-clients",
    ("node@22", "@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0"),
    from_npm=True,
)
"""Both lines of the TypeScript SDK, and the Node.js that runs them."""

MCP_CONFORMANCE: Final = Environment(
    ROOT / ".mcp-conformance",
    ("node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12"),
    from_npm=True,
)
AMCP: Final = {
    # It imports websockets, and does not say that it needs them.
    version: Environment(
        ROOT / ".amcp-clients" / version, (f"amcp-agent=={version}", "websockets>=13")
    )
    for version in ("0.11.1", "0.13.0")
}
"""The newest before its clients could say a key, and the newest."""
TYPESCRIPT: Final = Environment(
    ROOT / ".typescript",
    ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3"),
    from_npm=True,
)
AXE: Final = Environment(ROOT / ".axe", ("axe-core@4.14.1",), from_npm=True)
"""axe-core looks for what keeps people from using a page."""
SCHEMATHESIS: Final = Environment(ROOT / ".schemathesis", ("schemathesis==4.32.5",))
PILLOW: Final = Environment(ROOT / ".pillow", ("pillow==13.0.0",))

GROUPS: Final = {
    "mcp": (PYTHON, NODE, INSPECTOR, PYTHON_OLDER, NODE_CLIENTS),
    "amcp": tuple(AMCP.values()),
    "typescript": (TYPESCRIPT,),
    "page": (AXE,),
}


def main(group: str) -> None:
    """Install a group."""
    for environment in GROUPS[group]:
        why = environment.install()
        if why is not None:
            words = f"{', '.join(environment.packages)} cannot be installed: {why}"
            if why != NO_NPM and group != "amcp":
                sys.exit(words)
            sys.stderr.write(f"{words}; what needs it is left out\n")


if __name__ == "__main__":
    main(sys.argv[1])
