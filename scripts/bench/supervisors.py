"""Contenders that are whole supervisors: others, our command, many clients, more and more modules.

The others run with their defaults, except for what keeps each to itself (sockets, folders) and for
the two seconds that a stop may take, which all of them can be told.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from scripts.bench import loads, peers
from scripts.bench.contenders import (
    INITIALIZE,
    Bench,
    Daemon,
    Figure,
    NotInstalledError,
    idle_cpu,
    pss_mb,
    running,
)
from scripts.bench.table import Module, Scene, modules_named
from scripts.checkout import COMMAND_WITHIN_S, STDIOD, family
from supervisor.edge.bindings.blocking import BlockingClient, connect
from tests.system.liveness import Liveness

ENDED_WITHIN_S: Final = 20.0
RAN_S: Final = 1.5
"""How long a process ran before it is killed; supervisord's `startsecs` is 1."""


@contextlib.contextmanager
def births(folder: Path) -> Iterator[Liveness]:
    """Have native modules connect to a socket; what still lives after the block is killed."""
    with Liveness(folder / "births") as register:
        try:
            yield register
        finally:
            for process in register.take_in():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)


def all_dead(born: Liveness) -> bool:
    """Wait until all have ended; returns whether they have."""
    ends_at = time.monotonic() + ENDED_WITHIN_S
    return all(
        select.select([one.connection], [], [], max(ends_at - time.monotonic(), 0))[0]
        for one in born.members
    )


def helpers_of(pid: int, born: Liveness) -> list[psutil.Process]:
    """Return a supervisor's processes without those that it runs."""
    pids = {one.pid for one in born.members}
    return [process for process in family(pid) if process.pid not in pids]


# --- Others ------------------------------------------------------------------

SUPERVISORD_CONF: Final = """
[unix_http_server]
file={folder}/s
[supervisord]
logfile={folder}/log
pidfile={folder}/pid
childlogdir={folder}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/s
"""
CIRCUS_CONF: Final = """
[circus]
endpoint = ipc://{folder}/e
pubsub_endpoint = ipc://{folder}/p
statsd = False
"""
CONFIGURATIONS: Final = {
    peers.SUPERVISORD: (
        ["supervisord", "-n", "-c", "conf"],
        SUPERVISORD_CONF,
        "[program:{name}]\ncommand={command}\nstopwaitsecs=2\n",
    ),
    peers.CIRCUS: (
        ["circusd", "conf"],
        CIRCUS_CONF,
        "[watcher:{name}]\ncmd = {command}\ngraceful_timeout = 2\ncopy_env = True\n",
    ),
}
"""What runs each in the foreground, its file, and the part for each process."""


def _configure(supervisor: str, folder: Path, commands: Mapping[str, str]) -> list[str]:
    """Write a configuration into a folder; returns the command that runs it there."""
    if supervisor in CONFIGURATIONS:
        command, text, each = CONFIGURATIONS[supervisor]
        parts = (each.format(name=name, command=run) for name, run in commands.items())
        (folder / "conf").write_text("".join([text.format(folder=folder), *parts]))
        return command
    for name, run in commands.items():  # s6, without a logger, which is not its default
        service = folder / "scan" / name
        service.mkdir(parents=True)
        (service / "run").write_text(f"#!/bin/sh\nexec {run}\n")
        (service / "run").chmod(0o755)
        (service / "timeout-kill").write_text("2000\n")
    return ["s6-svscan", "-c", "200", "scan"]


@contextlib.contextmanager
def _under(
    bench: Bench, supervisor: str, count: int
) -> Iterator[tuple[subprocess.Popen[bytes], float, Liveness]]:
    """Run a supervisor of so many processes around the block; nothing is left afterwards.

    Yields how long it took until all ran, too (s).
    """
    package = peers.PACKAGES[supervisor]
    if peers.version(package) is None:
        raise NotInstalledError(peers.why_missing(package))
    folder, native = bench.new_folder(), bench.command("native")
    with births(folder) as born, (folder / "stderr").open("wb") as log:
        names = [f"process-{number}" for number in range(count)]
        commands = {name: shlex.join([*native, name, str(born.path)]) for name in names}
        program, *words = _configure(supervisor, folder, commands)
        installed, quiet = peers.program(package, program), subprocess.DEVNULL
        command = [str(installed) if installed.exists() else program, *words]
        began_s = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, stdin=quiet, stdout=quiet, stderr=log, start_new_session=True
        )
        try:
            born.wait_for("native", count)
            yield process, time.monotonic() - began_s, born
        finally:
            # Helpers go before the processes, or they would start them again.
            helpers = helpers_of(process.pid, born)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDED_WITHIN_S)
            for helper in helpers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    helper.kill()
            process.wait()


