"""The faults: each is one host's turn, and comes to a few words."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from scripts.compare_mcp.hosts import CallError, Host
from scripts.compare_mcp.server import BIG

ANSWER_S = 20.0
"""A call that has no answer by then is called a hang."""

NOTICED_S = 90.0
"""For a host to notice that its server is stopped."""

NEXT_S = 1.0
"""Between a crash and the next call: a call at once would meet the dying process with all."""

TIMES = 5
"""How often the large result is asked for."""

SETTLED_S = 5.0
"""After the end of a host, for what it has left to end by itself."""


class Fault(NamedTuple):
    """A row of the table; the server is started with the `flags`."""

    key: str
    title: str
    scene: Callable[[Host], str]
    flags: tuple[str, ...] = ()


class Told(NamedTuple):
    """What a call came to: a text, or why there is none."""

    text: str | None
    why: str = ""

    @property
    def is_hang(self) -> bool:
        """Whether nothing came at all."""
        return self.why.startswith("no answer")


def processes(host: Host, role: str | None = None) -> list[psutil.Process]:
    """Return those of the server's processes that live, of one role or all."""
    found = []
    for path in host.births.glob("*[0-9]"):
        if role in (None, path.read_text(encoding="utf-8")):
            try:
                one = psutil.Process(int(path.name))
                if one.status() != psutil.STATUS_ZOMBIE and str(host.births) in one.cmdline():
                    found.append(one)
            except psutil.NoSuchProcess:
                pass
    return found


def tried(
    call: Callable[[str, float], str], tool: str = "echo", within_s: float = ANSWER_S
) -> Told:
    """Make a call; whatever it comes to is told."""
    try:
        return Told(call(tool, within_s))
    except TimeoutError:
        return Told(None, f"no answer in {within_s:.0f} s")
    except (CallError, OSError) as error:
        return Told(None, str(error))


def tried_as_new(host: Host, within_s: float = ANSWER_S) -> Told:
    """Make a call as a client that has just come."""

    def call(tool: str, seconds: float) -> str:
        host.connect()
        return host.call(tool, seconds)

    return tried(call, within_s=within_s)


def kill(host: Host, number: signal.Signals) -> None:
    """Send the server itself a signal."""
    for one in processes(host, "server"):
        one.send_signal(number)


def crash(host: Host) -> str:
    """Kill the server between two calls."""
    kill(host, signal.SIGKILL)
    time.sleep(NEXT_S)
    told = tried(host.call)
    if told.text is not None:
        return "served"
    then = "is" if tried_as_new(host).text is not None else "is not"
    return f"{'hangs' if told.is_hang else 'fails'}; a new client {then} served"


def cause(host: Host) -> str:
    """Have the server die in a call, and look what the caller is told."""
    told = tried(host.call, "die")
    assert told.text is None
    if told.is_hang:
        return told.why
    known = []
    if '"signal": 9' in told.why or "SIGKILL" in told.why:
        known.append("the signal")
    if "the reason stands here" in told.why:
        known.append("its last words on stderr")
    return " and ".join(known) or f"that it failed: `{told.why:.60}`"


def stopped(host: Host) -> str:
    """Stop the server with SIGSTOP, and call until a call is served."""
    kill(host, signal.SIGSTOP)
    began_s = time.monotonic()
    while (left_s := began_s + NOTICED_S - time.monotonic()) > 0:
        within_s = min(ANSWER_S, left_s)
        if tried(host.call, within_s=within_s).text or tried_as_new(host, within_s).text:
            return f"served again after {time.monotonic() - began_s:.0f} s"
        time.sleep(0.2)
    return f"not served in {NOTICED_S:.0f} s"


def killed(host: Host) -> str:
    """Kill the host, and count what is left."""
    before = len(processes(host))
    assert host.process is not None
    host.process.kill()
    host.process.wait()
    until_s = time.monotonic() + SETTLED_S
    while processes(host) and time.monotonic() < until_s:
        time.sleep(0.05)
    left = sorted(role for role in ("server", "child", "escapee") if processes(host, role))
    return f"{len(processes(host))} of {before}{': ' if left else ''}{', '.join(left)}"


def big(host: Host) -> str:
    """Call for 5 MB of text, and again."""
    took_s = []
    for _ in range(TIMES):
        began_s = time.monotonic()
        told = tried(host.call, "big")
        took_s.append(time.monotonic() - began_s)
        if told.text is None:
            return told.why if told.is_hang else f"fails: `{told.why:.60}`"
        if len(told.text) != BIG:
            return "cut short"
    return f"served, {statistics.median(took_s) * 1000:.0f} ms (median of {TIMES})"


def newer(host: Host) -> str:
    """Call as a client of the newer revision; the server is of the older one."""
    told = tried(host.call_newer)
    if told.text is not None:
        return "served"
    return told.why if told.is_hang else f"refused: `{told.why:.60}`"


def sweep(host: Host) -> None:
    """End whatever is left."""
    for one in processes(host):
        one.send_signal(signal.SIGCONT)
        one.kill()


CHILDREN = ("children",)

BY_KEY = {
    one.key: one
    for one in (
        Fault("crash", "server killed between two calls: the next call", crash),
        Fault("held", "the same, of a server whose child keeps its stdout open", crash, CHILDREN),
        Fault("cause", "server dies in a call: what the caller is told of it", cause),
        Fault("stopped", "server stopped with SIGSTOP, calls go on", stopped),
        Fault(
            "killed",
            "host killed with `kill -9`: left after 5 s of the server and two stubborn children",
            killed,
            CHILDREN,
        ),
        Fault("big", "a result of 5 MB", big),
        Fault("newer", "server of the older era, client of the newer (2026-07-28)", newer),
    )
}
