"""The faults that are compared: each is one supervisor's turn, and gives one value."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scripts.compare.program import Program
from scripts.peers.supervisor import Supervisor
from scripts.peers.turn import BORN_WITHIN_S, SETTLED_AFTER_S, born, family, under

RAN_FOR_S = 1.5
"""Less would count as a failed start with supervisord, whose `startsecs` is 1."""
WRITTEN_WITHIN_S = 30.0
"""On a busy machine a daemon that reads and keeps every line takes seconds; a hang is for ever."""
LOOP_S = 20.0
FLEET = 50

Value = float | str
Scene = Callable[[type[Supervisor]], Value]


@dataclass(frozen=True)
class Fault:
    """A row of the comparison; `best` tells which value is the better one."""

    key: str
    title: str
    unit: str
    best: Literal["low", "high"] | tuple[str, ...]
    scene: Scene
    once: bool = False
    """One round is enough: it takes long, and varies little."""


def survivors_of_a_stop(peer: type[Supervisor], program: Program, role: str) -> Value:
    """Stop a program that has a descendant, and count who is left."""
    with under(peer, program) as (supervisor, births):
        born(births, 1, role)
        births.watch(RAN_FOR_S)
        supervisor.run(supervisor.stop("one"))
        births.until(lambda: not births.alive(), SETTLED_AFTER_S)
        return len(births.alive(role))


def survivors_of_kill_9(peer: type[Supervisor]) -> Value:
    """Kill the supervisor alone, and count who is left of three."""
    with under(peer, Program("one", "brood")) as (supervisor, births):
        born(births, 3, "child", "grandchild", "escapee")
        births.watch(RAN_FOR_S)
        supervisor.helpers = family(supervisor.process.pid)
        supervisor.process.kill()
        supervisor.process.wait()
        births.until(lambda: not births.alive(), SETTLED_AFTER_S)
        return len(births.alive())


def stop_of_a_stubborn_one(peer: type[Supervisor]) -> Value:
    """Time a stop of a program that ignores SIGTERM, to its death."""
    with under(peer, Program("one", "stubborn")) as (supervisor, births):
        born(births, 1, "child")
        births.watch(RAN_FOR_S)
        began_s = time.monotonic()
        stopping = subprocess.Popen(
            supervisor.stop("one"),
            cwd=supervisor.folder,
            env=supervisor.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        dead = births.until(lambda: not births.alive(), BORN_WITHIN_S)
        took_s = time.monotonic() - began_s
        stopping.kill()
        stopping.wait()
        return took_s if dead else "never"


def starts_of_a_crash_loop(peer: type[Supervisor]) -> Value:
    """Count the starts of a program that crashes at once."""
    with under(peer, Program("one", "crash")) as (_, births):
        born(births, 1, "child")
        births.watch(LOOP_S)
        return len(births.of("child"))


def end_of_a_crash_loop(peer: type[Supervisor]) -> Value:
    """Tell whether it gives up on a program that crashes at once."""
    with under(peer, Program("one", "crash")) as (supervisor, births):
        born(births, 1, "child")
        births.watch(LOOP_S)
        return "gives up" if supervisor.gave_up("one") else "goes on"


def crash_to_running(peer: type[Supervisor]) -> Value:
    """Time a kill to the birth of the next process (ms), its interpreter's start included."""
    with under(peer, Program("one", "plain")) as (_, births):
        born(births, 1, "child")
        births.watch(RAN_FOR_S)
        (first,) = births.alive("child")
        began_s = time.monotonic()
        signal.pidfd_send_signal(first.pidfd, signal.SIGKILL)
        born(births, 2, "child")
        return (births.of("child")[-1].born_s - began_s) * 1000


def unread_output(peer: type[Supervisor]) -> Value:
    """Have a program write 4 MiB to each of its pipes, though nobody reads its supervisor."""
    with under(peer, Program("one", "chatty")) as (_, births):
        born(births, 1, "child")
        went_on = births.until(lambda: bool(births.of("written")), WRITTEN_WITHIN_S)
        return "goes on" if went_on else "hangs"


