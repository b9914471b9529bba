"""The rows of calls and events: stdiod and its peers, side by side.

A work says how a row is done so many `times` by stdiod and by each peer; each begins with a quarter
as much, to warm up. Our daemon runs in this process, or, if the work has a `call`, in a process of
its own and is asked at its sockets. A peer either does the work itself, with the same module, or it
listens in our place, with the same module and the same client.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import trio

from protocol.events import Progress
from protocol.response import Response
from scripts.bench import rows, sockets
from scripts.bench.machine import cpu_ns, pinned
from scripts.bench.rows import OURS, Cost, Row, Sample, now, since
from scripts.bench.workshop import PROGRAMS, Document, Measured, Workshop, with_daemon
from scripts.checkout import COMMAND_WITHIN_S, READY_WITHIN_S
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Client
from supervisor.policy.principals import SUPERVISOR

MANY = 64
"""So many calls are open at once."""
APART_S = 0.06
"""Longer than what the kernel remembers of a move into a cgroup."""
KEPT_WARM = 2
LOOK_EVERY_S = 0.05


class Peer(NamedTuple):
    """A program of programs/: `PROGRAM COUNT WINDOW MODULE...` prints what it took (s)."""

    program: str
    """And its mode."""
    module: str = ""
    """A program that it hosts instead of the row's own module."""
    slower: int = 1
    """A peer that makes a tenth of our calls is given a tenth of them: the unit is a rate."""
    listens: bool = False
    """`PROGRAM SOCKET MODULE...` serves clients there instead, and ends with its stdin."""


class Work(NamedTuple):
    """How a row is measured."""

    row: Row
    times: str
    """Which of the sizes says how often."""
    document: Callable[[Workshop], Document]
    peers: Mapping[str, Peer]
    op: str = "echo"
    window: int = 1
    """So many calls are open at once."""
    call: Callable[[Path, int, int], float] | None = None
    """Asks so often, with a window, the process that listens at a path; returns seconds."""
    each: int = 1
    """How much one call counts for."""
    over_http: bool = False


SDK = {rows.MCP: Peer("mcp_host.py", module="mcp_echo", slower=10)}
STREAM = {
    rows.RAW: Peer("python_host.py raw-stream"),
    rows.NODE: Peer("host.js stream"),
    rows.ASYNCIO: Peer("python_host.py asyncio-stream"),
}
ASK = {
    rows.C: Peer("host ask"),
    rows.BARE: Peer("python_host.py trio-ask"),
    rows.NODE: Peer("host.js ask"),
    rows.ASYNCIO: Peer("python_host.py asyncio-ask"),
    **SDK,
    rows.MCP_BOTH: Peer("mcp_host.py", module="mcp_server.py", slower=40),
}
SPAWN = {
    rows.C: Peer("host spawn"),
    rows.TRIO: Peer("python_host.py trio-spawn"),
    rows.NODE: Peer("host.js spawn"),
}
NODE_RELAY = {rows.NODE_RELAY: Peer("relay.js", listens=True)}
SOCKET = {rows.RELAY: Peer("trio_listener.py relay", listens=True), **NODE_RELAY, **SDK}
PLAIN = {rows.PLAIN: Peer("trio_listener.py app", listens=True)}

native, primes, mcp_server = Workshop.native, Workshop.primes, Workshop.mcp_server
hosted = partial(Work, document=mcp_server, peers=SDK)
over_socket = partial(Work, document=primes, peers=SOCKET, call=sockets.ask)
over_http = partial(Work, document=primes, peers=PLAIN, over_http=True)
DELIVERIES = sockets.CLIENTS * sockets.EVENTS

WORKS: dict[str, tuple[Work, ...]] = {
    "stream": (Work(rows.STREAM, "events", native, STREAM, op="stream"),),
    "invoke": (
        Work(rows.INVOKE_ONE, "sequential", primes, ASK),
        Work(rows.INVOKE_MANY, "concurrent", primes, ASK, window=MANY),
    ),
    "relayed": (Work(rows.RELAYED, "events", native, NODE_RELAY, call=sockets.listen),),
    "socket": (
        over_socket(rows.SOCKET_ONE, "sequential"),
        over_socket(rows.SOCKET_MANY, "concurrent", window=MANY),
    ),
    "hosted": (
        hosted(rows.HOSTED_ONE, "sequential"),
        hosted(rows.HOSTED_MANY, "concurrent", window=MANY),
    ),
    "http": (
        over_http(rows.HTTP_INVOKE, "sequential", call=sockets.rest),
        over_http(rows.WS_INVOKE, "sequential", call=sockets.websocket),
        over_http(rows.SSE_FAN_OUT, "publications", call=sockets.fan_out, each=DELIVERIES),
    ),
    "tool": (Work(rows.TOOL, "spawns", Workshop.tool, SPAWN, op="run"),),
}
"""By scene."""


