"""Who does the work of a row: a program, our daemon, or our kernel in the process of its client.

A contender is a function of the bench and a scene, with the arguments that the table gives it, and
returns a figure for each row. Most have programs do the work, which print what it took, or which
listen at a socket and are asked by the scene's load; each begins with a quarter of the work, to
warm up.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

import psutil

from scripts.bench import loads, peers
from scripts.bench.table import Module, Scene, modules_named
from scripts.checkout import COMMAND_WITHIN_S, ROOT, STDIOD, Stdiod

PROGRAMS: Final = Path(__file__).parent / "programs"
PRIMES: Final = ROOT / "modules" / "primes" / "primes.c"
IDLE_S: Final = 10.0
"""As long as the default interval of health checks, and twice circus' of its own."""
MEGABYTES: Final = 1_000
"""Those of an asset."""
INITIALIZE: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)


class Cost(NamedTuple):
    """How long something took, and the CPU time of the process that did it."""

    wall_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Cost:
        return cls(time.perf_counter(), time.process_time())

    def since(self) -> Cost:
        """Return what this process has used since it took this with `now`."""
        now = Cost.now()
        return Cost(now.wall_s - self.wall_s, now.cpu_s - self.cpu_s)

    def per(self, count: int) -> Cost:
        return Cost(self.wall_s / count, self.cpu_s / count)


Figure = Cost | float | str
"""What one unit of a row's work took, a figure in the row's own unit, or why there is none."""


class NotInstalledError(LookupError):
    """A program cannot be run or compiled here."""


