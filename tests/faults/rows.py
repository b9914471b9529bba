"""The faults that every serious host survives, and what a test must see of each.

A test that holds a row carries its number: `@pytest.mark.fault(6)`. `test_rows.py` holds this table
and the markers to each other; docs/faults.md tells the same to users.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]


class Row(NamedTuple):
    """A fault."""

    number: int
    fault: str
    holds: str
    awaits: str = ""
    """What has to be built before a test can hold it."""


ROWS = (
    Row(
        1,
        "a grandchild inherits stdout or stderr and the leader exits",
        "the exit is seen at once, the request settles, the grandchild is gone",
    ),
    Row(
        2,
        "the daemon is killed with invocations in flight",
        "every tree is gone, the next daemon finds no orphan and starts no second copy",
    ),
    Row(
        3,
        "10 MB on stderr before the first line on stdout",
        "no deadlock, the tail is kept, what was left out is counted",
    ),
    Row(
        4,
        "death before the answer",
        "every open request settles once, with code, reason and evidence",
    ),
    Row(5, "no answer, ever", "`timeout`; the slot serves again; late lines are counted"),
    Row(6, "SIGTERM is ignored", "TERM and CONT, then KILL of the whole containment; bounded"),
    Row(
        7,
        "`setsid`, double fork",
        "contained, else the survivor is in the report",
    ),
    Row(
        8, "a banner or a stray print on stdout", "quarantined or a clear error; never out of step"
    ),
    Row(9, "a line of 1 GB; lines around the limit", "bounded memory; the next line is parsed"),
    Row(10, "a crash loop at start", "backoff with jitter, then `failed`; the daemon stays idle"),
    Row(11, "a crash loop after ready", "counted; only sustained health resets"),
    Row(
        12, "start, stop, reload and remove at once", "one incarnation; stale exits change nothing"
    ),
    Row(13, "lines that are no protocol, of every kind", "classified by name; the stream lives"),
    Row(14, "a last line without a newline", "whole: accepted; cut: `truncated_line`"),
    Row(
        15,
        "stdin is closed, or never read",
        "no crash; a deadline; a half-written line poisons that instance only",
    ),
    Row(16, "pipes, `done` and exit in any order", "each the verdict of docs/protocol.md"),
    Row(
        17,
        "a memory limit is passed",
        "`oom` only with evidence; the grandchild's memory is seen too",
    ),
    Row(18, "SIGSTOP", "health is `timeout`; stop works; a later SIGCONT raises no ghost"),
    Row(
        19,
        "a million events for a slow reader",
        "bounded bytes; no event and no answer is lost; others are served",
    ),
    Row(
        20,
        "the command cannot be started, in each way there is",
        "words; `unreachable`; a failed respawn keeps supervision",
    ),
    Row(
        21,
        "no descriptor, no disk space for the daemon",
        "degraded, not dead; no descriptor growth",
    ),
    Row(22, "descriptors in every state", "last good kept; only what changed restarts"),
    Row(23, "the wall clock jumps", "timers are monotonic; no restart storm"),
    Row(24, "a pid is used again", "killed before it is reaped, never signalled after"),
    Row(
        25,
        "cancellation, signals, a closed terminal, PID 1",
        "no leak; a bounded end; zombies are reaped",
    ),
    Row(
        26,
        "a tracer holds a module while it is killed",
        "nobody waits on the event loop; the slot stays taken, the tracer is named",
    ),
    Row(
        27,
        "the main thread of a process ends while others of it run",
        "it is alive: killed, its memory counted, no cgroup left",
    ),
    Row(
        28,
        "the daemon is stopped for seconds",
        "answers that came in time count; nothing is replaced for it; no timer catches up",
    ),
    Row(
        29,
        "requests that take their time to be looked at",
        "nobody but who sent them waits; what cannot be looked at in time is refused in words",
    ),
    Row(
        30,
        "a client that reads no answer, and one whose requests wait with large args",
        "bounded in bytes, per client and in all; each request has its answer",
    ),
    Row(
        31,
        "a thousand idle clients at a limit of as many files; a soft limit below what modules take",
        "modules start, an operator is served; the soft limit is raised, modules get theirs back",
    ),
    Row(
        32,
        "a descriptor is edited to name a program that can't be run, or fails",
        "the one that runs goes on until its successor is ready; a dry run says it before",
    ),
    Row(
        33,
        "terminal escapes, C1 and bidi characters in what a module prints",
        "a terminal sees them escaped, with --json too",
    ),
    Row(
        34,
        "signals blocked and ignored, umask 777, descriptors 0 to 2 closed at the daemon's start",
        "it and its modules are as any other",
    ),
    Row(
        35,
        "a client connects again while the daemon ends",
        "it is refused at once, or told that nothing was begun; never reset",
    ),
    Row(
        36,
        "programs and files on a mount that does not answer, more of them than there are threads",
        "spawns, exits and requests of all others go on; what is stuck is named",
    ),
    Row(
        37,
        "one of two clients of the same module stops reading its stream",
        "the other one's calls go on; the slow one is paused, or ends alone",
    ),
    Row(
        38,
        "MCP and HTTP clients leave waiting requests, files, parked answers and kept events",
        "all of it counts for whoever caused it, and nothing stays of a client that left",
    ),
    Row(
        39,
        "values that are short to write and slow to build",
        "cost is counted, in turns or refused by name; a neighbour waits less than 50 ms",
    ),
    Row(
        40,
        "one principal begins 10,000 sessions, ends 1,001, fills the room for state, registers more"
        " assets than are remembered, opens every subscription",
        "who has most is refused, or loses first; nobody else loses anything, and all find room",
    ),
    Row(
        41,
        "clients begin and leave sessions, streams and subscriptions 64,000 times",
        "what is left holds no reference cycle, so that no collection stops the loop",
    ),
    Row(
        42,
        "a hosted server names a tool, prompt or resource as another module does",
        "who has the name keeps it; the later one is renamed, and that is said",
    ),
    Row(
        43,
        "a journal that was set back, damaged or cut",
        "it is said, and its identity is new, so that followers miss nothing",
    ),
    Row(
        44,
        "a service that answers 1xx without end, or a greeting of TLS that never comes",
        "bounded like a head; ends with words, also while the daemon ends",
    ),
    Row(
        45,
        "an imported file holds secrets, odd names, devices and dangling links",
        "secrets go to a file of mode 0600, and what is no file is refused by name",
        awaits="a test with its number",
    ),
    Row(
        46,
        "a module opens the control socket of its own daemon",
        "it has its own rights there, not its user's",
    ),
    Row(
        47,
        "a SIGHUP in the first moments; a cancel of true; a hidden module in a cause",
        "the daemon lives, ids are compared with their types, a cause names what the reader sees",
    ),
)


@functools.cache
def marked() -> tuple[tuple[int, str], ...]:
    """Find each `@pytest.mark.fault(...)`: a number of it, and the test that carries it.

    The sources are read, so that the answer does not depend on which tests were selected.
    """
    return tuple(_marked())


def _marked() -> Iterator[tuple[int, str]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.fault" not in source:
            continue
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(TESTS).as_posix()}::{function.name}"
                for decorator in function.decorator_list:
                    yield from ((number, where) for number in _numbers(decorator))


def _numbers(decorator: ast.expr) -> Iterator[int]:
    match decorator:
        case ast.Call(func=ast.Attribute(attr="fault"), args=arguments):
            for argument in arguments:
                match argument:
                    case ast.Constant(value=int(number)):
                        yield number