def crash(bench: Bench, scene: Scene, supervisor: str) -> list[Figure]:
    """Kill each process once."""
    count, took_s = bench.times(scene), []
    with _under(bench, supervisor, count) as (_, _, born):
        time.sleep(RAN_S)
        for number, process in enumerate(list(born.members), start=count + 1):
            began_s = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            born.wait_for("native", number)
            took_s.append(time.monotonic() - began_s)
    return [median(took_s) * 1000]


def fleet(bench: Bench, scene: Scene, supervisor: str) -> list[Figure]:
    """Start many processes, watch the supervisor do nothing, stop them."""
    with _under(bench, supervisor, bench.times(scene)) as (process, start_s, born):
        # Its start goes on for a while after the last process runs.
        time.sleep(RAN_S)
        helpers = helpers_of(process.pid, born)
        idle = (idle_cpu(bench, helpers), pss_mb(*helpers))
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        ended = all_dead(born)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, began_s + ENDED_WITHIN_S - time.monotonic()))
        stop_s = time.monotonic() - began_s
        late = f"did not end in {ENDED_WITHIN_S:.0f} s"
        return [start_s, *idle, stop_s if ended and process.returncode is not None else late]


# --- Ours --------------------------------------------------------------------


def our_fleet(
    bench: Bench, scene: Scene, options: str = "", *, described: bool = False
) -> list[Figure]:
    """Start many modules, watch the daemon do nothing, stop them.

    Of a daemon that serves HTTP, the gateway's memory stands by itself. Modules that are described
    have the schemas of `primes`.
    """
    with births(bench.new_folder()) as born:
        names = [f"idle-{number:03}" for number in range(bench.times(scene))]
        modules = {
            name: Module(shlex.join(["native", name, str(born.path)]), described=described)
            for name in names
        }
        with Daemon(bench, modules) as daemon:
            start_s = daemon.up(options)
            born.wait_for("native", len(modules))
            states = {module["state"] for module in daemon.status()["modules"]}
            assert states == {"ready"}, states
            pid, *gateway = daemon.pids()
            all_helpers = helpers_of(pid, born)
            idle = idle_cpu(bench, all_helpers)
            helpers = [process for process in all_helpers if process.pid not in gateway]
            memory = [pss_mb(*helpers), *(pss_mb(psutil.Process(pid)) for pid in gateway)]
            stop_s = daemon.took_s("down")
            assert all_dead(born), "processes are left"
    return [start_s, idle, *memory, stop_s]


def command(bench: Bench, scene: Scene) -> list[Figure]:
    """Run verbs, again and again."""
    times = range(bench.times(scene))
    with Daemon(bench, modules_named(*scene.modules)) as daemon:
        first_s, _ = daemon.entry()
        daemon.run("wait", *scene.modules)
        verbs = [median(daemon.took_s(verb) for _ in times) for verb in ("--version", "status")]
        entries = [daemon.entry() for _ in times]
    entry_s, entry_mb = map(median, zip(*entries, strict=True))
    return [*(seconds * 1000 for seconds in (*verbs, entry_s, first_s)), entry_mb]


def up(bench: Bench, scene: Scene, options: str = "") -> list[Figure]:
    """Start the daemon, again and again."""
    took_s = []
    for _ in range(bench.times(scene)):
        with Daemon(bench, modules_named(*scene.modules)) as daemon:
            took_s.append(daemon.up(options))
    return [median(took_s) * 1000]


def interpreter(bench: Bench, scene: Scene) -> list[Figure]:
    """Start the Python that our command runs on, again and again."""
    took_s = []
    for _ in range(bench.times(scene)):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        took_s.append(time.perf_counter() - began_s)
    return [median(took_s) * 1000]