class Bench:
    """A scratch folder, and the programs and descriptors in it."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        """With `quick`, only whether it works is of interest."""
        self.folder, self.quick = folder, quick
        self._folders = 0

    def part(self, count: int) -> int:
        """Return how much is done: little, if only whether it works is of interest."""
        return max(count // (100 if self.quick else 1), 1)

    def times(self, scene: Scene) -> int:
        return max(self.part(scene.count), scene.window)

    def command(self, program: str) -> list[str]:
        """Return the command of a program of programs/; C is named without its suffix.

        Raises `NotInstalledError`.
        """
        name, *words = shlex.split(program)
        path = PROGRAMS / name
        match path.suffix:
            case ".js":
                interpreter = [needed(shutil.which("node"), peers.NO_NODE)]
            case ".py" if name.startswith("mcp_"):
                python = shutil.which(str(peers.program("mcp", "python")))
                interpreter = [needed(python, "mcp is not installed")]
            case ".py":
                # The small server is to be as small as it gets.
                interpreter = [sys.executable, *(["-I", "-S"] if "small" in name else [])]
            case _:
                return [self._compiled(name), *words]
        return [*interpreter, str(path), *words]

    def _compiled(self, name: str) -> str:
        binary = self.folder / name
        if not binary.exists():
            compiler = needed(peers.compiler(), peers.NO_COMPILER)
            source = PRIMES if name == "primes" else PROGRAMS / f"{name}.c"
            subprocess.run([compiler, "-O2", "-o", str(binary), str(source)], check=True)
        return str(binary)

    def new_folder(self) -> Path:
        self._folders += 1
        folder = self.folder / str(self._folders)
        folder.mkdir()
        return folder

    def descriptors(self, modules: Mapping[str, Module]) -> Path:
        """Write descriptors into a new folder, and return it."""
        folder = self.new_folder()
        sample = json.loads(PRIMES.with_name("module.json").read_text())
        for name, module in modules.items():
            own = {
                "kind": module.kind,
                "version": "1",
                "description": "measured",
                "capabilities": [],
                "inputs": sample["inputs"] if module.described else {},
                "outputs": sample["outputs"] if module.described else {},
                "transport": {"type": "stdio", "protocol": module.protocol},
            }
            document = {**(sample if module.program == "primes" else own), "name": name}
            document["transport"]["command"] = self.command(module.program)
            document["supervision"] = module.supervision
            (folder / f"{name}.json").write_text(json.dumps(document))
        return folder


def needed(program: str | None, why_missing: str) -> str:
    if program is None:
        raise NotInstalledError(why_missing)
    return program


# --- Programs that do the work themselves ------------------------------------


def program(
    bench: Bench, scene: Scene, run: str, module: str = "", slower: int = 1
) -> list[Figure]:
    """Run `PROGRAM COUNT WINDOW MODULE...`, of programs/.

    A peer that makes a tenth of our calls is given a tenth of them (`slower`): the unit is a rate.
    """
    command, hosted = bench.command(run), modules_named(module or scene.modules[0])
    count = max(bench.times(scene) // slower, scene.window)
    [module_command] = [bench.command(one.program) for one in hosted.values()]
    return _printed(count, [*command, str(count), str(scene.window), *module_command])


def kernel(
    bench: Bench, scene: Scene, mode: str, modules: Sequence[str] = (), containment: str = ""
) -> list[Figure]:
    """Have a process that is a daemon and its client do it (`scripts.bench.kernel_host`)."""
    folder = str(bench.descriptors(modules_named(*(modules or scene.modules))))
    count = bench.times(scene)
    words = [mode, str(count), str(scene.window), folder, containment]
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
    return [Cost(*numbers).per(count) if numbers[1:] else numbers[0] for numbers in lines]


# --- Programs and daemons that are asked at a socket -------------------------


def listener(bench: Bench, scene: Scene, run: str) -> list[Figure]:
    """Ask `PROGRAM SOCKET MODULE...`, of programs/, which listens in our daemon's place.

    It says when it is ready, and ends with its stdin.
    """
    path = bench.new_folder() / "socket"
    [module, *_] = modules_named(*scene.modules).values()
    command = [*bench.command(run), str(path), *bench.command(module.program)]
    with talking(command) as (process, _, out):
        if not out.readline():
            raise RuntimeError("did not start")
        return _asked(bench, scene, path, [process.pid])


def daemon(bench: Bench, scene: Scene, *, http: bool = False) -> list[Figure]:
    """Ask a daemon of ours at its control socket, or over HTTP."""
    with running(bench, scene, http=http) as ours:
        path = ours.socket.with_name("http.sock") if http else ours.socket
        return _asked(bench, scene, path, ours.pids())


def _asked(bench: Bench, scene: Scene, path: Path, pids: Sequence[int]) -> list[Figure]:
    """Put the scene's load on the processes behind a path."""
    load, count = loads.LOADS[scene.load], bench.times(scene)
    load(path, max(1, count // 4), scene.window)
    used_s = sum(map(cpu_s, pids))
    took_s = load(path, count, scene.window)
    return [Cost(took_s, sum(map(cpu_s, pids)) - used_s).per(count * scene.each)]


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


class Daemon(Stdiod):
    """A daemon of ours in a process of its own, and how long its command takes."""

    def __init__(self, bench: Bench, modules: Mapping[str, Module]) -> None:
        super().__init__(bench.descriptors(modules))

    def took_s(self, *arguments: str) -> float:
        """Run a verb; returns how long that took."""
        began_s = time.perf_counter()
        self.run(*arguments)
        return time.perf_counter() - began_s

    def up(self, options: str = "") -> float:
        """Start the daemon; returns the time until all is ready (s)."""
        return self.took_s("up", str(self.folder), *options.split())

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
def running(bench: Bench, scene: Scene, *, http: bool) -> Iterator[Daemon]:
    """Run a daemon of a scene's modules around the block, with what is done first."""
    with Daemon(bench, modules_named(*scene.modules)) as ours:
        ours.up("--http sock" if http else "")
        if scene.first:
            ours.run(*scene.first.format(megabytes=bench.part(MEGABYTES)).split())
        yield ours


# --- CPUs and memory ---------------------------------------------------------


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, of its ended threads too; raises `OSError`.

    The clock of another process, as clock_getcpuclockid(3) makes its number: it counts nanoseconds.
    The ticks of `ps` are 10 ms, a third of what an idle daemon takes in ten seconds.
    """
    return time.clock_gettime(~pid << 3 | 2)


def idle_cpu(bench: Bench, processes: Sequence[psutil.Process]) -> float:
    """Return the CPU time of idle processes (% of a core)."""
    pids = [process.pid for process in processes]
    used_s, began_s = sum(map(cpu_s, pids)), time.perf_counter()
    time.sleep(0.2 if bench.quick else IDLE_S)
    return (sum(map(cpu_s, pids)) - used_s) / (time.perf_counter() - began_s) * 100


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
