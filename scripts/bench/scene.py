"""A scene: rows of the page that are measured together, and the parties that are measured.

A party is called with the workshop, which has programs and modules in a scratch folder, and with
the scene; it returns a figure for each row of the scene. Most are programs that do the work and
print what it took, or that listen at a socket and are asked by the scene's load; each begins with a
quarter of the work, to warm up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple

import psutil

from scripts.bench import peers
from scripts.checkout import COMMAND_WITHIN_S, ROOT, STDIOD, Stdiod

OURS: Final = "stdiod"
PROGRAMS: Final = Path(__file__).parent / "programs"
IDLE_S: Final = 10.0
"""As long as the default interval of health checks, and twice circus' of its own."""
PRIMES: Final = ROOT / "modules" / "primes" / "primes.c"
MEGABYTES: Final = 1_000
"""Those of an asset."""
INITIALIZE: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)
LIST_TOOLS: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    b'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}\n'
)
SMALL: Final = "small_mcp_server.py"


class Cost(NamedTuple):
    """How long something took, and the CPU time of the process that did it."""

    wall_s: float
    cpu_s: float


class NotInstalledError(LookupError):
    """A program cannot be run or compiled here."""


class Module(NamedTuple):
    """A module that is hosted, by us or by a peer."""

    name: str
    program: str
    """A program of programs/ with its arguments, or a sample in C."""
    protocol: str = "module"
    kind: str = "tool"
    supervision: Mapping[str, Any] = MappingProxyType({})
    described: bool = False
    """Whether it has the `inputs` and `outputs` of `primes`."""


def native(name: str, *words: str, **more: Any) -> Module:
    """Return the module of programs/native.c, which is told its name."""
    return Module(name, shlex.join(["native", name, *words]), **more)


class Workshop:
    """A scratch folder, and the programs and descriptors in it."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        """With `quick`, only whether it works is of interest."""
        self.folder, self.quick = folder, quick
        self._folders = 0

    def part(self, count: int) -> int:
        """Return how much is done here: little, if only whether it works is of interest."""
        return max(count // (100 if self.quick else 1), 1)

    def command(self, program: str) -> list[str]:
        """Return the command of a program of programs/; C is named without its suffix.

        Raises `NotInstalledError`.
        """
        name, *words = shlex.split(program)
        path = PROGRAMS / name
        if path.suffix == ".js":
            if (node := shutil.which("node")) is None:
                raise NotInstalledError(peers.NO_NODE)
            return [node, str(path), *words]
        if path.suffix != ".py":
            return [self._compiled(name), *words]
        if not name.startswith("mcp_"):
            bare = ("-I", "-S") if name == SMALL else ()
            return [sys.executable, *bare, str(path), *words]
        python = peers.program("mcp", "python")
        if not python.exists():
            raise NotInstalledError("mcp is not installed")
        return [str(python), str(path), *words]

    def _compiled(self, name: str) -> str:
        binary = self.folder / name
        if not binary.exists():
            if (compiler := peers.compiler()) is None:
                raise NotInstalledError(peers.NO_COMPILER)
            source = PRIMES if name == "primes" else PROGRAMS / f"{name}.c"
            subprocess.run([compiler, "-O2", "-o", str(binary), str(source)], check=True)
        return str(binary)

    def new_folder(self) -> Path:
        self._folders += 1
        folder = self.folder / str(self._folders)
        folder.mkdir()
        return folder

    def descriptors(self, modules: Iterable[Module]) -> Path:
        """Write descriptors into a new folder, and return it."""
        folder = self.new_folder()
        for module in modules:
            (folder / f"{module.name}.json").write_text(json.dumps(self._descriptor(module)))
        return folder

    def _descriptor(self, module: Module) -> dict[str, Any]:
        document: dict[str, Any] = {
            "kind": module.kind,
            "version": "1",
            "description": "measured",
            "capabilities": [],
            "inputs": {},
            "outputs": {},
            "transport": {"type": "stdio", "protocol": module.protocol},
        }
        sample = json.loads(PRIMES.with_name("module.json").read_text())
        if module.program == "primes":
            document = sample
        elif module.described:
            document |= {name: sample[name] for name in ("inputs", "outputs")}
        document["transport"]["command"] = self.command(module.program)
        return {**document, "name": module.name, "supervision": dict(module.supervision)}


# --- Rows --------------------------------------------------------------------

Figure = Cost | float | str
"""What one unit of a row's work took, a figure in the row's own unit, or why there is none."""
Party = Callable[[Workshop, "Scene"], Sequence[Figure]]
Load = Callable[[Path, int, int], float]
"""Asks the process that listens at a path, so often, with a window (`scripts.bench.loads`)."""


class Sample(NamedTuple):
    """One figure of one round, or why there is none."""

    row: str
    contender: str
    value: float | None
    why: str = ""
    cpu_us: float | None = None
    """CPU time of the contender for one unit of work, without that of its module."""


class Bound(NamedTuple):
    """A bound on the ratio of our figure to a peer's, or on our own figure if there is no peer."""

    value: float
    at_least: bool
    peer: str | None = None
    of_cpu: bool = False
    """Whether it is on the ratio of the CPU times."""

    def __str__(self) -> str:
        words = f"at {'least' if self.at_least else 'most'} {self.value:g}"
        if self.peer is None:
            return words
        return f"{words} x {self.peer}{', CPU' if self.of_cpu else ''}"


