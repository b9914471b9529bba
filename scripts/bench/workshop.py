"""What the benchmarks need around them: compiled peers, module folders, daemons, timed programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from supervisor.kernel.daemon import Daemon, running
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.lifecycle import SERVES
from supervisor.runtime.directory import scan

PROGRAMS: Final = Path(__file__).parent / "programs"
PRIMES: Final = Path(__file__).parent.parent.parent / "modules" / "primes" / "primes.c"

READY_WITHIN_S: Final = 60.0
PROGRAM_WITHIN_S: Final = 300.0
"""No benchmark takes so long; one that hangs is not to hang for ever."""


class Workshop:
    """A scratch folder with the programs that are measured, or measured against."""

    def __init__(self, folder: Path) -> None:
        """Compile into `folder`; raises `FileNotFoundError` where there is no C compiler."""
        self.folder = folder
        self._scenes = 0
        self.node = shutil.which("node")
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("the benchmarks need a C compiler, `cc`")
        for source in (*sorted(PROGRAMS.glob("*.c")), PRIMES):
            command = [compiler, "-O2", "-o", str(folder / source.stem), str(source)]
            subprocess.run(command, check=True)

    def program(self, name: str) -> str:
        """Return the path of a compiled program."""
        return str(self.folder / name)

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

    def native(self, name: str = "native") -> dict[str, Any]:
        """Describe the module of programs/native.c."""
        return descriptor(name, [self.program("native"), name])

    def primes(self) -> dict[str, Any]:
        """Describe the sample module `primes`, compiled beforehand, with the schema of its echo."""
        document = json.loads(PRIMES.with_name("module.json").read_text())
        document["transport"]["command"] = [self.program("primes")]
        document["supervision"] = {"concurrency": 64}
        return dict(document)

    def tool(self) -> dict[str, Any]:
        """Describe the per-invocation tool of programs/done.c."""
        return descriptor("done", [self.program("done")], protocol="narratoria")


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
    workshop: Workshop, *documents: Mapping[str, Any], memory: JournalOptions | None = None
) -> AsyncIterator[Daemon]:
    """Run a daemon in this process around the block, all its modules ready."""
    folder = workshop.descriptors(*documents)
    async with running(scan([folder]), data_dir=folder / "data", memory=memory) as one:
        modules = one.fleet.modules.values()
        with trio.fail_after(READY_WITHIN_S):
            await one.fleet.wait_until(
                lambda: all(module.state in SERVES for module in modules) or None
            )
        yield one


class Stdiod:
    """The `stdiod` command with a daemon of its own."""

    def __init__(self, workshop: Workshop, *documents: Mapping[str, Any]) -> None:
        self.folder = workshop.descriptors(*documents)
        self.socket = self.folder / "socket"
        installed = Path(sys.executable).with_name("stdiod")
        self._command = (
            [str(installed)]
            if installed.exists()
            else [sys.executable, "-P", "-m", "supervisor.cli"]
        )

    def run(self, *arguments: str) -> str:
        """Run a verb and return what it printed; raises `CalledProcessError`."""
        done = subprocess.run(
            [*self._command, *arguments],
            env={**os.environ, "STDIOD_SOCKET": str(self.socket)},
            capture_output=True,
            text=True,
            check=True,
            timeout=PROGRAM_WITHIN_S,
        )
        return done.stdout

    def time(self, *arguments: str) -> float:
        """Run a verb and return the wall time it took (s)."""
        begin = time.perf_counter()
        self.run(*arguments)
        return time.perf_counter() - begin

    def up(self) -> None:
        """Start the daemon."""
        self.run("up", str(self.folder), "--data-dir", str(self.folder / "data"))

    def down(self) -> None:
        """Stop it, if it runs."""
        arguments = [*self._command, "--socket", str(self.socket), "down"]
        subprocess.run(arguments, capture_output=True, check=False, timeout=PROGRAM_WITHIN_S)


async def seconds(command: Iterable[str]) -> float:
    """Run a peer that prints how long it took, and return that."""
    with trio.fail_after(PROGRAM_WITHIN_S):
        done = await trio.run_process(list(command), capture_stdout=True)
    return float(done.stdout)
