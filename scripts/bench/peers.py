"""Who takes part: what is installed of it, in which version, and on what machine.

`python -m scripts.bench.peers` installs the peers that come from PyPI into .venv-peers, each in an
environment of its own, and s6 from Debian if that is allowed. None is a must: why one could not be
installed is kept, and the page gives it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil

from protocol.version import VERSION
from scripts import foreign
from scripts.checkout import ROOT

SUPERVISORD: Final = "supervisord"
CIRCUS: Final = "circus"
PACKAGES: Final = {"MCP SDK": "mcp", SUPERVISORD: "supervisor", CIRCUS: "circus", "s6": "s6"}
"""The packages of those that are installed apart."""
DEBIAN: Final = "s6"
PEERS: Final = ROOT / ".venv-peers"
HOW: Final = "not installed; `make bench-peers` does that"
MISSING: Final = "missing: "
NO_COMPILER: Final = "neither `gcc` nor `cc` is in PATH"
NO_NODE: Final = "no `node` in PATH"
NODE_VERSION: Final = (
    "`${process.version}, V8 ${process.versions.v8}, "
    "${process.features.debug ? 'debug' : 'release'} build`"
)


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def program(package: str, name: str, folder: Path = PEERS) -> Path:
    """Return the path that a program of a package has if it is installed."""
    return folder / package / "bin" / name


def version(package: str, folder: Path = PEERS) -> str | None:
    """Return the version of what is installed, or None."""
    if package == DEBIAN:  # s6 does not say
        asked = ("dpkg-query", "-W", "-f", "${Version}", DEBIAN)
        return _said(*asked) if shutil.which("s6-svscan") else None
    site = [str(path) for path in (folder / package).glob("lib/python*/site-packages")]
    found = importlib.metadata.distributions(name=package, path=site) if site else ()
    return next((one.version for one in found), None)


def why_missing(package: str, folder: Path = PEERS) -> str:
    """Return what the installation left as its reason, or how to try."""
    note = folder / f"{package}.missing"
    return (note.read_text(encoding="utf-8").strip() if note.exists() else "") or HOW


def install(folder: Path = PEERS) -> None:
    """Install what is missing of all peers; keeps and prints why one could not be."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES.values():
        if version(package, folder) is None:
            own = foreign.Environment(folder / package, (package,))
            why = _install_from_debian() if package == DEBIAN else own.install()
            (folder / f"{package}.missing").write_text(why or "", encoding="utf-8")
            if why:
                print(f"peers: {package} could not be installed: {why}", file=sys.stderr)


def _install_from_debian() -> str | None:
    """Install s6, which runs from /usr/bin only; returns why that was not possible."""
    if shutil.which("apt-get") is None:
        return "no `s6-svscan` in PATH, and there is no apt-get here"
    if os.geteuid() != 0:
        return "no `s6-svscan` in PATH, and apt-get needs root"
    try:
        return foreign.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", DEBIAN])
    except subprocess.TimeoutExpired as error:
        return str(error)


def parties(folder: Path = PEERS) -> dict[str, str]:
    """Return the version of all who take part, ours first, or why one is missing."""
    ours, cc, node = _python(sys.executable), compiler(), shutil.which("node")
    found = {
        "stdiod": f"{VERSION}, on {ours}",
        "C": f"{_said(cc, '--version')}, -O2" if cc else MISSING + NO_COMPILER,
        "Node": _said(node, "--print", NODE_VERSION) if node else MISSING + NO_NODE,
        "asyncio": f"of {ours}",
        **{library: importlib.metadata.version(library) for library in ("trio", "orjson")},
    }
    for name, package in PACKAGES.items():
        python, installed = program(package, "python", folder), version(package, folder)
        on = f", on {_python(str(python))}" if python.exists() else ""
        found[name] = installed + on if installed else MISSING + why_missing(package, folder)
    return found


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return (
        f"{(models or [platform.machine()])[0]}, {os.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / 1e9:.0f} GB, {platform.system()} {platform.release()}, "
        f"{_python(sys.executable)}"
    )


def _python(interpreter: str) -> str:
    """Return the version of an interpreter, and how it was built: that makes a third."""
    read = "import sysconfig; print(sysconfig.get_config_var('CONFIG_ARGS') or '-')"
    options = _said(interpreter, "-c", read)
    found = [word for word in ("optimizations", "lto") if f"-{word}" in options]
    build = f"with {' and '.join(found)}" if found else "without optimizations"
    return f"{_said(interpreter, '--version')} (built {build})"


def _said(*command: str) -> str:
    """Return the first line of what a program says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else "of unknown version"


if __name__ == "__main__":
    install()
