"""Who takes part: versions of all, and of the missing ones the reason."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
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


def python_build(program: str = sys.executable) -> str:
    """Say how an interpreter was built: it makes a difference of a third."""
    read = "import sysconfig; print(sysconfig.get_config_var('CONFIG_ARGS') or '-')"
    options = _said(program, "-c", read)
    found = [word for word in ("optimizations", "lto") if f"--enable-{word}" in options]
    found += ["lto"] if "--with-lto" in options else []
    return f"built with {' and '.join(found)}" if found else "built without optimizations"


def _python(program: str) -> str:
    return f"{_said(program, '--version')} ({python_build(program)})"


def _said(*command: str) -> str:
    """Return the first line of what a program says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else "of unknown version"


def parties(workshop: Workshop) -> tuple[Party, ...]:
    """Return all, ours first."""
    return tuple(_parties(workshop))


def _parties(workshop: Workshop) -> Iterator[Party]:
    ours = _python(sys.executable)
    yield Party(OURS, f"{VERSION}, on {ours}")
    if workshop.compiler is None:
        yield Party(C, None, "neither `gcc` nor `cc` is in PATH")
    else:
        yield Party(C, f"{_said(workshop.compiler, '--version')}, -O2")
    if workshop.node is None:
        yield Party(NODE, None, "no `node` in PATH")
    else:
        yield Party(NODE, _said(workshop.node, "--print", _OF_NODE))
    yield Party(ASYNCIO, f"of {ours}")
    for library in ("trio", "orjson"):
        yield Party(library, importlib.metadata.version(library))
    for name, package in ((MCP, "mcp"), (SUPERVISORD, "supervisor"), (CIRCUS, "circus")):
        version = environments.version(package, workshop.peers)
        if version is None:
            yield Party(name, None, environments.why_missing(package, workshop.peers))
        else:
            python = environments.program(package, "python", workshop.peers)
            yield Party(name, f"{version}, on {_python(str(python))}")
    version = supervisors.S6.version()
    why = environments.why_missing("s6", workshop.peers) if version is None else ""
    yield Party(S6, version, why)


_OF_NODE = (
    "`${process.version}, V8 ${process.versions.v8}, "
    "${process.features.debug ? 'debug' : 'release'} build`"
)


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