def invoke(workshop: Workshop) -> list[Sample]:
    """Measure the calls in process, and how many of them took the short way."""
    workshop.calls = workshop.long_ways = 0
    samples = side_by_side(workshop, WORKS["invoke"])
    short_ways = 100 * (1 - workshop.long_ways / workshop.calls)
    return [*samples, rows.SHORT_WAY.figure(OURS, short_ways)]


def side_by_side(workshop: Workshop, works: Iterable[Work]) -> list[Sample]:
    """Measure rows, each peer right beside ours; one that is not installed is left out."""
    samples: list[Sample] = []
    for work in works:
        count = getattr(workshop.sizes, work.times)
        with pinned(work.row):
            ours = _in_process if work.call is None else _outside
            samples.append(work.row.sample(OURS, count * work.each, ours(workshop, work, count)))
            for name, peer in work.peers.items():
                words = workshop.program(peer.program)
                beside = _listening if peer.listens else _by_itself
                samples += [beside(workshop, work, name, words, count)] if words else []
    return samples


def _in_process(workshop: Workshop, work: Work, count: int) -> Cost:
    document = work.document(workshop)

    async def some(kernel: Kernel, count: int) -> Cost:
        if work.op == "stream":
            return await listen(kernel, count)
        return await ask(kernel, document["name"], work.op, count, work.window)

    async def measured(kernel: Kernel) -> Cost:
        warm = max(1, count // 4)
        await some(kernel, warm)
        cost = await some(kernel, count)
        workshop.calls += warm + count
        workshop.long_ways += kernel.requests.long_ways
        return cost

    return with_daemon(workshop, measured, document)


class Counting(Client):
    """A client as the faces are one: called back, never waited for."""

    def __init__(self, finished: Callable[[Response], None]) -> None:
        self.events = 0
        self._finished = finished

    def event(self, event: Progress, line: bytes | None) -> None:
        del event, line
        self.events += 1

    def finished(self, response: Response) -> None:
        self._finished(response)


async def ask(kernel: Kernel, module: str, op: str, count: int = 1, window: int = 1) -> Cost:
    """Invoke `count` times, `window` calls open at once, and return what that took."""
    return await _invoke(kernel, module, {"op": op, "args": {"n": 1}}, count, window)


async def listen(kernel: Kernel, count: int, op: str = "stream", **more: Any) -> Cost:
    """Have `native` tell `count` events by an op, and return what that took."""
    content = {"op": op, "args": {"n": count}, "timeout_s": 600, **more}
    return await _invoke(kernel, "native", content, 1, 1, events=count)


async def _invoke(
    kernel: Kernel,
    module: str,
    content: dict[str, Any],
    count: int,
    window: int,
    *,
    events: int = 0,
) -> Cost:
    ended = trio.Event()
    sent = answered = 0

    def submit() -> None:
        nonlocal sent
        sent += 1
        kernel.requests.invoke(SUPERVISOR, module, content, client)

    def finished(response: Response) -> None:
        nonlocal answered
        assert response.ok, response
        answered += 1
        if sent < count:
            submit()
        elif answered == count:
            ended.set()

    client = Counting(finished)
    begun = now()
    for _ in range(min(window, count)):
        submit()
    await ended.wait()
    cost = since(begun)
    assert client.events == events, client.events
    return cost


def _outside(workshop: Workshop, work: Work, count: int) -> Cost:
    documents = [work.document(workshop), *([workshop.agent()] if work.over_http else [])]
    stdiod = Measured(workshop, *documents)
    path = stdiod.socket
    try:
        if work.over_http:
            stdiod.up("--http", "sock")
            stdiod.run("session", "new", "--id", "s", "--agent", "agent")
            path = path.with_name("http.sock")
        else:
            stdiod.up()
        return _called(work, path, stdiod.pid(), count)
    finally:
        stdiod.end()


def _called(work: Work, path: Path, pid: int, count: int) -> Cost:
    """Ask the process that listens at a path, warmed up; the CPU time is that process's."""
    assert work.call is not None
    work.call(path, max(1, count // 4), work.window)
    process = psutil.Process(pid)
    used_ns = sum(cpu_ns(process).values())
    took_s = work.call(path, count, work.window)
    return Cost(took_s, (sum(cpu_ns(process).values()) - used_ns) / 1e9)


def _by_itself(workshop: Workshop, work: Work, name: str, words: list[str], count: int) -> Sample:
    """Have a peer do the work."""
    peer, module = work.peers[name], work.document(workshop)["transport"]["command"]
    if peer.module:
        module = workshop.program(peer.module)
    count = max(count // peer.slower, work.window)
    command = [*words, str(count), str(work.window), *module]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=COMMAND_WITHIN_S
        )
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.strip()]
        last = said[-1] if said else "it said nothing"
        return work.row.failure(name, f"ended with {error.returncode}: {last}")
    except subprocess.TimeoutExpired:
        return work.row.failure(name, f"did not end in {COMMAND_WITHIN_S:.0f} s")
    return work.row.sample(name, count, Cost(*map(float, done.stdout.split())))


def _listening(workshop: Workshop, work: Work, name: str, words: list[str], count: int) -> Sample:
    """Have a peer listen in our place, and ask it."""
    path, pipe = workshop.new_folder() / "socket", subprocess.PIPE
    module = work.document(workshop)["transport"]["command"]
    with subprocess.Popen([*words, str(path), *module], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                return work.row.failure(name, "did not start")
            cost = _called(work, path, process.pid, count)
        finally:
            process.stdin.close()
    return work.row.sample(name, count * work.each, cost)


def tools(workshop: Workshop) -> list[Sample]:
    """Measure the native tool back to back beside its peers, and alone in two containments."""
    samples = side_by_side(workshop, WORKS["tool"])

    async def alone(kernel: Kernel) -> Cost:
        await ask(kernel, "done", "run", 2)
        costs: list[Cost] = []
        for _ in range(workshop.sizes.spawns):
            await trio.sleep(APART_S)
            costs.append(await ask(kernel, "done", "run"))
        return Cost(*map(median, zip(*costs, strict=True)))

    for name, containment in ((OURS, None), (rows.BELOW_CGROUPS, "subreaper")):
        cost = with_daemon(workshop, alone, workshop.tool(), containment=containment)
        samples.append(rows.LONE_TOOL.sample(name, 1, cost))
    return samples


def warm(workshop: Workshop) -> list[Sample]:
    """Run a tool in Python cold and warm in turn, with and without its interpreter's shutdown."""
    samples: list[Sample] = []
    for row, words in ((rows.WARM, ["quick"]), (rows.WARM_SHUTDOWN, [])):
        took_s: dict[str, list[float]] = {OURS: [], rows.COLD: []}

        async def in_turn(kernel: Kernel, took_s: Mapping[str, list[float]] = took_s) -> None:
            for _ in range(workshop.sizes.warm):
                for name, module in ((OURS, "warm"), (rows.COLD, "cold")):
                    # A replacement is to have started by now, and not to do so beside the cold one.
                    await _all_warm()
                    took_s[name].append((await ask(kernel, module, "run")).wall_s)

        documents = [
            workshop.python_tool("warm", *words, warm=KEPT_WARM),
            workshop.python_tool("cold", *words),
        ]
        with_daemon(workshop, in_turn, *documents)
        samples += [row.figure(name, median(found) * 1000) for name, found in took_s.items()]
    return samples


async def _all_warm() -> None:
    """Wait until there are so many processes of the tool, and all wait for their input."""
    with trio.fail_after(READY_WITHIN_S):
        before: Mapping[str, int] = {}
        while True:
            tools = [one for one in psutil.Process().children(recursive=True) if _is_tool(one)]
            asleep = len(tools) >= KEPT_WARM and all(map(_sleeps, tools))
            used = cpu_ns(*tools) if asleep else {}
            if used and used == before:
                return
            before = used
            await trio.sleep(LOOK_EVERY_S)


def _is_tool(process: psutil.Process) -> bool:
    try:
        return str(PROGRAMS / "tool.py") in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _sleeps(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_SLEEPING)
    except psutil.NoSuchProcess:
        return False
