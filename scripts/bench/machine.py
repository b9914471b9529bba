"""This machine: what it is, which programs take part, which CPUs they have and what they use."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from protocol.version import VERSION
from scripts.bench import peers
from scripts.bench.findings import Machine, Party
from scripts.bench.rows import ASYNCIO, CIRCUS, MCP, NODE, OURS, S6, SUPERVISORD, C, Row
from scripts.bench.workshop import Workshop

NODE_VERSION = (
    "`${process.version}, V8 ${process.versions.v8}, "
    "${process.features.debug ? 'debug' : 'release'} build`"
)


def machine() -> Machine:
    """Describe this machine as it is now."""
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_version()} ({_python_build(sys.executable)})",
        load=round(os.getloadavg()[0], 2),
    )


def parties(workshop: Workshop) -> Iterator[Party]:
    """Return all who take part or are missing, ours first."""
    ours = _python(sys.executable)
    yield Party(OURS, f"{VERSION}, on {ours}")
    if workshop.compiler is None:
        yield Party(C, None, "neither `gcc` nor `cc` is in PATH")
    else:
        yield Party(C, f"{_said(workshop.compiler, '--version')}, -O2")
    if workshop.node is None:
        yield Party(NODE, None, "no `node` in PATH")
    else:
        yield Party(NODE, _said(workshop.node, "--print", NODE_VERSION))
    yield Party(ASYNCIO, f"of {ours}")
    for library in ("trio", "orjson"):
        yield Party(library, importlib.metadata.version(library))
    packages = {MCP: "mcp", SUPERVISORD: "supervisor", CIRCUS: "circus", S6: peers.S6}
    for name, package in packages.items():
        version = peers.version(package, workshop.installed)
        if version is None:
            yield Party(name, None, peers.why_missing(package, workshop.installed))
        elif package == peers.S6:
            yield Party(name, version)
        else:
            python = peers.program(package, "python", workshop.installed)
            yield Party(name, f"{version}, on {_python(str(python))}")


def _python(program: str) -> str:
    return f"{_said(program, '--version')} ({_python_build(program)})"


def _python_build(program: str) -> str:
    """Say how an interpreter was built: it makes a difference of a third."""
    read = "import sysconfig; print(sysconfig.get_config_var('CONFIG_ARGS') or '-')"
    options = _said(program, "-c", read)
    found = [word for word in ("optimizations", "lto") if f"--enable-{word}" in options]
    found += ["lto"] if "--with-lto" in options else []
    return f"built with {' and '.join(found)}" if found else "built without optimizations"


def _said(*command: str) -> str:
    """Return the first line of what a program says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else "of unknown version"


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    return platform.machine()


@contextmanager
def pinned(row: Row) -> Iterator[None]:
    """Have this process, and all that it starts around the block, on the CPUs of a row.

    Where each side waits for the other in turn, the scheduler decides whether they share a CPU, and
    a wake-up on another one may cost more than what is measured. So in such rows each party, its
    module and its client share one CPU. In all other rows each party has all CPUs there are.
    """
    before = os.sched_getaffinity(0)
    _pin({max(before)} if row.one_cpu else before)
    try:
        yield
    finally:
        _pin(before)


def _pin(cpus: Iterable[int]) -> None:
    # A thread has CPUs of its own; a new one, and a new process, has those of whoever began it.
    for thread in psutil.Process().threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, cpus)


def cpu_ns(*processes: psutil.Process) -> dict[str, int]:
    """Return the CPU time of each thread, by the scheduler's nanoseconds where it counts them.

    The clock ticks that `ps` shows are 10 ms each: half a percent of two seconds.
    """
    used: dict[str, int] = {}
    for process in processes:
        for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                used[str(thread)] = int(thread.read_text().split()[0])
        if not any(key.startswith(f"/proc/{process.pid}/") for key in used):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used[str(process.pid)] = round((times.user + times.system) * 1e9)
    return used
