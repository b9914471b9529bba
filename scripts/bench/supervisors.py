"""The rows of whole supervisors: a crash, many processes, our command, what grows with the modules.

The others run with their defaults, except for what keeps each to itself (sockets, folders) and for
the two seconds that a stop may take, which all of them can be told.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import psutil

from scripts.bench import loads, peers
from scripts.bench.peers import CIRCUS, S6, SUPERVISORD
from scripts.bench.scene import (
    INITIALIZE,
    LIST_TOOLS,
    OURS,
    SMALL,
    Daemon,
    Figure,
    Module,
    NotInstalledError,
    Scene,
    Workshop,
    idle_cpu,
    native,
    pss_mb,
    running,
)
from scripts.checkout import COMMAND_WITHIN_S, STDIOD, family
from supervisor.edge.bindings.blocking import BlockingClient, connect

BORN_WITHIN_S: Final = 30.0
ENDED_WITHIN_S: Final = 20.0
NOTHING: Final = {"op": "stream", "args": {"n": 0}}
"""What is asked of a native module that is to answer at once."""
RAN_S: Final = 1.5
"""How long a process ran before it is killed; supervisord's `startsecs` is 1."""
CREDENTIALS: Final = struct.Struct("3i")
"""SO_PEERCRED: pid, uid, gid."""


