"""The faults: each is one host's turn, and comes to a few words."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from scripts.compare_mcp.hosts import CallError, Host

ANSWER_S = 20.0
"""A call that has no answer by then is called a hang."""
NOTICED_S = 90.0
NEXT_S = 1.0
"""Between a crash and the next call: a call at once would meet the dying process with all."""

SETTLED_S = 5.0
"""After the end of a host, for what it has left to end by itself."""


class Fault(NamedTuple):
    """A row of the table."""

    key: str
    title: str
    scene: Callable[[Host], str]


def processes(host: Host, role: str | None = None) -> list[psutil.Process]:
    """Return those of the server's processes that live, of one role or all."""
    found = []
    for path in host.births.iterdir():
        if role in (None, path.read_text(encoding="utf-8")):
            try:
                one = psutil.Process(int(path.name))
                if one.status() != psutil.STATUS_ZOMBIE and str(host.births) in one.cmdline():
                    found.append(one)
            except psutil.NoSuchProcess:
                pass
    return found


def tried(call: Callable[[], str]) -> tuple[str | None, str]:
    """Return the text of a call, and else None and what was told."""
    try:
        return call(), ""
    except CallError as error:
        return None, str(error)
    except TimeoutError:
        return None, f"no answer in {ANSWER_S:.0f} s"
    except OSError as error:
        return None, str(error)


def kill(host: Host, number: signal.Signals) -> None:
    """Send the server itself a signal."""
    for one in processes(host, "server"):
        one.send_signal(number)


def crash(host: Host) -> str:
    """Kill the server between two calls."""
    kill(host, signal.SIGKILL)
    time.sleep(NEXT_S)
    text, why = tried(lambda: host.call("echo", ANSWER_S))
    if text is not None:
        return "served"
    text, _ = tried(lambda: _as_new(host))
    then = "a new client is served" if text is not None else "a new client is not served either"
    return f"{'hangs' if why.startswith('no answer') else 'fails'}; {then}"


def _as_new(host: Host) -> str:
    host.connect()
    return host.call("echo", ANSWER_S)


def cause(host: Host) -> str:
    """Have the server die in a call, and look what the caller is told."""
    text, why = tried(lambda: host.call("die", ANSWER_S))
    assert text is None
    if why.startswith("no answer"):
        return why
    known = []
    if '"signal": 9' in why or "SIGKILL" in why:
        known.append("the signal")
    if "the reason stands here" in why:
        known.append("its last words on stderr")
    return " and ".join(known) or "neither signal nor stderr"


def stopped(host: Host) -> str:
    """Stop the server with SIGSTOP, and call until a call is served."""
    kill(host, signal.SIGSTOP)
    began_s = time.monotonic()
    while time.monotonic() < began_s + NOTICED_S:
        left_s = began_s + NOTICED_S - time.monotonic()
        text, _ = tried(lambda: host.call("echo", max(min(ANSWER_S, left_s), 0.1)))  # noqa: B023
        if text is None:
            tried(lambda: _as_new_within(host, left_s))  # noqa: B023
            text, _ = tried(lambda: host.call("echo", max(min(ANSWER_S, left_s), 0.1)))  # noqa: B023
        if text is not None:
            return f"served again after {time.monotonic() - began_s:.0f} s"
        time.sleep(0.2)
    return f"not served in {NOTICED_S:.0f} s"


def _as_new_within(host: Host, left_s: float) -> str:
    del left_s
    host.connect()
    return ""


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
    """Call for 5 MB of text."""
    began_s = time.monotonic()
    text, why = tried(lambda: host.call("big", ANSWER_S))
    if text is None:
        return why if why.startswith("no answer") else "fails"
    took_s = time.monotonic() - began_s
    return f"served, {took_s * 1000:.0f} ms" if len(text) == 5_000_000 else "cut short"  # noqa: PLR2004


def newer(host: Host) -> str:
    """Call as a client of the newer revision; the server is of the older one."""
    text, why = tried(lambda: host.call_newer("echo", ANSWER_S))
    if text is not None:
        return "served"
    return why if why.startswith("no answer") else f"refused: {why:.60}"


def sweep(host: Host) -> None:
    """End whatever is left."""
    for one in processes(host):
        one.send_signal(signal.SIGCONT)
        one.kill()


FAULTS = (
    Fault("crash", "server killed between two calls: the next call", crash),
    Fault("cause", "server dies in a call: what the caller is told of it", cause),
    Fault("stopped", "server stopped with SIGSTOP, calls go on", stopped),
    Fault(
        "killed",
        "host killed with `kill -9`: left after 5 s of the server and two stubborn children",
        killed,
    ),
    Fault("big", "a result of 5 MB", big),
    Fault("newer", "server of the older era, client of the newer (2026-07-28)", newer),
)