def neighbour(
    bench: Bench, scene: Scene, busy: str = "", *, http: bool = True, share: float = 0.99
) -> list[Figure]:
    """Invoke one module over the socket, while others load the daemon; or while none do.

    Returns the median, and what a share of the calls did not exceed.
    """
    times = bench.times(scene)
    with running(bench, scene, http=http) as daemon, contextlib.ExitStack() as others:
        if busy:
            path = daemon.socket.with_name("http.sock") if http else daemon.socket
            others.enter_context(loads.endless(loads.LOADS[busy], path, scene.window))
        client = others.enter_context(BlockingClient(connect(daemon.socket)))
        each_s = [_native_s(client, "native") for _ in range(times // 4 + times)]
    took_s = sorted(each_s[-times:])
    return [median(took_s) * 1000, took_s[min(int(times * share), times - 1)] * 1000]


def grown(bench: Bench, _: Scene, size: int, *, lazy: bool = False) -> list[Figure]:
    """Return the figures of a daemon of so many modules."""
    supervision = {"start": "lazy" if lazy else "eager"}
    names = [f"m-{number:05}" for number in range(bench.part(size))]
    modules = {name: Module(f"native {name}", supervision=supervision) for name in names}
    with Daemon(bench, modules) as daemon:
        start_s = daemon.up()
        [native] = bench.command("native")
        helpers = [process for process in family(daemon.pids()[0]) if process.exe() != native]
        idle = idle_cpu(bench, helpers)
        memory = pss_mb(*helpers)
        with BlockingClient(connect(daemon.socket)) as client:
            first_s = _native_s(client, names[0])
            each_s = median(_native_s(client, names[0]) for _ in range(bench.part(200)))
            path = daemon.folder / f"{names[-1]}.json"
            changed = json.loads(path.read_text())
            changed["supervision"]["queue"] = 7
            path.write_text(json.dumps(changed))
            # The daemon may have seen the change by itself; then this waits for what it does of it.
            reload_s = _invoke_s(client, "supervisor", {"op": "reload"})
        stop_s = daemon.took_s("down")
    of_lazy = [first_s * 1000] if lazy else []
    return [start_s, memory, idle, *of_lazy, each_s * 1000, reload_s, stop_s]


def _native_s(client: BlockingClient, name: str) -> float:
    """Ask a native module for nothing; returns how long that took."""
    return _invoke_s(client, name, {"op": "stream", "args": {"n": 0}})


def _invoke_s(client: BlockingClient, tool: str, given: dict[str, Any]) -> float:
    began_s = time.perf_counter()
    answer = client.request(tool, "invoke", given, timeout_s=COMMAND_WITHIN_S)
    took_s = time.perf_counter() - began_s
    assert answer.ok, answer
    return took_s


# --- Many MCP clients --------------------------------------------------------

LIST_TOOLS: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    b'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}\n'
)
TOOLS: Final = 3
"""So many has each server."""


def mcp_clients(bench: Bench, scene: Scene, *, is_shared: bool) -> list[Figure]:
    """Start MCP clients of all servers, as in the morning: all at once, and nothing runs yet.

    A shared fleet costs each client one `stdiod mcp`, the first of which starts the daemon.
    """
    servers = list(modules_named(*scene.modules).items())[: 2 if bench.quick else None]
    daemon, clients = Daemon(bench, dict(servers)), bench.times(scene)
    commands = [bench.command(module.program) for _, module in servers]
    if is_shared:
        commands = [[*STDIOD, "mcp", str(daemon.folder)]]
    started: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str]) -> None:
        """Be the client of a server until it has listed its tools."""
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(
            command, env=daemon.environment, stdin=pipe, stdout=pipe, stderr=quiet
        )
        started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        answer: dict[str, Any] = {}
        for number, lines in enumerate((INITIALIZE, LIST_TOOLS), 1):
            process.stdin.write(lines)
            process.stdin.flush()
            while answer.get("id") != number:
                answer = json.loads(process.stdout.readline())
        assert len(answer["result"]["tools"]) * len(commands) == TOOLS * len(servers)

    def ready_s(clients: int) -> float:
        began_s = time.monotonic()
        list(pool.map(begin, commands * clients, timeout=COMMAND_WITHIN_S))
        return time.monotonic() - began_s

    with daemon, ThreadPoolExecutor(len(commands) * clients) as pool:
        try:
            all_s = ready_s(clients)
            pids = [*(one.pid for one in started), *(daemon.pids() if is_shared else ())]
            processes = {one for pid in pids for one in family(pid)}
            used_s = sum(sum(one.cpu_times()[:2]) for one in processes)
            return [len(processes), pss_mb(*processes), all_s, used_s, ready_s(1) * 1000]
        finally:
            for process in started:
                process.kill()
                process.communicate()