def least(value: float, peer: str | None = None) -> Bound:
    return Bound(value, at_least=True, peer=peer)


def most(value: float, peer: str | None = None, *, of_cpu: bool = False) -> Bound:
    return Bound(value, at_least=False, peer=peer, of_cpu=of_cpu)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    title: str
    unit: str
    bounds: tuple[Bound, ...]

    def sample(self, contender: str, figure: Figure) -> Sample:
        match figure:
            case Cost(wall_s, cpu_s):
                value = 1 / wall_s if self.unit.endswith("/s") else wall_s * 1000
                return Sample(self.title, contender, value, cpu_us=cpu_s * 1e6)
            case str():
                return Sample(self.title, contender, None, figure)
            case _:
                return Sample(self.title, contender, figure)


def row(title: str, unit: str, *bounds: Bound) -> Row:
    return Row(title, unit, bounds)


@dataclass(frozen=True)
class Scene:
    """Rows, and who does what, how often."""

    name: str
    rows: tuple[Row, ...]
    parties: Mapping[str, Party]
    """Ours first."""
    modules: tuple[Module, ...] = ()
    """Peers host the first one."""
    count: int = 1
    """How much is done in a round."""
    window: int = 1
    """So many calls are open at once."""
    load: Load | None = None
    each: int = 1
    """How many units of work one call is."""
    one_cpu: bool = False
    """Whether all of a party share a CPU, since each side waits for the other in turn."""
    first: tuple[str, ...] = ()
    """A verb that is run once our daemon is up."""
    grows: bool = False
    """Whether its parties are daemons of ours of ever more modules."""
    once: bool = False
    """Whether one round is enough: it takes long, and has nobody beside it."""

    def times(self, workshop: Workshop) -> int:
        return max(workshop.part(self.count), self.window)

    def measure(self, workshop: Workshop) -> list[Sample]:
        """Measure all parties that are installed; of one that fails, return the reason.

        Raises `NotInstalledError` if ours is not installed.
        """
        samples: list[Sample] = []
        with on_one_cpu() if self.one_cpu else contextlib.nullcontext():
            for name, party in self.parties.items():
                try:
                    pairs = zip(self.rows, party(workshop, self), strict=True)
                    samples += [row.sample(name, figure) for row, figure in pairs]
                except NotInstalledError:
                    if name == OURS:
                        raise
                    continue
                except Exception as error:  # noqa: BLE001 - all the others are still measured
                    why = str(error) or repr(error)
                    samples += [row.sample(name, why) for row in self.rows]
        return samples


def single(
    name: str,
    title: str,
    unit: str,
    *bounds: Bound,
    parties: Mapping[str, Party],
    **how: Any,
) -> Scene:
    """Return a scene of one row."""
    return Scene(name, (row(title, unit, *bounds),), parties, **how)


