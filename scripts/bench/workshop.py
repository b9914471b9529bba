"""What the benchmarks need around them: compiled programs, descriptors, and daemons of ours."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from scripts.bench import peers
from scripts.bench.rows import Cost
from scripts.bench.sizes import Sizes
from scripts.checkout import READY_WITHIN_S, ROOT, STDIOD, Stdiod
from supervisor.daemon import collector
from supervisor.daemon.daemon_signals import Continued
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.lifecycle import SERVES
from supervisor.runtime.containment.procfs import rss_bytes
from supervisor.runtime.files.sources import scan
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import Stalls, Threads
from supervisor.runtime.turns import SERVING

PROGRAMS: Final = Path(__file__).parent / "programs"
PRIMES: Final = ROOT / "modules" / "primes" / "primes.c"

Document = dict[str, Any]
T = TypeVar("T")


class NoCompilerError(LookupError):
    """A program in C has to be measured, and there is no compiler."""


class Workshop:
    """A scratch folder, the programs that are measured, and how much of each is done."""

    def __init__(self, folder: Path, sizes: Sizes, installed: Path = peers.PEERS) -> None:
        """`installed` has the environments of the peers that come from PyPI."""
        self.folder, self.sizes, self.installed = folder, sizes, installed
        self.node = shutil.which("node")
        self.compiler = shutil.which("gcc") or shutil.which("cc")
        self.calls = self.long_ways = 0
        """Of the daemons in this process, and how many of the calls took the long way."""
        self._daemons = 0

    def program(self, words: str) -> list[str]:
        """Return what runs a program of programs/; empty where its language is not installed.

        A program in C is named without its suffix; raises `NoCompilerError`.
        """
        name, *mode = words.split()
        match Path(name).suffix:
            case ".py" if name.startswith("mcp_"):
                python = peers.program("mcp", "python", self.installed)
                return [str(python), str(PROGRAMS / name)] if python.exists() else []
            case ".py":
                return [sys.executable, str(PROGRAMS / name), *mode]
            case ".js":
                return [self.node, str(PROGRAMS / name), *mode] if self.node else []
            case _:
                return [self.compiled(name), *mode]

    def compiled(self, name: str) -> str:
        """Return the path of a program in C; raises `NoCompilerError`."""
        binary = self.folder / name
        if not binary.exists():
            if self.compiler is None:
                raise NoCompilerError("no C compiler: neither `gcc` nor `cc` is in PATH")
            source = PRIMES if name == "primes" else PROGRAMS / f"{name}.c"
            subprocess.run([self.compiler, "-O2", "-o", str(binary), str(source)], check=True)
        return str(binary)

    def new_folder(self) -> Path:
        """Return an empty folder, one per daemon."""
        self._daemons += 1
        folder = self.folder / f"daemon-{self._daemons}"
        folder.mkdir()
        return folder

    def descriptors(self, documents: Sequence[Mapping[str, Any]]) -> Path:
        """Write a folder of descriptors and return it."""
        folder = self.new_folder()
        for document in documents:
            (folder / f"{document['name']}.json").write_text(json.dumps(document))
        return folder

    def native(
        self, name: str = "native", *, births: Path | None = None, **supervision: Any
    ) -> Document:
        """Describe the module of programs/native.c; `births` is a socket that it connects to."""
        command = [self.compiled("native"), name, *([] if births is None else [str(births)])]
        return {**descriptor(name, command), "supervision": supervision}

    def agent(self) -> Document:
        """Describe programs/native.c as an agent."""
        return {**descriptor("agent", [self.compiled("native"), "agent"]), "kind": "agent"}

    def primes(self) -> Document:
        """Describe the sample module `primes`, compiled beforehand, with the schema of its echo."""
        document = json.loads(PRIMES.with_name("module.json").read_text())
        document["transport"]["command"] = [self.compiled("primes")]
        document["supervision"] = {"concurrency": 64}
        return dict(document)

    def mcp_server(self) -> Document:
        """Describe the MCP server of programs/mcp_echo.c."""
        document = descriptor("server", [self.compiled("mcp_echo")], protocol="mcp")
        return {**document, "supervision": {"concurrency": 64}}

    def tool(self) -> Document:
        """Describe the per-invocation tool of programs/done.c."""
        return descriptor("done", [self.compiled("done")], protocol="narratoria")

    def python_tool(self, name: str, *words: str, **supervision: Any) -> Document:
        """Describe the per-invocation tool of programs/tool.py."""
        command = [*self.program("tool.py"), *words]
        return {**descriptor(name, command, protocol="narratoria"), "supervision": supervision}


def descriptor(name: str, command: Sequence[str], protocol: str = "module") -> Document:
    """Return a descriptor with everything at its default."""
    transport = {"type": "stdio", "command": list(command), "protocol": protocol}
    return {
        "name": name,
        "kind": "tool",
        "version": "1",
        "description": "measured",
        "capabilities": [],
        "inputs": {},
        "outputs": {},
        "transport": transport,
    }


def with_daemon(
    workshop: Workshop,
    work: Callable[[Kernel], Awaitable[T]],
    *documents: Document,
    containment: str | None = None,
) -> T:
    """Run a daemon in this process as `serve` does, and return what some work with it returns.

    All its modules are ready. It has the process for itself: a child of ours would be reaped.
    """
    folder = workshop.descriptors(documents)

    async def main() -> T:
        collector.put_off()
        async with Kernel(
            scan([folder]),
            data_dir=folder / "data",
            memory=JournalOptions(),
            containment=containment,
            whole_process=True,
        ) as kernel:
            modules = kernel.fleet.modules.values()
            with trio.fail_after(READY_WITHIN_S):
                await kernel.fleet.wait_until(
                    lambda: all(module.state in SERVES for module in modules) or None
                )
            async with trio.open_nursery() as nursery:
                collector.begin()
                nursery.start_soon(
                    collector.collect_all, kernel.is_calm, lambda: rss_bytes(os.getpid())
                )
                result = await work(kernel)
                nursery.cancel_scope.cancel()
        return result

    with contextlib.closing(Threads.begun()) as threads:
        gc.callbacks.append(SERVING.collecting)
        try:
            stalls = Stalls(threads=threads, continued=Continued())
            return run_timed(main, stalls=stalls)
        finally:
            gc.callbacks.remove(SERVING.collecting)


_INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)


class Measured(Stdiod):
    """The `stdiod` command with a daemon of its own, and what it takes."""

    def __init__(self, workshop: Workshop, *documents: Document) -> None:
        super().__init__(workshop.descriptors(documents))

    def cost(self, *arguments: str) -> Cost:
        """Run a verb and return what it took, with what it waited for, but no daemon it left."""
        used, begin = _children_cpu_s(), time.perf_counter()
        self.run(*arguments)
        return Cost(time.perf_counter() - begin, _children_cpu_s() - used)

    def up(self, *options: str) -> float:
        """Start the daemon and return how long it took until all was ready (s)."""
        return self.cost("up", str(self.folder), *options).wall_s

    def pid(self) -> int:
        """Return the pid of the daemon."""
        return int(self.status()["daemon"]["pid"])

    def entry_s(self) -> float:
        """Be an MCP client of it; returns how long its first answer took.

        If there is no daemon yet, this starts one, as `up` does.
        """
        begin = time.perf_counter()
        with subprocess.Popen(
            [*STDIOD, "mcp", str(self.folder)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as entry:
            assert entry.stdin is not None
            assert entry.stdout is not None
            entry.stdin.write(_INITIALIZE)
            entry.stdin.flush()
            answer = entry.stdout.readline()
            took_s = time.perf_counter() - begin
            entry.communicate()
        assert b'"serverInfo"' in answer, answer
        return took_s


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
