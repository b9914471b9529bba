"""What is measured and what it has to reach: the rows of docs/benchmarks.md, as data.

A row has samples of ours and of its peers, one of each per round. A target holds the median of the
rounds' ratios ours/peer (both sides of a ratio were measured next to each other), or the median of
ours alone where the unit says it all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

OURS = "stdiod"
RAW = "raw pipe + orjson.loads"
C = "C"
NODE = "Node"
ASYNCIO = "asyncio"
TRIO = "trio.run_process"
BARE = "bare trio"
RELAY = "trio relay"
NODE_RELAY = "Node relay"
MCP = "MCP SDK"
MCP_BOTH = "MCP SDK, both ends"
PLAIN = "plain app"
COLD = "stdiod, cold"
BELOW_CGROUPS = "stdiod, subreaper"
SUPERVISORD = "supervisord"
CIRCUS = "circus"
S6 = "s6"


class Cost(NamedTuple):
    """What something took, by the clock and of the CPU time of whoever did it."""

    wall_s: float
    cpu_s: float


def now() -> Cost:
    """Return the time and the CPU time of this process, for `since`."""
    return Cost(time.perf_counter(), time.process_time())


def since(begun: Cost) -> Cost:
    """Return what has been taken since."""
    wall_s, cpu_s = now()
    return Cost(wall_s - begun.wall_s, cpu_s - begun.cpu_s)


class Sample(NamedTuple):
    """One figure of one round, or why there is none."""

    row: str
    contender: str
    value: float | None
    why: str = ""
    cpu_us: float | None = None
    """What one call took of the contender's own CPU time, without its module's."""


class Target(NamedTuple):
    """A bound on the ratio to a peer, or on our own figure if there is no peer."""

    bound: float
    at_least: bool
    peer: str | None = None
    of_cpu: bool = False
    """Whether it holds the ratio of the CPU times of a call, not that of the figures."""

    def __str__(self) -> str:
        """Say it in a few words."""
        words = f"at {'least' if self.at_least else 'most'} {self.bound:g}"
        if self.peer is None:
            return words
        return f"{words} x {self.peer}{', CPU' if self.of_cpu else ''}"


def least(bound: float, peer: str | None = None) -> Target:
    """Return a target below which ours falls short."""
    return Target(bound, at_least=True, peer=peer)


def most(bound: float, peer: str | None = None, *, of_cpu: bool = False) -> Target:
    """Return a target above which ours falls short."""
    return Target(bound, at_least=False, peer=peer, of_cpu=of_cpu)


@dataclass(frozen=True)
class Row:
    """One line of the table; `contenders` are all that could be in it, ours first."""

    title: str
    unit: str
    targets: tuple[Target, ...] = ()
    contenders: tuple[str, ...] = (OURS,)
    note: str = ""
    """What one has to know of the figure, as Markdown."""
    one_cpu: bool = False
    """Whether all of a party share a CPU, since each side waits for the other in turn."""

    def figure(self, contender: str, value: float) -> Sample:
        """Return a figure in the row's own unit."""
        return Sample(self.title, contender, value)

    def failure(self, contender: str, why: str) -> Sample:
        """Return why there is no figure."""
        return Sample(self.title, contender, None, why)

    def sample(self, contender: str, count: int, cost: Cost) -> Sample:
        """Return the rate (1/s) of what was done `count` times, or the time of each (ms)."""
        each_s = cost.wall_s / count
        value = 1 / each_s if self.unit.endswith("/s") else each_s * 1000
        return Sample(self.title, contender, value, cpu_us=cost.cpu_s / count * 1e6)


SUPERVISORS = (OURS, SUPERVISORD, CIRCUS, S6)
BARE_NOTE = (
    "`bare trio` writes and reads the same lines on the same event loop as stdiod, and does "
    "nothing else: no deadline, no journal, no supervision."
)
MCP_NOTE = (
    "The MCP SDK's client calls a tool of a server in C, so that only the client is measured; "
    "`both ends` measures it with the SDK's own server."
)