# --- Parties -----------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A program of programs/ that does the work: `PROGRAM COUNT WINDOW MODULE...`.

    It prints the seconds that it took, and those of its own CPU.
    """

    program: str
    module: Module | None = None
    """Hosted in place of the scene's own module."""
    slower: int = 1
    """A peer that makes a tenth of our calls is given a tenth of them: the unit is a rate."""

    def __call__(self, workshop: Workshop, scene: Scene) -> list[Figure]:
        program = workshop.command(self.program)
        count = max(scene.times(workshop) // self.slower, scene.window)
        module = workshop.command((self.module or scene.modules[0]).program)
        return _printed(count, [*program, str(count), str(scene.window), *module])


@dataclass(frozen=True)
class InProcess:
    """A daemon of ours in the process that makes the calls (`scripts.bench.kernel_host`)."""

    mode: str
    modules: tuple[Module, ...] = ()
    """In place of the scene's own."""
    containment: str = ""

    def __call__(self, workshop: Workshop, scene: Scene) -> list[Figure]:
        folder = str(workshop.descriptors(self.modules or scene.modules))
        count = scene.times(workshop)
        words = [self.mode, str(count), str(scene.window), folder, self.containment]
        return _printed(count, [sys.executable, "-m", "scripts.bench.kernel_host", *words])


def _printed(count: int, command: Sequence[str]) -> list[Figure]:
    """Run a program and return the figures that it prints, a line for each row.

    Two numbers are what `count` units of work took, one is a figure. Raises `RuntimeError`.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_WITHIN_S,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"ended with {done.returncode}: {said[-1]}")
    lines = [list(map(float, line.split())) for line in done.stdout.splitlines()]
    return [
        Cost(numbers[0] / count, numbers[1] / count) if len(numbers) > 1 else numbers[0]
        for numbers in lines
    ]


@dataclass(frozen=True)
class Listener:
    """A program of programs/ that listens in our daemon's place: `PROGRAM SOCKET MODULE...`.

    It says when it is ready, and ends with its stdin.
    """

    program: str

    def __call__(self, workshop: Workshop, scene: Scene) -> list[Figure]:
        path = workshop.new_folder() / "socket"
        module = workshop.command(scene.modules[0].program)
        with talking([*workshop.command(self.program), str(path), *module]) as (process, _, out):
            if not out.readline():
                raise RuntimeError("did not start")
            return _asked(workshop, scene, path, [process.pid])


@contextlib.contextmanager
def talking(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """Run a program that ends with its stdin around the block, and kill it if it takes too long."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(COMMAND_WITHIN_S, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield process, process.stdin, process.stdout
        finally:
            process.stdin.close()
            process.wait()
            watchdog.cancel()


@dataclass(frozen=True)
class OurDaemon:
    """A daemon of ours in a process of its own, asked at its control socket or over HTTP."""

    http: bool = False

    def __call__(self, workshop: Workshop, scene: Scene) -> list[Figure]:
        with running(workshop, scene, http=self.http) as daemon:
            path = daemon.socket.with_name("http.sock") if self.http else daemon.socket
            return _asked(workshop, scene, path, daemon.pids())


def _asked(workshop: Workshop, scene: Scene, path: Path, pids: Sequence[int]) -> list[Figure]:
    """Put the scene's load on the processes behind a path."""
    assert scene.load is not None
    count = scene.times(workshop)
    scene.load(path, max(1, count // 4), scene.window)
    used_s = sum(map(cpu_s, pids))
    took_s = scene.load(path, count, scene.window)
    units = count * scene.each
    return [Cost(took_s / units, (sum(map(cpu_s, pids)) - used_s) / units)]


# --- Our daemon, and CPUs ----------------------------------------------------


class Daemon(Stdiod):
    """A daemon of ours in a process of its own, and how long its command takes."""

    def __init__(self, workshop: Workshop, modules: Iterable[Module]) -> None:
        super().__init__(workshop.descriptors(modules))

    def took_s(self, *arguments: str) -> float:
        """Run a verb; returns how long that took."""
        began_s = time.perf_counter()
        self.run(*arguments)
        return time.perf_counter() - began_s

    def up(self, *options: str) -> float:
        """Start the daemon; returns the time until all is ready (s)."""
        return self.took_s("up", str(self.folder), *options)

    def pids(self) -> list[int]:
        """Return the daemon's pid, and the gateway's if HTTP is served."""
        status = self.status()
        gateway = status["http"]["instances"] if "http" in status else ()
        return [status["daemon"]["pid"], *(instance["pid"] for instance in gateway)]

    def entry(self) -> tuple[float, float]:
        """Return when `stdiod mcp` has answered, and its memory (s; PSS, MB).

        It starts a daemon if none runs.
        """
        began_s = time.perf_counter()
        command = [*STDIOD, "mcp", str(self.folder)]
        with talking(command, self.environment) as (process, stdin, stdout):
            stdin.write(INITIALIZE)
            stdin.flush()
            answer = stdout.readline()
            took_s = time.perf_counter() - began_s
            memory_mb = pss_mb(psutil.Process(process.pid)) if answer else 0.0
        assert b'"serverInfo"' in answer, answer
        return took_s, memory_mb


@contextlib.contextmanager
def running(workshop: Workshop, scene: Scene, *, http: bool) -> Iterator[Daemon]:
    """Run a daemon of a scene's modules around the block, with what is done first."""
    with Daemon(workshop, scene.modules) as daemon:
        daemon.up(*(("--http", "sock") if http else ()))
        if scene.first:
            daemon.run(*(word.format(megabytes=workshop.part(MEGABYTES)) for word in scene.first))
        yield daemon


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, of its ended threads too; raises `OSError`.

    The clock of another process, as clock_getcpuclockid(3) makes its number: it counts nanoseconds.
    The ticks of `ps` are 10 ms, a third of what an idle daemon takes in ten seconds.
    """
    return time.clock_gettime(~pid << 3 | 2)


def idle_cpu(workshop: Workshop, processes: Sequence[psutil.Process]) -> float:
    """Return the CPU time of idle processes (% of a core)."""
    idle_s = 0.2 if workshop.quick else IDLE_S
    before, began_s = [cpu_s(process.pid) for process in processes], time.perf_counter()
    time.sleep(idle_s)
    used_s = sum(cpu_s(process.pid) for process in processes) - sum(before)
    return used_s / (time.perf_counter() - began_s) * 100


def pss_mb(*processes: psutil.Process) -> float:
    return sum(process.memory_full_info().pss for process in processes) / 1e6


@contextlib.contextmanager
def on_one_cpu() -> Iterator[None]:
    """Keep this thread, and all processes that it starts in the block, on one CPU.

    Where each side waits for the other in turn, the scheduler decides whether they share a CPU, and
    a wake-up on another one may cost more than what is measured.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
