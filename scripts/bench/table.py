"""The table: what is measured, beside whom, and what it has to reach.

A bound is on the median of the rounds' ratios ours/peer (both sides of a ratio were measured next
to each other), or on the median of ours alone where the unit says it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from scripts.bench import loads, supervisors
from scripts.bench.peers import ASYNCIO, MCP, NODE, C
from scripts.bench.scene import (
    MEGABYTES,
    OURS,
    Bound,
    InProcess,
    Listener,
    Module,
    OurDaemon,
    Party,
    Program,
    Row,
    Scene,
    least,
    most,
    native,
    row,
    single,
)

RAW: Final = "raw pipe + orjson.loads"
TRIO: Final = "trio.run_process"
BARE: Final = "bare trio"
RELAY: Final = "trio relay"
NODE_RELAY: Final = "Node relay"
MCP_BOTH: Final = "MCP SDK, both ends"
PLAIN: Final = "Starlette on uvicorn"
QUIET: Final = "stdiod, no flood"
WITH_HTTP: Final = "stdiod, `--http sock`"
INTERPRETER: Final = "`python -c pass`"
COLD: Final = "stdiod, cold"
BELOW_CGROUPS: Final = "stdiod, subreaper"

MANY: Final = 64
"""So many calls are open at once."""

NATIVE = native("native")
AGENT = native("agent", kind="agent")
PRIMES = Module("primes", "primes", supervision={"concurrency": MANY})
neighbour, our_fleet = supervisors.neighbour, supervisors.our_fleet
alone = partial(neighbour, http=False, share=1.0)
SERVER = Module("server", "mcp_echo", protocol="mcp", supervision={"concurrency": MANY})
TOOL = Module("done", "done", protocol="narratoria")
SLOW_TOOL = Module("tool", "tool.py", protocol="narratoria")
QUICK_TOOL = SLOW_TOOL._replace(program="tool.py quick")
WARM = {"warm": 2}
IN_A_SESSION = ("session", "new", "--id", "s", "--agent", "agent")
FILE = Module("file", "file.py", protocol="narratoria")
HANDED_OVER = ("invoke", "file", "run", "mb={megabytes}")
VICTIMS = tuple(native(f"victim-{number}") for number in range(20))

SDK: dict[str, Party] = {MCP: Program("mcp_host.py", SERVER, slower=10)}
HOSTS: dict[str, Party] = {
    OURS: InProcess("echo"),
    C: Program("host ask"),
    BARE: Program("python_host.py trio-ask"),
    NODE: Program("host.js ask"),
    ASYNCIO: Program("python_host.py asyncio-ask"),
    **SDK,
    MCP_BOTH: Program("mcp_host.py", Module("server", "mcp_server.py"), slower=40),
}
OVER_SOCKET: dict[str, Party] = {
    OURS: OurDaemon(),
    RELAY: Listener("trio_relay.py"),
    NODE_RELAY: Listener("relay.js"),
    **SDK,
}
HOSTED: dict[str, Party] = {OURS: InProcess("echo"), **SDK}
OVER_HTTP: dict[str, Party] = {OURS: OurDaemon(http=True), PLAIN: Listener("http_app.py")}

one_by_one = partial(single, count=5_000, one_cpu=True)


def in_two_ways(
    name: str, title: str, one: Sequence[Bound], many: Sequence[Bound], **how: Any
) -> tuple[Scene, Scene]:
    """Return the scenes of calls that are made one at a time, and 64 at a time."""
    first, second = title.format("one at a time"), title.format("64 at a time")
    return (
        one_by_one(name, first, "calls/s", *one, **how),
        single(name, second, "calls/s", *many, count=20_000, window=MANY, **how),
    )


def while_busy(
    name: str,
    what: str,
    *bounds: Bound,
    parties: Mapping[str, Party],
    modules: tuple[Module, ...],
    worst: str = "99th percentile",
    **how: Any,
) -> Scene:
    """Return the scene of a client of the socket, while others load the daemon."""
    title = f"invoke over the control socket, while {what}"
    rows = (
        row(f"{title}: median", "ms", *(bound for bound in bounds if bound.peer)),
        row(f"{title}: {worst}", "ms", *(bound for bound in bounds if not bound.peer)),
    )
    return Scene(name, rows, parties, modules, window=MANY, **how)


def fleet_rows(how: str, memory: Bound, gateway: Bound | None = None) -> tuple[Row, ...]:
    """Return what `our_fleet` measures of its 200 modules."""
    title = f"200 persistent modules{how}:"
    return (
        row(f"{title} start", "s", most(1.0)),
        row(f"{title} idle CPU", "%", most(0.4)),
        row(f"{title} memory (PSS)", "MB", memory),
        *([row(f"{title} the gateway's memory (PSS)", "MB", gateway)] if gateway else ()),
        row(f"{title} stop", "s", most(0.6)),
    )


def growing(family: str, *sizes: int, lazy: bool = False) -> Scene:
    """Return the scene of daemons of so many modules."""
    measures = {
        "start (`stdiod up`)": "s",
        "memory of the daemon and its guardian (PSS)": "MB",
        "idle CPU": "%",
        **({"first invoke of a lazy module, which starts it": "ms"} if lazy else {}),
        "invoke of one module, median": "ms",
        "reload after one descriptor changed": "s",
        "stop (`stdiod down`)": "s",
    }
    rows = tuple(row(f"{family}: {measure}", unit) for measure, unit in measures.items())
    daemons = {
        f"{OURS}, {size:,}": partial(supervisors.grown, size=size, lazy=lazy) for size in sizes
    }
    return Scene("scale", rows, daemons, grows=True, once=True)


SCENES: Final = (
    single(
        "stream",
        "event stream of one module, validated, to one subscriber",
        "events/s",
        least(0.5, RAW),
        parties={
            OURS: InProcess("stream"),
            RAW: Program("python_host.py raw-stream"),
            NODE: Program("host.js stream"),
            ASYNCIO: Program("python_host.py asyncio-stream"),
        },
        modules=(NATIVE,),
        count=400_000,
    ),
    single(
        "relayed",
        "event stream of one module, to a client over the control socket",
        "events/s",
        least(0.8, NODE_RELAY),
        parties={OURS: OurDaemon(), NODE_RELAY: Listener("relay.js")},
        modules=(NATIVE,),
        load=loads.listen,
        count=400_000,
    ),
    *in_two_ways(
        "invoke",
        "invoke, {}, in process",
        [most(2.0, NODE, of_cpu=True)],
        [least(15.0, MCP), least(0.5, NODE)],
        parties=HOSTS,
        modules=(PRIMES,),
    ),
    single(
        "invoke",
        "invoke, those on the short way, in process",
        "% of calls",
        least(100.0),
        parties={OURS: InProcess("short-way")},
        modules=(PRIMES,),
        count=5_000,
        window=MANY,
    ),
    *in_two_ways(
        "socket",
        "invoke, {}, over the control socket",
        [least(0.5, RELAY)],
        [least(0.4, NODE_RELAY), least(5.0, MCP)],
        parties=OVER_SOCKET,
        modules=(PRIMES,),
        load=loads.ask,
    ),
    *in_two_ways(
        "hosted",
        "hosted MCP server, `tools/call`, {}",
        [least(0.8, MCP)],
        [least(0.8, MCP)],
        parties=HOSTED,
        modules=(SERVER,),
    ),
    *in_two_ways(
        "http",
        "invoke, {}, over HTTP",
        [least(0.35, PLAIN)],
        [least(0.5, PLAIN)],
        parties=OVER_HTTP,
        modules=(PRIMES, AGENT),
        load=loads.http,
    ),
    one_by_one(
        "http",
        "invoke, one at a time, over WebSocket",
        "calls/s",
        least(0.5, PLAIN),
        parties=OVER_HTTP,
        modules=(PRIMES, AGENT),
        load=loads.websocket,
    ),
    single(
        "http",
        "events of a session, told to 100 clients as SSE",
        "events/s",
        least(0.5, PLAIN),
        parties=OVER_HTTP,
        modules=(PRIMES, AGENT),
        load=loads.fan_out,
        count=50,
        each=loads.DELIVERIES,
        first=IN_A_SESSION,
    ),
    single(
        "asset",
        "an asset of 1 GB over HTTP",
        "MB/s",
        parties=OVER_HTTP,
        modules=(FILE,),
        load=loads.download,
        count=MEGABYTES,
        first=HANDED_OVER,
    ),
    while_busy(
        "neighbour",
        "64 HTTP clients flood",
        most(7.0, QUIET),
        parties={OURS: partial(neighbour, busy=loads.http), QUIET: neighbour},
        modules=(PRIMES, NATIVE),
        count=4_000,
    ),
    while_busy(
        "asset",
        "an asset of 1 GB is read over HTTP",
        most(7.0, QUIET),
        parties={OURS: partial(neighbour, busy=loads.download), QUIET: neighbour},
        modules=(FILE, NATIVE),
        count=4_000,
        first=HANDED_OVER,
    ),
    while_busy(
        "crowd",
        "64 clients of the socket flood",
        most(50.0),
        parties={OURS: partial(alone, busy=loads.crowd), QUIET: alone},
        modules=(PRIMES, NATIVE),
        worst="longest",
        count=1_000,
    ),
    single(
        "tool",
        "per-invocation native tool",
        "ms",
        most(2.5, C),
        parties={
            OURS: InProcess("run"),
            C: Program("host spawn"),
            TRIO: Program("python_host.py trio-spawn"),
            NODE: Program("host.js spawn"),
        },
        modules=(TOOL,),
        count=150,
    ),
    single(
        "tool",
        "per-invocation native tool, 60 ms apart",
        "ms",
        most(1.2, BELOW_CGROUPS),
        most(3.5),
        parties={
            OURS: InProcess("alone"),
            BELOW_CGROUPS: InProcess("alone", containment="subreaper"),
        },
        modules=(TOOL,),
        count=150,
    ),
    single(
        "warm",
        "per-invocation Python tool, warm",
        "ms",
        most(0.1, COLD),
        parties={
            OURS: InProcess("warm", (QUICK_TOOL._replace(supervision=WARM),)),
            COLD: InProcess("warm", (QUICK_TOOL,)),
        },
        count=10,
    ),
    single(
        "warm",
        "per-invocation Python tool, warm, with the interpreter's shutdown",
        "ms",
        most(0.25, COLD),
        parties={
            OURS: InProcess("warm", (SLOW_TOOL._replace(supervision=WARM),)),
            COLD: InProcess("warm", (SLOW_TOOL,)),
        },
        count=10,
    ),
    single(
        "crash",
        "crash (SIGKILL) to running again",
        "ms",
        most(8.0),
        parties={OURS: InProcess("crash", VICTIMS), **supervisors.CRASH},
        count=2,
    ),
    Scene("fleet", fleet_rows("", most(50.0)), supervisors.FLEET, count=200),
    Scene(
        "inputs",
        fleet_rows(" with `inputs`", most(48.0)),
        {OURS: partial(our_fleet, described=True)},
        count=200,
    ),
    Scene(
        "gateway",
        fleet_rows(" with `--http sock`", most(50.0), gateway=most(35.0)),
        {OURS: partial(our_fleet, options=("--http", "sock"))},
        count=200,
    ),
    Scene(
        "command",
        (
            row("`stdiod --version`", "ms", most(40.0)),
            row("`stdiod status`", "ms", most(130.0)),
            row("`stdiod mcp`: until `initialize` is answered", "ms", most(150.0)),
            row("`stdiod mcp` without a daemon: until `initialize` is answered", "ms"),
            row("`stdiod mcp`: memory (PSS), once `initialize` is answered", "MB", most(10.0)),
        ),
        {OURS: supervisors.command},
        (SLOW_TOOL._replace(name="one"), SLOW_TOOL._replace(name="two")),
        count=10,
    ),
    single(
        "up",
        "`stdiod up` with two modules",
        "ms",
        most(1.0, WITH_HTTP),
        parties={
            OURS: supervisors.up,
            WITH_HTTP: partial(supervisors.up, options=("--http", "sock")),
            INTERPRETER: supervisors.interpreter,
        },
        modules=(SLOW_TOOL._replace(name="one"), SLOW_TOOL._replace(name="two")),
        count=5,
    ),
    Scene(
        "clients",
        (
            row("20 MCP clients of 40 servers: processes", "processes"),
            row("20 MCP clients of 40 servers: memory of all (PSS)", "MB", most(720.0)),
            row("20 MCP clients of 40 servers: until each has all tools", "s"),
            row("20 MCP clients of 40 servers: CPU time until then", "s"),
            row("20 MCP clients of 40 servers: until one more has them", "ms"),
        ),
        {
            OURS: partial(supervisors.mcp_clients, is_shared=True),
            "servers of their own": partial(supervisors.mcp_clients, is_shared=False),
        },
        supervisors.SERVERS,
        count=supervisors.CLIENTS,
        once=True,
    ),
    Scene(
        "patch",
        (
            row("state patches of one module, merged in a session, told and durable", "patches/s"),
            row("state patches: memory that they leave", "MB", most(8.0)),
            row("state patches: those of a round in the journal", "MB"),
            row("state patches: read back with `events`", "entries/s"),
        ),
        {OURS: InProcess("patch")},
        (NATIVE,),
        count=50_000,
    ),
    Scene(
        "journal",
        (
            row("journal: entries written, durable", "entries/s"),
            row("journal: the same read back with `events`", "entries/s"),
            row("journal: 1,000 of them on disk", "MB"),
            row("journal: memory grown meanwhile", "MB", most(64.0)),
        ),
        {OURS: InProcess("journal")},
        count=100_000,
        once=True,
    ),
    growing("persistent modules, all running", 250, 500, 1_000),
    growing("descriptors of lazy modules in one directory", 2_500, 5_000, 10_000, lazy=True),
)
