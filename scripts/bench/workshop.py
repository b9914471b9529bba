"""What the benchmarks need around them: compiled peers, module folders, daemons, timed programs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from scripts.bench.rows import Cost
from scripts.checkout import READY_WITHIN_S, ROOT, STDIOD, Stdiod
from supervisor.daemon import collector
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.lifecycle import SERVES
from supervisor.runtime.containment.procfs import rss_bytes
from supervisor.runtime.files.sources import scan

PROGRAMS: Final = Path(__file__).parent / "programs"
PRIMES: Final = ROOT / "modules" / "primes" / "primes.c"
PEERS: Final = ROOT / ".venv-peers"


class NoCompilerError(LookupError):
    """What has to be measured is a program in C, and there is no compiler."""


class Workshop:
    """A scratch folder with the programs that are measured, or measured against."""

    def __init__(self, folder: Path, peers: Path = PEERS) -> None:
        """Work in `folder`; nothing is compiled before it is needed.

        In `peers` are the environments of those that come from PyPI.
        """
        self.folder = folder
        self.peers = peers
        self._scenes = 0
        self._compiled = False
        self.node = shutil.which("node")
        self.compiler = shutil.which("gcc") or shutil.which("cc")

    def program(self, name: str) -> str:
        """Return the path of a compiled program; raises `NoCompilerError`."""
        if not self._compiled:
            self._compile()
        return str(self.folder / name)

    def _compile(self) -> None:
        if self.compiler is None:
            raise NoCompilerError("no C compiler: neither `gcc` nor `cc` is in PATH")
        for source in (*sorted(PROGRAMS.glob("*.c")), PRIMES):
            command = [self.compiler, "-O2", "-o", str(self.folder / source.stem), str(source)]
            subprocess.run(command, check=True)
        self._compiled = True

    def new_folder(self) -> Path:
        """Return an empty folder, one per daemon."""
        self._scenes += 1
        folder = self.folder / f"scene-{self._scenes}"
        folder.mkdir()
        return folder

    def descriptors(self, *documents: Mapping[str, Any]) -> Path:
        """Write a folder of descriptors and return it."""
        folder = self.new_folder()
        for document in documents:
            (folder / f"{document['name']}.json").write_text(json.dumps(document))
        return folder

    def native(
        self, name: str = "native", *, births: Path | None = None, **supervision: Any
    ) -> dict[str, Any]:
        """Describe the module of programs/native.c; `births` is a socket it is to connect to."""
        command = [self.program("native"), name, *([] if births is None else [str(births)])]
        return {**descriptor(name, command), "supervision": supervision}

    def primes(self) -> dict[str, Any]:
        """Describe the sample module `primes`, compiled beforehand, with the schema of its echo."""
        document = json.loads(PRIMES.with_name("module.json").read_text())
        document["transport"]["command"] = [self.program("primes")]
        document["supervision"] = {"concurrency": 64}
        return dict(document)

    def mcp_server(self) -> dict[str, Any]:
        """Describe the MCP server of programs/mcp_echo.c."""
        document = descriptor("server", [self.program("mcp_echo")], protocol="mcp")
        return {**document, "supervision": {"concurrency": 64}}

    def tool(self) -> dict[str, Any]:
        """Describe the per-invocation tool of programs/done.c."""
        return descriptor("done", [self.program("done")], protocol="narratoria")

    def python_tool(self, name: str, *words: str, **supervision: Any) -> dict[str, Any]:
        """Describe the per-invocation tool of programs/tool.py."""
        command = [sys.executable, str(PROGRAMS / "tool.py"), *words]
        return {**descriptor(name, command, protocol="narratoria"), "supervision": supervision}


def descriptor(name: str, command: Sequence[str], protocol: str = "module") -> dict[str, Any]:
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


@asynccontextmanager
async def daemon(
    workshop: Workshop,
    *documents: Mapping[str, Any],
    containment: str | None = None,
) -> AsyncIterator[Kernel]:
    """Run a daemon in this process around the block as it is shipped, all its modules ready.

    It has the process for itself, so the block starts no other: the daemon would reap it. The clock
    of its event loop is that of the caller's `trio.run`, and the garbage collector is `serve`'s.
    """
    folder = workshop.descriptors(*documents)
    collector.put_off()
    async with Kernel(
        scan([folder]),
        data_dir=folder / "data",
        memory=JournalOptions(),
        containment=containment,
        whole_process=True,
    ) as one:
        modules = one.fleet.modules.values()
        with trio.fail_after(READY_WITHIN_S):
            await one.fleet.wait_until(
                lambda: all(module.state in SERVES for module in modules) or None
            )
        async with trio.open_nursery() as nursery:
            collector.begin()
            nursery.start_soon(collector.collect_all, one.is_calm, _memory_bytes)
            yield one
            nursery.cancel_scope.cancel()


def _memory_bytes() -> int:
    return rss_bytes(os.getpid())


_INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)


class Measured(Stdiod):
    """The `stdiod` command with a daemon of its own, and what it takes."""

    def __init__(self, workshop: Workshop, *documents: Mapping[str, Any]) -> None:
        super().__init__(workshop.descriptors(*documents))

    def cost(self, *arguments: str) -> Cost:
        """Run a verb and return what it took, with what it waited for, but no daemon it left."""
        used = _children_cpu_s()
        begin = time.perf_counter()
        self.run(*arguments)
        return Cost(time.perf_counter() - begin, _children_cpu_s() - used)

    def up(self, *options: str) -> float:
        """Start the daemon and return how long it took until all was ready (s)."""
        return self.cost("up", str(self.folder), *options).wall_s

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