STREAM = Row(
    "event stream of one module, validated, to one subscriber",
    "events/s",
    (least(0.5, RAW),),
    (OURS, RAW, NODE, ASYNCIO),
    "The peers parse each line as JSON and validate nothing.",
)
RELAYED = Row(
    "event stream of one module, to a client over the control socket",
    "events/s",
    (least(0.8, NODE_RELAY),),
    (OURS, NODE_RELAY),
    "Client and daemon are separate processes. The Node relay replaces the daemon, with the same "
    "client and the same module; it parses and encodes each line, and validates nothing.",
)
INVOKE_ONE = Row(
    "invoke, one at a time, in process",
    "calls/s",
    (most(2.0, NODE, of_cpu=True),),
    (OURS, C, BARE, NODE, ASYNCIO, MCP, MCP_BOTH),
    f"The module is native. {BARE_NOTE} {MCP_NOTE}",
    one_cpu=True,
)
INVOKE_MANY = Row(
    "invoke, 64 at a time, in process",
    "calls/s",
    (least(15.0, MCP), least(0.5, NODE)),
    (OURS, C, BARE, NODE, ASYNCIO, MCP, MCP_BOTH),
    "As the row above.",
)
SHORT_WAY = Row(
    "invoke, those on the short way, in process",
    "% of calls",
    (least(100.0),),
    note="The share of the calls of the two rows above that took the short way. All of them are "
    "plain; the long way (`supervisor.kernel.long_way`) is for sessions, gates and host calls.",
)
SOCKET_ONE = Row(
    "invoke, one at a time, over the control socket",
    "calls/s",
    (least(0.5, RELAY),),
    (OURS, RELAY, NODE_RELAY, MCP),
    "Client and daemon are separate processes. A relay replaces the daemon, with the same client "
    "and the same module: the trio relay copies lines without parsing them, the Node relay parses "
    "and encodes each line. The MCP SDK talks to its child directly.",
    one_cpu=True,
)
SOCKET_MANY = Row(
    "invoke, 64 at a time, over the control socket",
    "calls/s",
    (least(0.4, NODE_RELAY), least(5.0, MCP)),
    (OURS, RELAY, NODE_RELAY, MCP),
    "As the row above.",
)
HOSTED_NOTE = (
    "The same server in C is hosted by stdiod, and is the child of the MCP SDK's client. In both "
    "cases the caller runs in the process that talks to the server."
)
HOSTED_ONE = Row(
    "hosted MCP server, `tools/call`, one at a time",
    "calls/s",
    (least(0.8, MCP),),
    (OURS, MCP),
    HOSTED_NOTE,
    one_cpu=True,
)
HOSTED_MANY = Row(
    "hosted MCP server, `tools/call`, 64 at a time",
    "calls/s",
    (least(0.8, MCP),),
    (OURS, MCP),
    "As the row above.",
)
PLAIN_NOTE = (
    "The plain app uses the same h11, wsproto and trio, and answers a constant: it reads no JSON, "
    "identifies no caller, and calls no module."
)
HTTP_INVOKE = Row(
    "invoke, one at a time, over HTTP",
    "calls/s",
    (least(0.5, PLAIN),),
    (OURS, PLAIN),
    PLAIN_NOTE,
    one_cpu=True,
)
WS_INVOKE = Row(
    "invoke, one at a time, over WebSocket",
    "calls/s",
    (least(0.5, PLAIN),),
    (OURS, PLAIN),
    "As the row above.",
    one_cpu=True,
)
SSE_FAN_OUT = Row(
    "events of a session, told to 100 clients as SSE",
    "events/s",
    (least(0.5, PLAIN),),
    (OURS, PLAIN),
    "An event counts once for each client. The plain app writes prepared bytes.",
)
TOOL = Row(
    "per-invocation native tool",
    "ms",
    (most(2.5, C),),
    (OURS, C, TRIO, NODE),
    "C is a loop around `posix_spawn`; Node is `child_process.spawn`.",
)
LONE_TOOL = Row(
    "per-invocation native tool, 60 ms apart",
    "ms",
    (most(1.2, BELOW_CGROUPS), most(3.5)),
    (OURS, BELOW_CGROUPS),
    "The median of calls that come alone. Both parties are the same daemon: one uses the best "
    "containment available, the other `subreaper`, which moves no process into a cgroup.",
)
WARM = Row(
    "per-invocation Python tool, warm",
    "ms",
    (most(0.1, COLD),),
    (OURS, COLD),
    "Warm, each invocation finds a process that was started before; cold, it starts one. The tool "
    "ends with `os._exit`.",
)
WARM_SHUTDOWN = Row(
    "per-invocation Python tool, warm, with the interpreter's shutdown",
    "ms",
    (most(0.25, COLD),),
    (OURS, COLD),
    "As the row above, but the tool ends without `os._exit`. A call counts as answered once its "
    "process is gone, so the interpreter's shutdown is part of its time, warm or cold.",
)
CRASH = Row(
    "crash (SIGKILL) to running again",
    "ms",
    (most(8.0),),
    SUPERVISORS,
    "For stdiod, until the module is *ready* again (it has answered health and describe); for the "
    "others, until the next process does its first action. Each process had run for more than a "
    "second, and each supervisor has its default settings.",
)
FLEET_START = Row(
    "200 persistent modules: start",
    "s",
    (most(1.0),),
    SUPERVISORS,
    "For stdiod, `stdiod up` until all modules are ready; for the others, until all processes run.",
)
FLEET_IDLE = Row(
    "200 persistent modules: idle CPU",
    "%",
    (most(0.4),),
    SUPERVISORS,
    "CPU time of the supervisor and its helpers, without the modules, in percent of one core.",
)
FLEET_MEMORY = Row(
    "200 persistent modules: memory (PSS)",
    "MB",
    (most(50.0),),
    SUPERVISORS,
    "Memory of the supervisor and its helpers, without the modules.",
)
FLEET_STOP = Row(
    "200 persistent modules: stop",
    "s",
    (most(0.6),),
    SUPERVISORS,
    "Until the supervisor and all processes are gone; for stdiod, by `stdiod down`.",
)
VERSION = Row("`stdiod --version`", "ms", (most(40.0),))
VERSION_CPU = Row("`stdiod --version`: CPU", "ms")
STATUS = Row("`stdiod status`", "ms", (most(130.0),))
STATUS_CPU = Row(
    "`stdiod status`: CPU", "ms", note="CPU time of the command, without the daemon's."
)
MCP_ENTRY = Row(
    "`stdiod mcp`: until `initialize` is answered",
    "ms",
    (most(150.0),),
    note="The time from the start of the command by an MCP client. The daemon is already running.",
)
MCP_FIRST = Row(
    "`stdiod mcp` without a daemon: until `initialize` is answered",
    "ms",
    note="The command starts the daemon first.",
)
PATCHES = Row("state patches of one module, merged in a session, told and durable", "patches/s")
PATCHES_MEMORY = Row("state patches: memory that they leave", "MB", (most(8.0),))
PATCHES_SIZE = Row("state patches: those of a round in the journal", "MB")
PATCHES_READ = Row("state patches: read back with `events`", "entries/s")
JOURNAL_WRITE = Row("journal: entries written, durable", "entries/s")
JOURNAL_READ = Row("journal: the same read back with `events`", "entries/s")
JOURNAL_SIZE = Row("journal: 1,000 of them on disk", "MB")
JOURNAL_MEMORY = Row("journal: memory grown meanwhile", "MB", (most(64.0),))

ROWS = tuple(row for row in tuple(vars().values()) if isinstance(row, Row))
"""In the order in which the page shows them."""
