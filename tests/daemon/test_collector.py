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
from supervisor.cli.verbs import status
import supervisor.cli.command_line as command_line
found = {"before": gc.isenabled()}
def look(args, **_):
    found.update(enabled=gc.isenabled(), frozen=gc.get_freeze_count())
    raise SystemExit(0)
status.status.invoke = look
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


def test_a_full_collection_waits_for_a_calm_moment() -> None:
    found = found_by(
        """
import gc, json, trio
from supervisor.daemon import collector
collector.CALM_AGAIN_S = 0
generations, held = [], []
looks = 0
def calm():
    global looks
    looks += 1
    return looks > 3
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collector.collect_all, calm)
        await trio.testing.wait_all_tasks_blocked()
        gc.callbacks.append(lambda phase, info: generations.append((info["generation"], looks)))
        held.extend([] for _ in range(300_000))
        before = [one for one in generations if one[0] == 2]
        while not (full := [one for one in generations if one[0] == 2]):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    print(json.dumps({"before": before, "looks": full[0][1], "due": len(generations) > 100}))
import trio.testing
trio.run(main)
"""
    )
    assert found == {"before": [], "looks": 4, "due": True}