class Births:
    """A socket to which each process connects: the connection is its birth, its end the death."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_s = 0.0
        """When the last one was seen, in monotonic time."""
        self.pids: list[int] = []
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1024)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what was left behind; what only comes now finds nobody, and ends."""
        with contextlib.suppress(TimeoutError):
            while True:
                self.wait_for(len(self.pids) + 1, 0.01)
        for pid, connection in zip(self.pids, self._connections, strict=True):
            # Whose connection is open lives, so that the number is its own.
            if not _has_ended(connection, time.monotonic()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            connection.close()
        self._listener.close()

    def wait_for(self, number: int, within_s: float = BORN_WITHIN_S) -> None:
        """Wait until so many processes have come; raises `TimeoutError`."""
        ends_at = time.monotonic() + within_s
        while len(self.pids) < number:
            self._listener.settimeout(max(ends_at - time.monotonic(), 0.001))
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                raise TimeoutError(f"only {len(self.pids)} of {number} processes came") from None
            self.last_s = time.monotonic()
            said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            self.pids.append(CREDENTIALS.unpack(said)[0])
            self._connections.append(connection)

    def wait_dead(self, within_s: float) -> bool:
        """Wait until all processes have ended; returns whether they have."""
        ends_at = time.monotonic() + within_s
        return all(_has_ended(connection, ends_at) for connection in self._connections)

    def helpers(self, pid: int) -> list[psutil.Process]:
        """Return a supervisor's processes without those that it runs."""
        return [process for process in family(pid) if process.pid not in self.pids]


def _has_ended(connection: socket.socket, ends_at: float) -> bool:
    connection.settimeout(max(ends_at - time.monotonic(), 0.001))
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


# --- Configurations ----------------------------------------------------------

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
    SUPERVISORD: (
        ["supervisord", "-n", "-c", "conf"],
        SUPERVISORD_CONF,
        "[program:{name}]\ncommand={command}\nstopwaitsecs=2\n",
    ),
    CIRCUS: (
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
        text = text.format(folder=folder)
        text += "".join(each.format(name=name, command=run) for name, run in commands.items())
        (folder / "conf").write_text(text)
        return command
    for name, run in commands.items():  # s6, without a logger, which is not its default
        service = folder / "scan" / name
        service.mkdir(parents=True)
        (service / "run").write_text(f"#!/bin/sh\nexec {run}\n")
        (service / "run").chmod(0o755)
        (service / "timeout-kill").write_text("2000\n")
    return ["s6-svscan", "-c", "200", "scan"]


# --- Rows --------------------------------------------------------------------


@contextlib.contextmanager
def _under(
    workshop: Workshop, supervisor: str, count: int
) -> Iterator[tuple[subprocess.Popen[bytes], float, Births]]:
    """Run a supervisor of so many processes around the block; nothing is left afterwards.

    Yields when it was started, too (monotonic time).
    """
    package = peers.PACKAGES[supervisor]
    if peers.version(package) is None:
        raise NotInstalledError(peers.why_missing(package))
    folder, native = workshop.new_folder(), workshop.command("native")
    with Births(folder / "births") as births, (folder / "stderr").open("wb") as log:
        names = [f"process-{number}" for number in range(count)]
        commands = {name: shlex.join([*native, name, str(births.path)]) for name in names}
        program, *words = _configure(supervisor, folder, commands)
        installed = peers.program(package, program)
        began_s = time.monotonic()
        process = subprocess.Popen(
            [str(installed) if installed.exists() else program, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process, began_s, births
        finally:
            # Helpers go before the processes, or they would start them again.
            helpers = births.helpers(process.pid)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDED_WITHIN_S)
            for helper in helpers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    helper.kill()
            process.wait()


def _crash(workshop: Workshop, scene: Scene, supervisor: str) -> list[Figure]:
    """Kill each process once."""
    count = scene.times(workshop)
    took_s = []
    with _under(workshop, supervisor, count) as (_, _, births):
        births.wait_for(count)
        time.sleep(RAN_S)
        for number, pid in enumerate(births.pids[:count], start=count + 1):
            began_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            births.wait_for(number)
            took_s.append(births.last_s - began_s)
    return [median(took_s) * 1000]


def _fleet(workshop: Workshop, scene: Scene, supervisor: str) -> list[Figure]:
    """Start many processes, watch the supervisor do nothing, stop them."""
    count = scene.times(workshop)
    with _under(workshop, supervisor, count) as (process, started_s, births):
        births.wait_for(count)
        start_s = births.last_s - started_s
        # Its start goes on for a while after the last process runs.
        time.sleep(RAN_S)
        helpers = births.helpers(process.pid)
        idle = (idle_cpu(workshop, helpers), pss_mb(*helpers))
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        ended = births.wait_dead(ENDED_WITHIN_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, began_s + ENDED_WITHIN_S - time.monotonic()))
        stop_s = time.monotonic() - began_s
        late = f"did not end in {ENDED_WITHIN_S:.0f} s"
        return [start_s, *idle, stop_s if ended and process.returncode is not None else late]


def our_fleet(
    workshop: Workshop, scene: Scene, options: Sequence[str] = (), *, described: bool = False
) -> list[Figure]:
    """Start many modules, watch the daemon do nothing, stop them.

    Of a daemon that serves HTTP, the gateway's memory stands by itself. Modules that are described
    have the schemas of `primes`.
    """
    with Births(workshop.new_folder() / "births") as births:
        names = [f"idle-{number:03}" for number in range(scene.times(workshop))]
        modules = [native(name, str(births.path), described=described) for name in names]
        with Daemon(workshop, modules) as daemon:
            start_s = daemon.up(*options)
            births.wait_for(len(modules))
            states = {module["state"] for module in daemon.status()["modules"]}
            assert states == {"ready"}, states
            pid, *gateway = daemon.pids()
            all_helpers = births.helpers(pid)
            idle = idle_cpu(workshop, all_helpers)
            helpers = [process for process in all_helpers if process.pid not in gateway]
            memory = [pss_mb(*helpers), *(pss_mb(psutil.Process(pid)) for pid in gateway)]
            stop_s = daemon.took_s("down")
            assert births.wait_dead(ENDED_WITHIN_S), "processes are left"
    return [start_s, idle, *memory, stop_s]


OTHERS: Final = (SUPERVISORD, CIRCUS, S6)
CRASH: Final = {name: partial(_crash, supervisor=name) for name in OTHERS}
FLEET: Final = {OURS: our_fleet} | {name: partial(_fleet, supervisor=name) for name in OTHERS}


# --- Our command -------------------------------------------------------------


def command(workshop: Workshop, scene: Scene) -> list[Figure]:
    """Run verbs, again and again."""
    times = range(scene.times(workshop))
    with Daemon(workshop, scene.modules) as daemon:
        first_s, _ = daemon.entry()
        daemon.run("wait", *(module.name for module in scene.modules))
        verbs = [median(daemon.took_s(verb) for _ in times) for verb in ("--version", "status")]
        entries = [daemon.entry() for _ in times]
    entry_s, entry_mb = map(median, zip(*entries, strict=True))
    return [*(seconds * 1000 for seconds in (*verbs, entry_s, first_s)), entry_mb]


def up(workshop: Workshop, scene: Scene, options: Sequence[str] = ()) -> list[Figure]:
    """Start the daemon, again and again."""
    took_s = []
    for _ in range(scene.times(workshop)):
        with Daemon(workshop, scene.modules) as daemon:
            took_s.append(daemon.up(*options))
    return [median(took_s) * 1000]


def interpreter(workshop: Workshop, scene: Scene) -> list[Figure]:
    """Start the Python that our command runs on, again and again."""
    took_s = []
    for _ in range(scene.times(workshop)):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        took_s.append(time.perf_counter() - began_s)
    return [median(took_s) * 1000]


def neighbour(
    workshop: Workshop,
    scene: Scene,
    busy: loads.Load | None = None,
    *,
    http: bool = True,
    share: float = 0.99,
) -> list[Figure]:
    """Invoke one module over the socket, while others load the daemon; or while none do.

    Returns the median, and what a share of the calls did not exceed.
    """
    times = scene.times(workshop)
    with running(workshop, scene, http=http) as daemon:
        path = daemon.socket.with_name("http.sock") if http else daemon.socket
        others = loads.endless(busy, path, scene.window) if busy else contextlib.nullcontext()
        with others, BlockingClient(connect(daemon.socket)) as client:
            each_s = [_invoke_s(client, "native", NOTHING) for _ in range(times // 4 + times)]
    took_s = sorted(each_s[-times:])
    return [median(took_s) * 1000, took_s[min(int(times * share), times - 1)] * 1000]


# --- Many MCP clients --------------------------------------------------------

CLIENTS, TOOLS = 20, 3
SERVERS: Final = tuple(Module(f"m{number}", SMALL, protocol="mcp") for number in range(40))
"""They have so many tools each."""


def mcp_clients(workshop: Workshop, scene: Scene, *, is_shared: bool) -> list[Figure]:
    """Start MCP clients of all servers, as in the morning: all at once, and nothing runs yet.

    A shared fleet costs each client one `stdiod mcp`, the first of which starts the daemon.
    """
    modules, clients = scene.modules[: 2 if workshop.quick else None], scene.times(workshop)
    daemon = Daemon(workshop, modules)
    commands = [workshop.command(module.program) for module in modules]
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
        assert len(answer["result"]["tools"]) * len(commands) == TOOLS * len(modules)

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


# --- What grows with the number of modules -----------------------------------

LATENCIES: Final = 200


def grown(workshop: Workshop, _: Scene, size: int, *, lazy: bool = False) -> list[Figure]:
    """Return the figures of a daemon of so many modules, as the table has them."""
    supervision = {"start": "lazy" if lazy else "eager"}
    modules = [native(f"m-{i:05}", supervision=supervision) for i in range(workshop.part(size))]
    first, last = modules[0].name, modules[-1].name
    with Daemon(workshop, modules) as daemon:
        start_s = daemon.up()
        program = workshop.command("native")[0]
        helpers = [process for process in family(daemon.pids()[0]) if process.exe() != program]
        idle = idle_cpu(workshop, helpers)
        memory = pss_mb(*helpers)
        with BlockingClient(connect(daemon.socket)) as client:
            first_s = _invoke_s(client, first, NOTHING)
            each_s = median(
                _invoke_s(client, first, NOTHING) for _ in range(workshop.part(LATENCIES))
            )
            path = daemon.folder / f"{last}.json"
            changed = json.loads(path.read_text())
            changed["supervision"]["queue"] = 7
            path.write_text(json.dumps(changed))
            # The daemon may have seen the change by itself; then this waits for what it does of it.
            reload_s = _invoke_s(client, "supervisor", {"op": "reload"})
        stop_s = daemon.took_s("down")
    of_lazy = [first_s * 1000] if lazy else []
    return [start_s, memory, idle, *of_lazy, each_s * 1000, reload_s, stop_s]


def _invoke_s(client: BlockingClient, tool: str, given: dict[str, Any]) -> float:
    """Invoke once; returns how long that took."""
    began_s = time.perf_counter()
    answer = client.request(tool, "invoke", given, timeout_s=COMMAND_WITHIN_S)
    took_s = time.perf_counter() - began_s
    assert answer.ok, answer
    return took_s