def known_death(peer: type[Supervisor]) -> Value:
    """Ask, once the next process runs, how the former one died: by code 3, and by SIGSEGV."""
    with under(peer, Program("one", "crash1"), Program("two", "segv1")) as (supervisor, births):
        births.until(lambda: len(births.of("child")) >= 2 * 2, BORN_WITHIN_S)
        births.watch(RAN_FOR_S)
        code = supervisor.death("one").exit_code == 3  # noqa: PLR2004 - as child.py has it
        number = supervisor.death("two").signal == signal.SIGSEGV
    known = [*(["exit code"] if code else []), *(["signal"] if number else [])]
    return " and ".join(known) or "nothing"


def stop_of_a_fleet(peer: type[Supervisor]) -> Value:
    """Time the end of a supervisor with many programs, to the last death."""
    with under(peer, *(Program(f"p{n}", "plain") for n in range(FLEET))) as (supervisor, births):
        born(births, FLEET, "child")
        births.watch(RAN_FOR_S)
        began_s = time.monotonic()
        supervisor.process.send_signal(signal.SIGTERM)
        dead = births.until(lambda: not births.alive(), BORN_WITHIN_S)
        return time.monotonic() - began_s if dead else "never"


def memory_of_a_fleet(peer: type[Supervisor]) -> Value:
    """Weigh a supervisor and its helpers, without the programs (PSS, MB)."""
    with under(peer, *(Program(f"p{n}", "plain") for n in range(FLEET))) as (supervisor, births):
        born(births, FLEET, "child")
        births.watch(RAN_FOR_S)
        theirs = {life.pid for life in births.lives}
        helpers = [one for one in family(supervisor.process.pid) if one.pid not in theirs]
        return sum(one.memory_full_info().pss for one in helpers) / 1e6


FAULTS = (
    Fault(
        "grandchild",
        "grandchild in the same process group that ignores SIGTERM: left after a stop",
        "",
        "low",
        lambda peer: survivors_of_a_stop(peer, Program("one", "parent"), "grandchild"),
    ),
    Fault(
        "group",
        "the same, where the supervisor can be told to stop the whole group",
        "",
        "low",
        lambda peer: survivors_of_a_stop(
            peer, Program("one", "parent", whole_group=True), "grandchild"
        ),
    ),
    Fault(
        "escapee",
        "grandchild in a session of its own (`setsid`): left after a stop",
        "",
        "low",
        lambda peer: survivors_of_a_stop(
            peer, Program("one", "escaping", whole_group=True), "escapee"
        ),
    ),
    Fault(
        "kill9",
        "supervisor killed with `kill -9`: left of a child, its grandchild and an escapee",
        "",
        "low",
        survivors_of_kill_9,
    ),
    Fault("stubborn", "stop of a child that ignores SIGTERM", "s", "low", stop_of_a_stubborn_one),
    Fault(
        "loop",
        f"starts in {LOOP_S:.0f} s of a crash loop",
        "",
        "low",
        starts_of_a_crash_loop,
        once=True,
    ),
    Fault(
        "gives_up",
        f"the crash loop after {LOOP_S:.0f} s",
        "",
        ("gives up", "goes on"),
        end_of_a_crash_loop,
        once=True,
    ),
    Fault(
        "latency",
        "crash, 1.5 s after its start, to the next process running",
        "ms",
        "low",
        crash_to_running,
    ),
    Fault(
        "unread",
        "child that prints 4 MiB while nobody reads",
        "",
        ("goes on", "hangs"),
        unread_output,
    ),
    Fault("stop50", f"end of a supervisor with {FLEET} children", "s", "low", stop_of_a_fleet),
    Fault("memory50", f"memory (PSS) with {FLEET} idle children", "MB", "low", memory_of_a_fleet),
    Fault(
        "cause",
        "what it still says of a death once the next process runs",
        "",
        ("exit code and signal", "exit code", "signal", "nothing"),
        known_death,
    ),
)
