"""Who takes part: versions of all, and of the missing ones the reason."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil

from protocol.version import VERSION
from scripts.bench.findings import Machine, Party
from scripts.bench.rows import ASYNCIO, CIRCUS, MCP, NODE, OURS, S6, SUPERVISORD, C
from scripts.bench.workshop import Workshop
from scripts.peers import environments, supervisors


def machine() -> Machine:
    """Describe this machine as it is now."""
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_version()} ({python_build()})",
        load=round(os.getloadavg()[0], 2),
    )


def python_build() -> str:
    """Say how this interpreter was built: it makes a difference of a third."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [word for word in ("optimizations", "lto") if f"--enable-{word}" in options]
    found += ["lto"] if "--with-lto" in options else []
    return f"built with {' and '.join(found)}" if found else "built without optimizations"


def parties(workshop: Workshop) -> tuple[Party, ...]:
    """Return all, ours first."""
    return tuple(_parties(workshop))


def _parties(workshop: Workshop) -> Iterator[Party]:
    yield Party(OURS, VERSION)
    yield _program(C, workshop.compiler, "--version", "neither `gcc` nor `cc` is in PATH")
    yield _program(NODE, workshop.node, "--version", "no `node` in PATH")
    yield Party(ASYNCIO, f"of Python {platform.python_version()}")
    for library in ("trio", "orjson"):
        yield Party(library, importlib.metadata.version(library))
    for name, package in ((MCP, "mcp"), (SUPERVISORD, "supervisor"), (CIRCUS, "circus")):
        version = environments.version(package, workshop.peers)
        yield _party(name, package, version, workshop.peers)
    yield _party(S6, "s6", supervisors.S6.version(), workshop.peers)


def _party(name: str, package: str, version: str | None, folder: Path) -> Party:
    why = environments.why_missing(package, folder) if version is None else ""
    return Party(name, version, why)


def _program(name: str, path: str | None, option: str, otherwise: str) -> Party:
    if path is None:
        return Party(name, None, otherwise)
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    said = (done.stdout or done.stderr).splitlines()
    return Party(name, said[0] if said else "of unknown version")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()
