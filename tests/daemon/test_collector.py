"""The garbage collector keeps away from what stays, and begins with the work."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def found_by(script: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_verb_runs_with_a_collector_that_has_its_imports_behind_it() -> None:
    found = found_by(
        """
import atexit, gc, json, sys
from supervisor.cli import main
from supervisor.daemon import collector
from supervisor.cli.verbs import daemon
import supervisor.cli.command_line as command_line
found = {"before": gc.isenabled()}
def look(args, **_):
    found.update(enabled=gc.isenabled(), frozen=gc.get_freeze_count())
    raise SystemExit(0)
daemon.status.invoke = look
sys.argv = ["stdiod", "status"]
begun = collector.begin
def begin():
    found["while_importing"] = gc.isenabled()
    begun()
collector.begin = begin
atexit.register(lambda: print(json.dumps({**found, "at_exit": gc.get_freeze_count()})))
main.main()
"""
    )
    assert found["before"]
    assert not found["while_importing"]
    assert found["enabled"]
    assert found["frozen"] > 1000
    assert found["at_exit"] > found["frozen"]


def test_what_was_there_is_still_freed_with_its_last_reference() -> None:
    found = found_by(
        """
import json, gc, weakref
from supervisor.daemon import collector
class Kept: pass
kept = Kept()
gone = weakref.ref(kept)
collector.put_off()
collector.begin()
del kept
print(json.dumps({"gone": gone() is None, "enabled": gc.isenabled()}))
"""
    )
    assert found == {"gone": True, "enabled": True}


def test_where_nothing_was_put_off_nothing_is_frozen() -> None:
    found = found_by(
        """
import json, gc
from supervisor.daemon import collector
before = gc.get_freeze_count()  # 3.12 freezes what it starts with
collector.begin()
print(json.dumps({"frozen": gc.get_freeze_count() - before}))
"""
    )
    assert found == {"frozen": 0}


LIVING = """
import gc, json, math, trio, trio.testing
from supervisor.daemon import collector
collector.CALM_AGAIN_S, collector.IDLE_S = 0, math.inf
looks, memory, looked_through = 0, 0, []
def calm():
    global looks
    looks += 1
    return looks > 3
def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        looked_through.append((len(gc.get_objects()), looks))
async def living(go_on):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collector.collect_all, calm, lambda: memory)
        await trio.testing.wait_all_tasks_blocked()
        gc.callbacks.append(note)
        await go_on()
        nursery.cancel_scope.cancel()
"""


def test_however_much_lives_a_collection_looks_through_what_has_come_since_the_last() -> None:
    found = found_by(
        LIVING
        + """
looks = -1_000_000  # never calm
async def go_on():
    held = []
    for _ in range(500):
        held.extend([] for _ in range(1000))
        await trio.lowlevel.checkpoint()
trio.run(living, go_on)
print(json.dumps({"most": max(looked_through)[0], "times": len(looked_through)}))
"""
    )
    assert found["times"] > 5
    assert found["most"] < 50_000  # of 500,000 that live


def test_however_calm_it_is_all_that_lives_is_not_looked_through_while_the_loop_is_busy() -> None:
    # In floods of 50,000 requests that took 125 ms: hardly a task was open, and much lived.
    found = found_by(
        LIVING
        + """
import time
collector.CALM_AGAIN_S, collector.IDLE_S = 1, 0.01
clock, looks = trio.testing.MockClock(), 10  # always calm
async def be_busy(cpu_s):
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass
    clock.jump(collector.CALM_AGAIN_S)
    await trio.lowlevel.checkpoint()
async def go_on():
    global memory
    memory = 16 * collector.LEAST_BYTES
    before = gc.get_freeze_count()
    held = [[] for _ in range(100_000)]
    while gc.get_freeze_count() == before:
        await be_busy(2 * collector.IDLE_S)
    for _ in range(20):
        await be_busy(2 * collector.IDLE_S)
    while_busy = looks
    while looks == 10:  # each makes a collection of all
        await be_busy(0)
    print(json.dumps({"while_busy": while_busy - 10}))
trio.run(living, go_on, clock=clock)
"""
    )
    assert found == {"while_busy": 0}


def test_all_that_lives_is_looked_through_at_a_calm_moment_once_the_daemon_has_grown() -> None:
    found = found_by(
        LIVING
        + """
class Cycle: pass
async def go_on():
    global memory
    one = Cycle()
    one.itself, gone = one, weakref.ref(one)
    before = gc.get_freeze_count()
    held = [[] for _ in range(100_000)]
    while gc.get_freeze_count() == before:
        await trio.lowlevel.checkpoint()
    del one
    held.extend([] for _ in range(100_000))
    await trio.testing.wait_all_tasks_blocked()
    kept, looked = gone() is not None, looks
    memory = 16 * collector.LEAST_BYTES
    held.extend([] for _ in range(100_000))
    while gone() is not None:
        await trio.lowlevel.checkpoint()
    print(json.dumps({"kept": kept, "looked": looked, "calm_at": looks}))
import weakref
trio.run(living, go_on)
"""
    )
    assert found == {"kept": True, "looked": 0, "calm_at": 4}
